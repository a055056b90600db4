"""Makes the pictures of the viewer in `docs/assets/viewer-*.png`: python docs/screenshots.py.

It runs an example, shows its store, and takes each page in both themes. Needs Chromium, and the
packages `playwright` and `pillow`.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "docs" / "assets"
EXAMPLE = ROOT / "examples" / "shop_agents.yaml"
SIZE = {"width": 1100, "height": 760}
MOST = 600_000
"""Bytes that all pictures may take."""

_RUN = "import sys; from equipoise.cli import main; sys.argv[0] = 'equipoise'; main()"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _RUN]
        store = ["--store", "store.sqlite"]
        ended = subprocess.run([*command, "run", str(EXAMPLE), *store], cwd=folder, check=False)
        if ended.returncode not in (0, 2, 3):  # a verdict, whichever
            raise SystemExit(f"The example ended with {ended.returncode}.")
        view = [*command, "view", "--no-browser", "--port", "0", *store]
        with subprocess.Popen(view, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                address = next(line.strip() for line in server.stdout if "http://" in line)
                _take(address)
            finally:
                server.terminate()
    total = sum(each.stat().st_size for each in ASSETS.glob("viewer-*.png"))
    print(f"{total:,} bytes")
    if total > MOST:
        raise SystemExit(f"The pictures take more than {MOST:,} bytes.")


def _take(address: str) -> None:
    base = address.partition("/?")[0]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for theme in ("light", "dark"):
            context = browser.new_context(viewport=SIZE, color_scheme=theme)
            page = context.new_page()
            page.goto(address)
            page.goto(f"{base}/runs/1")
            _keep(page, f"trial-{theme}")
            page.goto(f"{base}/runs/1/units?show=disagree&sort=spread")
            _keep(page, f"units-{theme}")
            page.locator("table.units tbody a").first.click()
            page.wait_for_url("**/unit?**")
            page.locator("summary", has_text="Conversation").first.click()
            page.locator("#h-answers").scroll_into_view_if_needed()
            page.locator("#h-answers").evaluate("each => scrollTo(0, each.offsetTop - 24)")
            _keep(page, f"unit-{theme}")
            page.goto(f"{base}/compare?runs=1")
            _keep(page, f"compare-{theme}")
        browser.close()


def _keep(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    picture = Image.open(io.BytesIO(page.screenshot()))
    few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(ASSETS / f"viewer-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
