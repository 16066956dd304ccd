"""The report in a real browser: no errors, nothing wider than the window, hovering works."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import TINY_DIGITS

from pscnn import training
from pscnn.report._html import html_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Hovers over a point of the first figure of a kind and leaves what is shown, and the page's width, in the page.
PROBE = """
<script>
addEventListener("load", () => setTimeout(() => {
  const plot = document.querySelector(".%s .js-plotly-plot")
  Plotly.Fx.hover(plot, [{curveNumber: 0, pointNumber: %s}])
  setTimeout(() => {
    const text = plot.querySelector(".hoverlayer")?.textContent ?? ""
    const spare = document.documentElement.clientWidth - document.documentElement.scrollWidth
    document.body.dataset.probe = [text, spare, document.querySelectorAll(".main-svg").length].join("|")
  }, 500)
}, 500))
</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = training.make_settings({**TINY_DIGITS, "epochs": 1})
    folder = training.start(config, tmp_path_factory.mktemp("runs"))
    training.train(folder, accelerator="cpu", progress=False)
    return html_report([folder]).read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [500, 1400])
def test_the_report_works_in_a_browser(page: str, width: int, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page.replace("</body>", PROBE % ("densities", 90)))
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"),
        *(f"--window-size={width},1000", "--virtual-time-budget=8000", "--enable-logging=stderr", "--dump-dom"),
    ]
    done = subprocess.run(
        [str(CHROMIUM), *flags, file.as_uri()], capture_output=True, text=True, check=False, timeout=120
    )
    probe = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert probe is not None, done.stderr[-2000:]
    text, spare, drawn = probe.group(1).split("|")
    assert re.search(r"rotation -?\d+°.*λ = 1\.0", text), text
    assert int(spare) >= 0
    assert int(drawn) > 0
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
