// A dial of one density on a group of the plane. Outer ring: rotations, 0° at the top, counter-clockwise like the image.
// Inner ring: mirror lines, drawn where they lie in the image. Height and colour both say how much is kept.
const RINGS = [[62, 38], [16, 38]]
const KEPT = 0.8

const place = (side, degrees, radius) => {
  const t = degrees * Math.PI / 180
  return side === 0 ? [-radius * Math.sin(t), -radius * Math.cos(t)] : [radius * Math.cos(t), -radius * Math.sin(t)]
}
const lineAngle = (angle) => (angle / 2 + 90) % 180
const where = (side, angle) => side === 0 ? [angle] : [lineAngle(angle), lineAngle(angle) + 180]

function sector(side, middle, width, inner, outer) {
  const points = (radius, sign) => Array.from({ length: 5 }, (_, k) => place(side, middle + sign * (k / 4 - 0.5) * width, radius))
  const path = [...points(outer, 1), ...points(inner, -1)].map((p) => p.map((v) => v.toFixed(2)).join(","))
  return `M${path.join("L")}Z`
}

function said(layer, elements, number) {
  const error = layer.errors ? `; measured error ${short(layer.errors[number])}` : ""
  return `Layer ${layer.number}, ${elements.words[number]}: kept to ${percent(layer.shares[number])}${error}`
}

function dial(layer, elements) {
  const svg = make("svg", { viewBox: "-126 -122 252 244", role: "img", tabindex: 0, "aria-label": described(layer) })
  elements.sides.forEach((_, side) => {
    const [start, height] = RINGS[side]
    const count = elements.angles.length
    const step = (side === 0 ? 360 : 180) / count
    const width = elements.continuous ? step + 0.4 : Math.min(step * 0.6, 14)
    svg.append(make("circle", { r: start + height / 2, fill: "none", stroke: "var(--panel)", "stroke-width": height }))
    elements.angles.forEach((angle, k) => {
      const share = layer.shares[index(elements, { axis: 0, side, angle: k })] ?? 0
      for (const middle of where(side, angle)) {
        svg.append(make("path", { d: sector(side, middle, width, start, start + height * Math.max(share, 0.03)), fill: colour(share) }))
      }
    })
    for (const [level, dash] of [[0, null], [KEPT, "2 3"], [1, null]]) {
      svg.append(make("circle", { r: start + level * height, fill: "none", stroke: "var(--soft)", "stroke-width": 0.7, "stroke-dasharray": dash }))
    }
  })
  for (const angle of [0, 90, 180, 270]) {
    const [x, y] = place(0, angle, 110)
    svg.append(make("text", { x, y: y + 4, "text-anchor": "middle" }, `${angle}°`))
  }
  svg.append(make("path", { class: "mark", fill: "none", stroke: "var(--mark)", "stroke-width": 2.5, d: "" }))
  const show = (event) => {
    const box = svg.getBoundingClientRect()
    const [x, y] = [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2].map((v) => v * 252 / box.width)
    const side = Math.hypot(x, y) < 58 && elements.sides.length > 1 ? 1 : 0
    const turned = side === 0 ? Math.atan2(-x, -y) : 2 * Math.atan2(-y, x) - Math.PI
    const angle = Math.round(turned / (2 * Math.PI) * elements.angles.length)
    tell(said(layer, elements, index(elements, { axis: 0, side, angle: (angle + 2 * elements.angles.length) % elements.angles.length })), event)
  }
  svg.addEventListener("pointermove", show)
  svg.addEventListener("focus", (event) => tell(described(layer), event))
  for (const end of ["pointerleave", "blur"]) svg.addEventListener(end, () => tell(""))
  return svg
}

// The mark on a dial: a pointer on the outer ring, or a line through the inner one.
function moveMark(svg, layer, elements) {
  const [start, height] = RINGS[state.side]
  const share = layer.shares[index(elements)] ?? 0
  const parts = where(state.side, elements.angles[state.angle]).map((middle) => {
    const [from, to] = [place(state.side, middle, start - 6), place(state.side, middle, start + height + 4)]
    const [x, y] = place(state.side, middle, start + height * share)
    return `M${from}L${to}M${x - 5},${y}a5,5 0 1,0 10,0a5,5 0 1,0 -10,0`
  })
  const mark = svg.querySelector(".mark")
  mark.setAttribute("d", parts.join(""))
  mark.dataset.share = share
}

const network = () => DATA.networks[state.network]
const elementsNow = () => network().elements ?? DATA.elements
const described = (layer) => `Layer ${layer.number}${sees(layer)}. It keeps ${layer.kept}. Each of ${layer.group} is kept to at least ${percent(layer.whole)}.`
const unit = () => DATA.elements.space ? "voxels" : "pixels"
const sees = (layer) => layer.sees ? `, which sees ${layer.sees} of ${network().size} ${unit()}` : ""

function drawDials() {
  const elements = elementsNow()
  const space = elements.axes.length > 1
  const order = network().layers[0].sees ? `from those that see little of the ${elements.space ? "volume" : "image"} to those that see most` : "from the first to the last"
  at("key").textContent = space
    ? `Each globe shows one layer, ${order}. A point of a globe is the axis of a rotation, by the angle that the slider below gives; blue: kept, orange: given up. Drag a globe, or use its arrow keys, to see its other side.`
    : `Each dial shows one layer, ${order}. Outer ring: rotations, 0° at the top. ` +
      (elements.sides.length > 1 ? "Inner ring: mirrors, each drawn along its mirror line. " : "") +
      "The higher and bluer, the more is kept; low and orange is given up. Above the dashed circle (80 %) it counts as kept."
  const shown = network().layers.map((layer) => {
    const picture = !layer.shares ? make("p", {}, "This layer's density is over another group.")
      : space ? globe(layer, elements) : dial(layer, elements)
    const size = layer.sees ? make("span", {}, ` sees ${layer.sees} of ${network().size} ${unit()}`) : ""
    return make("figure", { class: "dial" }, picture, make("figcaption", { title: `the layer's name: ${layer.name}` },
      make("b", {}, `Layer ${layer.number}`), size, make("br"), `keeps ${layer.kept}`, make("br"),
      make("span", {}, `everything to at least ${percent(layer.whole)}`)))
  })
  at("dials").replaceChildren(...shown)
  moveMarks()
}

function moveMarks() {
  const elements = elementsNow()
  network().layers.forEach((layer, k) => {
    const picture = at("dials").children[k].firstChild
    if (!layer.shares) return
    if (picture.tagName === "CANVAS") drawGlobe(picture, layer, elements)
    else if (!network().elements) moveMark(picture, layer, elements)
  })
}
