// A density on rotations in space as a globe: its points are the axes, at the angle of the slider.
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
const GLOBE = 220

function lookUp(map, side, turn, axis) {
  const [, angles, rows, columns] = map.shape
  // A rotation by more than a half turn is one by less about the opposite axis.
  const flipped = turn > 180
  const [x, y, z] = flipped ? axis.map((v) => -v) : axis
  const k = Math.round((flipped ? 360 - turn : turn) / 180 * (angles - 1))
  const row = Math.min(rows - 1, Math.floor((Math.asin(Math.max(-1, Math.min(1, z))) / Math.PI + 0.5) * rows))
  const column = Math.min(columns - 1, Math.floor((Math.atan2(y, x) / (2 * Math.PI) + 0.5) * columns))
  map.values ??= bytesOf(map.bytes)
  return map.values[((side * angles + k) * rows + row) * columns + column] / 255
}

// The axis that is seen at a place of the globe, (−1 … 1, up positive); null beside it.
function axisAt(x, y) {
  const rest = 1 - x * x - y * y
  if (rest < 0) return null
  const [cp, sp, cy, sy] = [Math.cos(state.pitch), Math.sin(state.pitch), Math.cos(state.yaw), Math.sin(state.yaw)]
  const depth = Math.sqrt(rest)
  const [forward, up] = [depth * cp - y * sp, depth * sp + y * cp]
  return [forward * cy - x * sy, forward * sy + x * cy, up]
}
function project([x, y, z]) {
  const [cp, sp, cy, sy] = [Math.cos(state.pitch), Math.sin(state.pitch), Math.cos(state.yaw), Math.sin(state.yaw)]
  const [forward, across] = [x * cy + y * sy, y * cy - x * sy]
  return [across, z * cp - forward * sp, forward * cp + z * sp]
}

function drawGlobe(canvas, layer, elements) {
  const context = canvas.getContext("2d")
  const picture = context.createImageData(GLOBE, GLOBE)
  const radius = GLOBE * 0.4
  for (let row = 0; row < GLOBE; row++) {
    for (let column = 0; column < GLOBE; column++) {
      const axis = axisAt((column + 0.5 - GLOBE / 2) / radius, (GLOBE / 2 - row - 0.5) / radius)
      if (axis) picture.data.set([...mixed(lookUp(layer.globe, state.side, elements.angles[state.angle], axis)), 255], 4 * (row * GLOBE + column))
    }
  }
  context.putImageData(picture, 0, 0)
  const style = getComputedStyle(document.documentElement)
  context.font = "bold 16px system-ui"
  context.textAlign = "center"
  context.textBaseline = "middle"
  const units = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
  units.forEach((axis, k) => {
    for (const sign of [1, -1]) {
      const [x, y, depth] = project(axis.map((v) => sign * v))
      if (depth < -0.2) continue
      const [px, py] = [GLOBE / 2 + radius * x, GLOBE / 2 - radius * y]
      if (k === state.axis) {
        context.beginPath()
        context.arc(px, py, 8, 0, 7)
        context.strokeStyle = style.getPropertyValue("--mark")
        context.lineWidth = 3
        context.stroke()
      }
      const far = Math.hypot(x, y)
      const [ox, oy] = far < 0.3 ? [0, 1] : [x / far, y / far]
      context.fillStyle = style.getPropertyValue(far > 0.75 ? "--ink" : "--mark")
      context.fillText((sign < 0 ? "−" : "") + elements.axes[k], px + 17 * ox, py - 17 * oy)
    }
  })
  canvas.dataset.share = layer.shares[index(elements)]
}

function globe(layer, elements) {
  const canvas = make("canvas", { width: GLOBE, height: GLOBE, role: "img", tabindex: 0, "aria-label": described(layer) })
  const hovered = (event) => {
    const box = canvas.getBoundingClientRect()
    const x = (event.clientX - box.left) / box.width - 0.5, y = 0.5 - (event.clientY - box.top) / box.height
    return axisAt(x / 0.4, y / 0.4)
  }
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) {
      state.yaw -= event.movementX / 80
      state.pitch = Math.max(-1.5, Math.min(1.5, state.pitch + event.movementY / 80))
      moveMarks()
      return
    }
    const axis = hovered(event)
    if (!axis) return tell("")
    const angle = elements.angles[state.angle]
    const before = state.side ? "point reflection and " : ""
    tell(`Layer ${layer.number}, ${before}rotation by ${angle}° about (${axis.map((v) => v.toFixed(1)).join(", ")}): kept to ${percent(lookUp(layer.globe, state.side, angle, axis))}`, event)
  })
  canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId))
  canvas.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: [0.2, 0], ArrowRight: [-0.2, 0], ArrowUp: [0, -0.2], ArrowDown: [0, 0.2] }[event.key]
    if (!turn) return
    event.preventDefault()
    state.yaw += turn[0]
    state.pitch = Math.max(-1.5, Math.min(1.5, state.pitch + turn[1]))
    moveMarks()
  })
  canvas.addEventListener("focus", (event) => tell(described(layer), event))
  for (const end of ["pointerleave", "blur"]) canvas.addEventListener(end, () => tell(""))
  return canvas
}
