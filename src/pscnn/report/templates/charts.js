// Comparisons, curves and confusions: figures that do not move.
const DASHES = [null, "5 3", "1.5 3", "8 3 2 3", "3 6", "10 4"]

function track(row, low, high, zero) {
  const spot = (value) => `${100 * (value - low) / (high - low || 1)}%`
  const add = (kind, value) => {
    const out = make("span", { class: kind })
    out.style.left = spot(value)
    return out
  }
  const parts = []
  if (zero) parts.push(add("zero", 0))
  if (row.low !== null) {
    const range = add("range", row.low)
    range.style.width = `calc(${spot(row.high)} - ${spot(row.low)})`
    parts.push(range)
  }
  parts.push(...(row.points ?? []).map((value) => add("seed", value)), add("mean", row.mean))
  return make("div", { class: "track", "aria-hidden": "true" }, ...parts)
}

function compare(one, format, zero = false) {
  const values = one.rows.flatMap((row) => [row.low, row.high, row.mean, ...(row.points ?? [])]).filter((v) => v !== null)
  if (zero) values.push(0)
  let [low, high] = [Math.min(...values), Math.max(...values)]
  const margin = 0.06 * (high - low) || 0.05
  ;[low, high] = [low - margin, high + margin]
  const lines = one.rows.map((row) => {
    const range = row.low === null ? "" : ` [${format(row.low)}, ${format(row.high)}]`
    return make("div", {}, make("div", { class: "what" }, make("b", {}, row.label), make("span", {}, `${format(row.mean)}${range}${row.covers ? ` – ${row.covers}` : ""}`)), track(row, low, high, zero))
  })
  return make("div", { class: "compare" }, ...lines, make("div", { class: "scale", "aria-hidden": "true" }, make("span", {}, format(low)), make("span", {}, format(high))))
}

function showComparisons() {
  at("comparisons").replaceChildren(...DATA.comparisons.filter((one) => one.rows.length).flatMap((one) => [
    make("h3", {}, `${one.score[0].toUpperCase()}${one.score.slice(1)} (${one.title})`),
    make("p", {}, "A circle is one seed, the upright bar their mean, the band a 95 % interval."),
    compare(one, (v) => v.toFixed(3)),
  ]))
  for (const [name, one] of Object.entries(DATA.answer ?? {})) if (one.rows.length) at(name).replaceChildren(compare(one, (v) => (v > 0 ? "+" : "") + v.toFixed(one.digits), true))
}

function showAgreement() {
  const shown = network().layers.filter((layer) => layer.errors)
  const elements = elementsNow()
  const top = Math.max(1e-3, ...shown.flatMap((layer) => layer.errors))
  const perSide = elements.angles.length
  at("agreement").replaceChildren(...shown.map((layer) => {
    const rho = layer.rho === null ? "the same everywhere" : `ρ = ${layer.rho.toFixed(2).replace("-", "−")}`
    const svg = make("svg", { viewBox: "0 0 232 160", role: "img", "aria-label": `Layer ${layer.number}: measured error against the share that is kept; ${rho}` })
    const [x, y] = [(v) => 38 + 172 * v, (v) => 125 - 110 * v / top]
    for (const v of [0, 0.5, 1]) svg.append(make("line", { x1: x(v), x2: x(v), y1: y(0), y2: y(top), stroke: "var(--line)" }), make("text", { x: x(v), y: 140, "text-anchor": "middle" }, `${100 * v} %`))
    for (const v of [0, top / 2, top]) svg.append(make("line", { x1: x(0), x2: x(1), y1: y(v), y2: y(v), stroke: "var(--line)" }), make("text", { x: 34, y: y(v) + 4, "text-anchor": "end" }, short(v)))
    layer.errors.forEach((error, k) => {
      const [px, py] = [x(layer.shares[k] ?? 0), y(error ?? 0)]
      svg.append(Math.floor(k / perSide) % elements.sides.length === 0 ? make("circle", { cx: px, cy: py, r: 2.4, fill: "var(--c0)", "fill-opacity": 0.7 })
        : make("path", { d: `M${px - 2.5},${py - 2.5}l5,5m0,-5l-5,5`, stroke: "var(--c1)", "stroke-width": 1.4 }))
    })
    svg.append(make("text", { x: 124, y: 156, "text-anchor": "middle" }, "kept"))
    return make("figure", {}, make("figcaption", {}, make("b", {}, `Layer ${layer.number}`), `, measured error; ${rho}`), svg)
  }), ...(elements.sides.length > 1 && shown.length ? [make("p", {}, "● rotations  × ", elements.sides[1])] : []))
}

function lineChart(one) {
  const names = Object.keys(one.lines)
  const values = names.flatMap((name) => one.lines[name]).filter((v) => v !== null)
  const [low, high] = [Math.min(0, ...values), Math.max(...values, 1e-9)]
  const count = Math.max(...names.map((name) => one.lines[name].length))
  const [x, y] = [(k) => 44 + 210 * (count > 1 ? k / (count - 1) : 0.5), (v) => 130 - 115 * (v - low) / (high - low)]
  const last = names.map((name) => `${name} ends at ${short(one.lines[name].at(-1))}`).join("; ")
  const svg = make("svg", { viewBox: "0 0 262 165", role: "img", "aria-label": `${one.title} over ${count} ${one.counted}s: ${last}` })
  for (const v of [low, (low + high) / 2, high]) svg.append(make("line", { x1: 44, x2: 254, y1: y(v), y2: y(v), stroke: "var(--line)" }), make("text", { x: 40, y: y(v) + 4, "text-anchor": "end" }, Number(v.toPrecision(2))))
  for (const k of new Set([0, count - 1])) svg.append(make("text", { x: x(k), y: 146, "text-anchor": "middle" }, String(k + 1)))
  svg.append(make("text", { x: 149, y: 160, "text-anchor": "middle" }, one.counted))
  const look = (k) => ({ fill: "none", stroke: `var(--c${k % 6})`, "stroke-width": 1.8, "stroke-dasharray": DASHES[k % 6] })
  names.forEach((name, k) => {
    const points = one.lines[name].map((v, i) => v === null ? null : `${x(i).toFixed(1)},${y(v).toFixed(1)}`).filter(Boolean)
    svg.append(points.length > 1 ? make("polyline", { points: points.join(" "), ...look(k) }) : make("circle", { cx: x(0), cy: y(one.lines[name][0] ?? 0), r: 3, fill: `var(--c${k % 6})` }))
  })
  const legend = names.flatMap((name, k) => [make("svg", { viewBox: "0 0 32 8", "aria-hidden": "true" }, make("line", { x1: 0, x2: 32, y1: 4, y2: 4, ...look(k) })), ` ${name} `])
  return make("figure", {}, make("figcaption", {}, make("b", {}, one.title), make("br"), ...legend), svg)
}

function heatMap({ names, rows }) {
  const n = rows.length, cell = 400 / n
  const canvas = make("canvas", { width: n, height: n })
  const context = canvas.getContext("2d")
  rows.forEach((row, i) => row.forEach((value, j) => {
    context.fillStyle = `rgb(${ends[2].join(" ")} / ${10 * Math.sqrt(value)}%)` // roots, so that rare mistakes are seen
    context.fillRect(j, i, 1, 1)
  }))
  const name = (k) => names[k] ?? String(k)
  const clipped = (k) => name(k).length > 12 ? `${name(k).slice(0, 6)}…${name(k).slice(-5)}` : name(k)
  const every = Math.ceil(n / 25), size = Math.min(13, Math.max(9, cell * every * 0.8))
  const margin = 14 + 0.62 * size * Math.max(...rows.map((_, k) => clipped(k).length))
  const [width, height] = [405 + margin, 425 + margin]
  const svg = make("svg", { viewBox: `${-margin} ${-margin} ${width} ${height}`, role: "img", "aria-label": `How often each of ${n} true classes (rows) is taken for each class (columns); the commonest mistakes are listed below` },
    make("rect", { width: 400, height: 400, fill: "none", stroke: "var(--line)" }), make("image", { href: canvas.toDataURL(), width: 400, height: 400, style: "image-rendering: pixelated", preserveAspectRatio: "none" }))
  for (let k = 0; k < n; k += every) {
    const middle = (k + 0.5) * cell
    svg.append(make("text", { x: -5, y: middle + size / 3, "text-anchor": "end", "font-size": size }, clipped(k)), make("text", { transform: `translate(${middle + size / 3} -5) rotate(-90)`, "font-size": size }, clipped(k)))
    if (n <= 16) rows[k].forEach((value, j) => value && svg.append(make("text", { x: (j + 0.5) * cell, y: middle + 4, "text-anchor": "middle", "font-size": 11, style: value > 35 ? "fill: var(--paper)" : "" }, value)))
  }
  svg.append(make("text", { x: 200, y: 420, "text-anchor": "middle", "font-size": 13 }, "rows: true class, columns: answer, percent of the row"))
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect()
    const [j, i] = [(event.clientX - box.left) / box.width * width - margin, (event.clientY - box.top) / box.height * height - margin].map((v) => Math.floor(v / cell))
    tell(i >= 0 && j >= 0 && i < n && j < n ? `${name(i)} is taken for ${name(j)} in ${rows[i][j]} % of cases` : "", event)
  })
  svg.addEventListener("pointerleave", () => tell(""))
  const wrong = rows.flatMap((row, i) => row.map((value, j) => [value, i, j])).filter(([value, i, j]) => i !== j && value > 0).sort((a, b) => b[0] - a[0]).slice(0, 8)
  const list = make("ul", {}, ...wrong.map(([value, i, j]) => make("li", {}, `${name(i)} is taken for ${name(j)}: ${value} %`)))
  return make("div", { class: "heat" }, svg, make("p", {}, wrong.length ? "The commonest mistakes:" : "No mistakes."), list)
}
