// Test examples, transformed here; what networks and layers make of it was computed when the page was made.
const images = []

function paint(canvas, example, matrix) {
  const image = images[example]
  const [width, height] = [image.naturalWidth, image.naturalHeight]
  const zoom = Math.max(1, Math.round(320 / Math.max(width, height)))
  canvas.width = width * zoom
  canvas.height = height * zoom
  const context = canvas.getContext("2d")
  context.imageSmoothingEnabled = false
  const [a, b, c, d] = matrix // x to the right, y up; on a canvas y points down
  context.setTransform(a * zoom, -c * zoom, -b * zoom, d * zoom, canvas.width / 2, canvas.height / 2)
  context.drawImage(image, -width / 2, -height / 2)
}

// The brightest voxel along each axis, of a volume moved by a matrix: (h·f)(x) = f(h⁻¹x).
function project3(example, m) {
  example.values ??= bytesOf(example.voxels)
  const n = example.side, half = (n - 1) / 2
  const out = [0, 1, 2].map(() => new Uint8ClampedArray(n * n))
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) for (let k = 0; k < n; k++) {
    const x = k - half, y = half - j, z = i - half // arrays are (z, −y, x)
    const u = Math.round(m[0] * x + m[3] * y + m[6] * z + half)
    const v = Math.round(half - (m[1] * x + m[4] * y + m[7] * z))
    const w = Math.round(m[2] * x + m[5] * y + m[8] * z + half)
    if (u < 0 || v < 0 || w < 0 || u >= n || v >= n || w >= n) continue
    const value = example.values[(w * n + v) * n + u]
    const up = n - 1 - i // z up
    for (const [which, place] of [[0, up * n + (n - 1 - j)], [1, up * n + k], [2, j * n + k]]) {
      if (value > out[which][place]) out[which][place] = value
    }
  }
  return out
}

function paintVolume(example, matrix) {
  const n = example.side
  project3(example, matrix).forEach((values, k) => {
    const canvas = at("pictures").children[k].firstChild
    canvas.width = canvas.height = n
    const picture = canvas.getContext("2d").createImageData(n, n)
    values.forEach((value, p) => picture.data.set([value, value, value, 255], 4 * p))
    canvas.getContext("2d").putImageData(picture, 0, 0)
  })
}

const bar = (share, fill) => {
  const inner = make("i")
  inner.style.width = `${100 * Math.min(share ?? 0, 1)}%`
  inner.style.background = fill
  return make("span", { class: "bar", "aria-hidden": "true" }, inner)
}

function rows(id, head, lines) {
  const cells = (tag, texts) => make("tr", {}, ...texts.map((cell) => make(tag, tag === "th" ? { scope: "col" } : {}, ...[cell].flat())))
  at(id).replaceChildren(make("table", {}, cells("th", head), ...lines.map((line) => cells("td", line))))
}

function answered(network, number) {
  const tries = DATA.try
  if (network.values) {
    const count = network.values[state.example].length / DATA.elements.words.length
    const found = network.values[state.example].slice(count * number, count * (number + 1))
    return { text: found.map((v, k) => `${tries.targets[k] ?? "value"} ${v === null ? "unknown" : Number(v.toPrecision(3))}`), bars: "" }
  }
  const count = network.classes[state.example].length / DATA.elements.words.length
  const pick = (list) => list[state.example].slice(count * number, count * (number + 1))
  const [classes, percents] = [pick(network.classes), pick(network.percents)]
  return { text: [tries.classes[classes[0]]], bars: classes.map((c, k) => [tries.classes[c], percents[k]]) }
}

function showAnswers() {
  const number = index(DATA.elements)
  rows("answers", ["network", "answer", "without turning"], DATA.try.networks.map((network) => {
    const [now, before] = [answered(network, number), answered(network, 0)]
    const same = now.text.join() === before.text.join()
    const bars = now.bars ? now.bars.flatMap(([name, value]) => [make("span", {}, `${name}: ${value} %`), bar(value / 100, "var(--c0)")]) : [now.text.join(", ")]
    return [network.label, bars, same ? "the same" : `it was ${before.text.join(", ")}`]
  }))
}

function showLayers() {
  const elements = elementsNow()
  if (network().elements) return at("bylayer").replaceChildren("The chosen network's densities are over another group than the transformations here.")
  const highest = Math.max(1e-9, ...network().layers.flatMap((layer) => layer.errors ?? []))
  rows("bylayer", ["layer", "kept to", "measured error"], network().layers.filter((layer) => layer.shares).map((layer) => {
    const [share, error] = [layer.shares[index(elements)], layer.errors?.[index(elements)]]
    return [`Layer ${layer.number}`, [percent(share), bar(share, colour(share))], [short(error), bar(error / highest, "var(--c1)")]]
  }))
}

function showTry() {
  const elements = DATA.elements
  const number = index(elements)
  const angle = elements.angles[state.angle]
  at("turned").textContent = `${angle}°`
  at("angle").setAttribute("aria-valuetext", elements.words[number])
  const mirrored = state.side === 1 && !elements.space ? ` (mirrored left to right, then turned by ${angle}°)` : ""
  at("done").textContent = elements.words[number] + mirrored
  const example = DATA.try.examples[state.example]
  if (example.src) paint(at("pictures").querySelector("canvas"), state.example, elements.matrices[number])
  else paintVolume(example, elements.matrices[number])
  for (const canvas of at("pictures").querySelectorAll("canvas")) canvas.setAttribute("aria-label", `${example.name}, ${example.true}, after the ${elements.words[number]}`)
  showAnswers()
  if (!DATA.networks.length) return
  showLayers()
  moveMarks()
}

function startTry() {
  const elements = DATA.elements
  const views = elements.space ? ["seen along x", "seen along y", "seen along z"] : [""]
  at("pictures").replaceChildren(...views.map((view) => make("figure", {}, make("canvas", { role: "img" }), make("figcaption", {}, view))))
  at("examples").replaceChildren(...DATA.try.examples.map((example, k) => {
    const radio = make("input", { type: "radio", name: "example", value: k })
    radio.checked = k === 0
    radio.addEventListener("change", () => { state.example = k; showTry() })
    return make("label", {}, radio, ...(example.src ? [make("img", { src: example.src, alt: "" })] : [`${k + 1}:`]), ` ${example.true}`)
  }))
  at("axis").replaceChildren(...elements.axes.map((axis, k) => make("option", { value: k }, axis)))
  at("axis-choice").hidden = elements.axes.length < 2
  at("mirror-choice").hidden = elements.sides.length < 2
  if (elements.space) at("mirror-words").textContent = elements.sides[1] === "mirrors" ? "mirror it first" : "reflect it in its centre, too"
  at("angle").max = elements.angles.length - 1
  state.angle = elements.axes.length > 1 ? Math.round(elements.angles.length / 4) : 0
  at("angle").value = state.angle
  at("angle").addEventListener("input", () => { state.angle = Number(at("angle").value); showTry() })
  at("axis").addEventListener("change", () => { state.axis = Number(at("axis").value); showTry() })
  at("mirror").addEventListener("change", () => { state.side = Number(at("mirror").checked); showTry() })
  let timer = null
  at("play").addEventListener("click", () => {
    const playing = timer !== null
    if (playing) clearInterval(timer)
    timer = playing ? null : setInterval(() => {
      state.angle = (state.angle + 1) % elements.angles.length
      at("angle").value = state.angle
      showTry()
    }, elements.continuous ? 120 : 700)
    at("play").textContent = playing ? "Play" : "Stop"
    at("play").setAttribute("aria-pressed", String(!playing))
  })
  return Promise.all(DATA.try.examples.map((example, k) => {
    if (!example.src) return null
    images[k] = new Image()
    images[k].src = example.src
    return images[k].decode()
  })).then(showTry)
}
