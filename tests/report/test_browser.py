"""The report in a real browser: it answers to slider, switch, keys and hovering, alone, and at every width."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import TINY_DIGITS
from PIL import Image

from pscnn import training
from pscnn.groups import MIRROR, rotation
from pscnn.report._html import html_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    runs = []
    for method in ("p-scnn", "cnn"):
        config = training.make_settings({**TINY_DIGITS, "epochs": 2, "lr": 0.02, "method": method})
        runs.append(training.start(config, root))
        training.train(runs[-1], accelerator="cpu", progress=False)
    return html_report(runs)


@pytest.fixture(scope="module")
def solid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"task": "shapes3d", "epochs": 1, "batch_size": 4, "group": "SO(3)", "lr": 0.05}
    counts = {"train_count": 6, "validation_count": 4, "test_count": 4}
    folder = training.start(training.make_settings({**settings, **counts}), tmp_path_factory.mktemp("runs"))
    training.train(folder, accelerator="cpu", progress=False)
    return html_report([folder])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens a file; at the end there must have been no error and no request but for the file itself."""
    wrong: list[str] = []
    opened = []

    def go(file: Path, width: int = 1200, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else wrong.append(r.url))
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]", state="attached")
        opened.append(page)
        return page

    yield go
    for page in opened:
        page.close()
    assert wrong == []


def pixels(page: Any, which: str = "#pictures canvas") -> np.ndarray:
    address = page.evaluate(f"document.querySelector('{which}').toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).convert("L"))


def turn(page: Any, position: int, *, mirrored: bool = False) -> None:
    page.locator("#mirror").set_checked(mirrored)
    page.locator("#angle").fill(str(position))


def test_the_slider_turns_picture_marks_and_words(visit: Any, flat: Path) -> None:
    page = visit(flat)
    before, mark = pixels(page), page.locator(".mark").first.get_attribute("d")
    assert before.max() > 0
    for position, mirrored in ((12, False), (0, True), (36, True)):
        turn(page, position, mirrored=mirrored)
        h = rotation(np.radians(7.5 * position)) @ (MIRROR if mirrored else np.eye(2))
        rows, columns = np.indices(before.shape) - (len(before) - 1) / 2
        x, y = np.einsum("ji,j...->i...", h, np.stack([columns, -rows]))  # (h·f)(x) = f(h⁻¹x), y points up
        half = (len(before) - 1) / 2
        assert np.array_equal(pixels(page), before[np.rint(half - y).astype(int), np.rint(x + half).astype(int)])
        assert page.locator(".mark").first.get_attribute("d") != mark
    data = page.evaluate("DATA")
    turn(page, 20)
    assert page.locator("#done").inner_text() == "rotation by 150°"
    for number, layer in enumerate(data["networks"][0]["layers"]):
        assert float(page.locator(".mark").nth(number).get_attribute("data-share")) == layer["shares"][20]
        assert f"{round(100 * layer['shares'][20])} %" in page.locator("#bylayer tr").nth(number + 1).inner_text()
    first = data["try"]["networks"][0]
    best = 20 * len(first["classes"][0]) // len(data["elements"]["words"])  # several classes per element
    expected = f"{data['try']['classes'][first['classes'][0][best]]}: {first['percents'][0][best]} %"
    assert expected in page.locator("#answers tr").nth(1).inner_text()
    turn(page, 0)
    page.locator("#examples input").nth(3).check()
    assert not np.array_equal(pixels(page), before)


def test_keys_and_hovering_tell_in_words(visit: Any, flat: Path) -> None:
    page = visit(flat)
    page.locator("#angle").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#turned").inner_text() == "7.5°"
    dial = page.locator(".dial svg").first
    dial.focus()
    assert "Layer 1, which sees" in page.locator("#tip").inner_text()
    box = dial.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"] - 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    share = page.evaluate("DATA.networks[0].layers[0].shares[12]")
    assert page.locator("#tip").inner_text().startswith(f"Layer 1, rotation by 90°: kept to {round(100 * share)} %")
    page.mouse.move(box["x"] + 0.5 * box["width"] + 0.15 * box["width"], box["y"] + 0.5 * box["height"])
    assert "mirror line at 0°" in page.locator("#tip").inner_text()


@pytest.mark.parametrize("name", ["flat", "solid"])
@pytest.mark.parametrize(("width", "scheme"), [(380, "light"), (1600, "dark")])
def test_everyone_can_read_it(visit: Any, name: str, width: int, scheme: str, request: pytest.FixtureRequest) -> None:
    page = visit(request.getfixturevalue(name), width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(page).response["violations"]
    assert [(f["id"], f["nodes"][0]["html"]) for f in found if f["impact"] in ("serious", "critical")] == []


def test_volumes_turn_about_an_axis(visit: Any, solid: Path) -> None:
    page = visit(solid)
    assert page.locator(".dial canvas").count() == 3
    page.locator("#axis").select_option("2")
    turn_to = page.locator("#angle")
    turn_to.fill("0")
    flat_view = pixels(page, "#pictures figure:nth-child(3) canvas")
    globe = pixels(page, ".dial canvas")
    turn_to.fill("3")  # a quarter turn about z
    assert page.locator("#done").inner_text() == "rotation by 90° about z"
    assert np.array_equal(pixels(page, "#pictures figure:nth-child(3) canvas"), np.rot90(flat_view))
    assert not np.array_equal(pixels(page, ".dial canvas"), globe)
