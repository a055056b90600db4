"""Every page in Chromium: nothing hostile runs, everyone can read it, nothing is cut off."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from tests.viewer.browser import Visitor
from tests.viewer.conftest import HOSTILE

TASK = quote(f"sums {HOSTILE[0]}")
PAGES = {
    "trials": "/",
    "trials, none": "/?q=nothing+is+called+so",
    "trial": "/runs/1",
    "running": "/runs/2",
    "imported": "/runs/3",
    "samples": "/runs/1/samples",
    "units": f"/runs/1/units?task={TASK}&show=disagree&sort=spread",
    "units, none": "/runs/1/units?low=7",
    "compare": "/compare",
    "one run": "/compare?runs=1",
    "two runs": "/compare?runs=1,2",
    "catalogue": "/catalogue?field=quantization",
    "part": "/catalogue/rotated_runtime_smooth",
    "paper": "/papers/rrs",
    "refusal": "/runs/99",
}
UNITS = [f"/runs/1/unit?task={TASK}&id={quote(f'u{i:02d} {HOSTILE[i]}')}" for i in range(10)]
LOOKS = [(theme, width) for theme in ("light", "dark") for width in (1200, 400)]


def reveal(visitor: Visitor) -> None:
    """Open and bring into view whatever is shown only then: details, charts, samples."""
    page = visitor.page
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    for _ in range(30):
        page.mouse.wheel(0, 4_000)
        page.wait_for_timeout(30)
        bottom = "scrollY + innerHeight >= document.documentElement.scrollHeight - 2"
        if page.evaluate(bottom):
            break
    page.wait_for_timeout(100)


@pytest.mark.parametrize("address", [*PAGES.values(), *UNITS], ids=[*PAGES, *HOSTILE])
def test_nothing_hostile_runs(visitor: Visitor, address: str) -> None:
    visitor.go(address)
    reveal(visitor)
    if address == PAGES["refusal"]:  # the browser tells of every 404
        visitor.faults = [each for each in visitor.faults if "404" not in each]
    assert visitor.page.locator("main h1").is_visible()
    assert not visitor.page.locator("iframe, object, embed, [onerror], [onload]").count()


@pytest.mark.parametrize("address", [*PAGES.values(), UNITS[7]], ids=[*PAGES, "unit"])
def test_everyone_can_read_it(visitor: Visitor, address: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visitor.page
    visitor.go(address)
    reveal(visitor)
    said = []
    for theme, width in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
        found = axe.run(page, options=rules).response
        for each in found["violations"]:
            where = [" ".join(map(str, node["target"])) for node in each["nodes"]]
            said.append(f"{theme} {width}: {each['id']}: {where[:5]}")
        cut = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if cut > 0:
            said.append(f"{theme} {width}: {cut} pixels wider than the window")
    visitor.faults = [each for each in visitor.faults if "404" not in each]
    assert not said, "\n".join(said)
