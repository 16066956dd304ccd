function showNetwork() {
  if (at("sentence")) at("sentence").textContent = state.network === 0 ? "" : network().sentence
  drawDials()
  showAgreement()
}

function show() {
  readColours()
  showComparisons()
  for (const place of document.querySelectorAll("[data-curves]")) place.replaceChildren(...DATA.runs[place.dataset.curves].curves.map(lineChart))
  for (const place of document.querySelectorAll("[data-confusion]")) place.replaceChildren(heatMap(DATA.runs[place.dataset.confusion].confusion))
  if (at("steps")) at("steps").replaceChildren(...DATA.steps.map(lineChart))
  if (DATA.networks.length) showNetwork()
}

if (DATA.elements && DATA.elements.axes.length > 1) state.angle = Math.round(DATA.elements.angles.length / 4)
show()
at("network")?.addEventListener("change", () => {
  state.network = Number(at("network").value)
  showNetwork()
  if (DATA.try) showTry()
})
if (DATA.try) startTry().then(() => { document.body.dataset.ready = "yes" })
else document.body.dataset.ready = "yes"
at("json").href = URL.createObjectURL(new Blob([at("data").textContent], { type: "application/json" }))
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { show(); if (DATA.try) showTry() })
addEventListener("keydown", (event) => { if (event.key === "Escape") tell("") })
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true }))
