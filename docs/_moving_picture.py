"""Makes the README's moving picture from a report: an example turns, and the marks on the dials move with it.

Usage: python docs/_moving_picture.py REPORT.html docs/images/report.gif (needs Playwright and Chromium)
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1440, 800
SHOWN = 760
"""Pixels across the picture."""


def frame(page: Any) -> Image.Image:
    """What is seen now, with few colours."""
    found = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    small = found.resize((SHOWN, round(found.height * SHOWN / found.width)), Image.Resampling.LANCZOS)
    return small.quantize(64, dither=Image.Dither.NONE)


def main(report: Path, out: Path) -> None:
    """Turn the example once around, then show its mirror images."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("body[data-ready]", state="attached")
        page.locator("#examples input").nth(2).check()
        last = int(page.locator("#angle").get_attribute("max") or 0)
        frames = []
        for mirrored in (False, True) if page.locator("#mirror").is_visible() else (False,):
            page.locator("#mirror").set_checked(mirrored)
            for position in range(0, last + 1, 6 if mirrored else 3):
                page.locator("#angle").fill(str(position))
                page.evaluate("document.getElementById('dials').scrollIntoView()")
                frames.append(frame(page))
        browser.close()
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=200, loop=0, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
