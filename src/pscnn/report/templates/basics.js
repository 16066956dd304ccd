"use strict"
const DATA = JSON.parse(document.getElementById("data").textContent)
const at = (id) => document.getElementById(id)

// What the reader has chosen: a network, an example, and the element's side, axis and angle.
const state = { network: 0, example: 0, axis: 0, side: 0, angle: 0, yaw: 0.6, pitch: 0.4 }

// Text is always set as text: names of classes and files are never read as HTML.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "circle", "line", "text", "image", "rect", "polyline", "title"].includes(tag)
  const out = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) if (value !== null) out.setAttribute(name, value)
  out.append(...children)
  return out
}

const percent = (share) => share === null || share === undefined ? "unknown" : `${Math.round(100 * share)} %`
const short = (value) => value === null || value === undefined ? "unknown" : value < 0.0005 ? "0" : value.toFixed(value < 0.1 ? 3 : 2)

// The element of a grid at the chosen place, or at another angle or side.
const index = (elements, { axis, side, angle } = state) =>
  (axis * elements.sides.length + side) * elements.angles.length + angle

// Colours from given up (30 % and less) over grey to kept (100 %), as the style sheet has them now.
let ends = []
function readColours() {
  const style = getComputedStyle(document.documentElement)
  ends = ["--lost", "--half", "--kept"].map((name) => {
    const hex = style.getPropertyValue(name).trim().slice(1)
    return [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16))
  })
}
function mixed(share) {
  const t = 2 * Math.min(Math.max(((share ?? 0) - 0.3) / 0.7, 0), 1)
  const [from, to, part] = t < 1 ? [ends[0], ends[1], t] : [ends[1], ends[2], t - 1]
  return from.map((value, k) => Math.round(value + part * (to[k] - value)))
}
const colour = (share) => `rgb(${mixed(share).join(" ")})`

function tell(text, event) {
  const tip = at("tip")
  tip.hidden = !text
  tip.textContent = text
  if (!text) return
  const box = event.target.getBoundingClientRect()
  const [x, y] = event.clientX === undefined ? [box.left, box.bottom] : [event.clientX + 12, event.clientY + 16]
  tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`
  tip.style.top = `${Math.max(4, Math.min(y, innerHeight - tip.offsetHeight - 8))}px`
}
