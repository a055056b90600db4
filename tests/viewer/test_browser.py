"""What people do with the pages: filter, go back, share an address, use keys, change the theme."""

from __future__ import annotations

import contextlib
import itertools
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from tests.viewer.browser import TOKEN, Server, Visitor, visiting
from tests.viewer.conftest import HOSTILE

from equipoise.core import Outcome, ScoreSpec, Unit
from equipoise.store import Store

# Where the first dot of the dark theme is: nothing else in the chart is blue.
_MARK = """() => {
  const canvas = document.querySelector("[data-chart] canvas");
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 2] - data[at] > 60) {
      return [(at / 4) % width, Math.floor(at / 4 / width) + 4];
    }
  }
}"""


def query(page: Any) -> dict[str, str]:
    return {name: each[0] for name, each in parse_qs(urlsplit(page.url).query).items()}


def ids(page: Any) -> list[str]:
    found = page.locator("table.units tbody th bdi").all_inner_texts()
    return [each[:3] for each in found if re.match(r"u\d\d", each)]


def settled(page: Any, script: str) -> None:
    """Wait until a script says true; not as Playwright does, which the policy forbids."""
    from playwright.sync_api import Error

    for _ in range(300):
        with contextlib.suppress(Error):  # asked while one page gave way to another
            if page.evaluate(script):
                return
        page.wait_for_timeout(50)
    pytest.fail(f"{script} never came true; at {page.url}")


def test_filters_change_the_table_and_the_address(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/runs/1/units")
    everything = ids(page)
    assert len(everything) == 50
    page.select_option("[name=show]", "failed")
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 5")
    assert ids(page) == ["u05", "u18", "u31", "u44", "u57"]
    assert query(page)["show"] == "failed"
    assert "q" not in query(page), "only what was chosen is in the address"
    page.fill("[name=id]", "u1")
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 1")
    assert ids(page) == ["u18"]
    assert query(page) | {"show": "failed", "id": "u1"} == query(page)
    shared = page.url

    page.go_back()
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 5")
    assert page.input_value("[name=id]") == ""
    assert page.input_value("[name=show]") == "failed"
    page.go_back()
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 50")
    assert ids(page) == everything
    assert page.input_value("[name=show]") == "all"

    page.goto(shared)
    assert ids(page) == ["u18"]
    assert page.input_value("[name=id]") == "u1"
    assert page.input_value("[name=show]") == "failed"


def test_search_in_the_answers(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/runs/1/units")
    page.fill("[name=q]", "answer7")
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 1")
    assert ids(page) == ["u07"]
    assert query(page)["q"] == "answer7"
    page.fill("[name=q]", "nobody said this")
    page.get_by_text("No unit is like that").wait_for()
    page.get_by_role("link", name="Show all").click()
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 50")


def test_a_refusal_takes_the_place_of_the_table(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/runs/1/units")
    page.fill("[name=q]", "%%")
    page.get_by_text("Give a word to look for.").wait_for()
    assert not ids(page), "nothing else is shown under the new address"
    page.fill("[name=q]", "answer7")
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 1")
    assert all("400 (Bad Request)" in each for each in visitor.faults)
    visitor.faults.clear()


def test_another_task_has_its_own_scores(chromium: Any, tmp_path: Path) -> None:
    with Store.open(tmp_path / "x.sqlite") as store:
        run = store.begin_run("two tasks", "", {})
        arm = store.arm("a", "arm", {"subject": {"s": {}}})
        for label, names in (("sums", ("correct", "length")), ("texts", ("f1", "words"))):
            task = store.task(label, label, {}, [ScoreSpec(name) for name in names])
            numbers = store.add_units(task, [Unit(f"{label} {i}", f"What is {i}?") for i in "12"])
            store.cover(run, arm, task, arm_label="arm", task_label=label, units=2, builds=1,
                        repeats=1)  # fmt: skip
            said = Outcome("u", dict.fromkeys(names, 0.5), output="said")
            store.add(run, arm, task, 0, [(int(n), said) for n in numbers])
        store.end_run(run, "finished")
    server = Server(tmp_path / "x.sqlite").start()
    try:
        with visiting(chromium, server) as visitor:
            page = visitor.page
            visitor.go("/runs/1/units?score=length")
            page.select_option("[name=task]", "texts")
            settled(page, "document.querySelector('[name=score]').value === 'f1'")
            assert query(page) == {"task": "texts"}
            page.get_by_role("link", name="texts 1").wait_for()
            page.select_option("[name=score]", "words")
            settled(page, "location.search.includes('score=words')")
            assert query(page) == {"task": "texts", "score": "words", "show": "all"}
    finally:
        server.stop()


def test_sorting_is_in_the_address_and_survives_a_filter(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/runs/1/units")
    page.get_by_role("link", name="control").click()
    page.get_by_role("link", name="control").click()
    assert query(page) | {"sort": "control", "order": "down"} == query(page)
    first = ids(page)[:20]
    assert all(int(each[1:]) % 3 == 0 for each in first), "the scores of 1 come first"
    page.fill("[name=id]", "u1")
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 10")
    assert ids(page)[:3] == ["u12", "u15", "u18"]
    assert query(page)["sort"] == "control"


def test_trials_are_found_by_word_verdict_and_state(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/")
    rows = "document.querySelectorAll('table.runs tbody tr').length"
    settled(page, f"{rows} === 3")
    page.fill("[name=q]", "imported")
    settled(page, f"{rows} === 1")
    page.fill("[name=q]", "")
    settled(page, f"{rows} === 3")
    page.select_option("[name=verdict]", "supported")
    settled(page, f"{rows} === 1")
    assert query(page)["verdict"] == "supported"
    page.reload()
    assert page.input_value("[name=verdict]") == "supported"
    page.select_option("[name=verdict]", "")
    page.select_option("[name=status]", "running")
    settled(page, f"{rows} === 1 && location.search.includes('running')")
    page.locator("table.runs tbody a").click()
    page.wait_for_url("**/runs/2")


def test_catalogue_by_word_field_and_kind(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/catalogue")
    count = "document.querySelectorAll('#parts tbody tr').length"
    everything = page.evaluate(count)
    page.fill("[name=q]", "runtime smooth")
    settled(page, f"{count} < {everything}")
    assert page.locator("#parts").get_by_text("rotated_runtime_smooth", exact=True).is_visible()
    page.select_option("[name=kind]", "task")
    page.get_by_text("No part is like that").wait_for()
    assert query(page) == {"q": "runtime smooth", "kind": "task"}


def test_keys(visitor: Visitor) -> None:
    page = visitor.page
    focused = "document.activeElement.name || document.activeElement.textContent.trim()"
    visitor.go("/runs/1/units")
    page.keyboard.press("/")
    assert page.evaluate(focused) == "q"
    page.keyboard.type("jnpk/")
    assert page.input_value("[name=q]") == "jnpk/", "keys are letters where one writes"
    page.fill("[name=q]", "")
    page.keyboard.press("Escape")
    settled(page, "document.querySelectorAll('table.units tbody tr').length === 50")
    for key, row in (("j", "u00"), ("j", "u01"), ("j", "u02"), ("k", "u01"), ("k", "u00")):
        page.keyboard.press(key)
        assert page.evaluate(focused).startswith(row)
    page.keyboard.press("n")
    page.wait_for_url("**page=2**")
    assert ids(page)[0] == "u50"
    page.keyboard.press("p")
    page.wait_for_url(lambda address: "page=2" not in address)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/unit?**")
    page.keyboard.press("n")
    page.wait_for_url("**id=u01**")


def test_tab_goes_from_top_to_bottom_and_shows_where_it_is(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/runs/1/units")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    order = []
    for _ in range(25):
        page.keyboard.press("Tab")
        told = page.evaluate(
            """() => {
              const at = document.activeElement, place = at.getBoundingClientRect();
              const style = getComputedStyle(at);
              return [at.tagName, place.top + scrollY, place.left, style.outlineStyle,
                      parseFloat(style.outlineWidth)];
            }"""
        )
        order.append(told)
        assert told[3] != "none", told
        assert told[4] >= 2, told
    tops = [top for _, top, *_ in order]
    assert all(later >= before - 60 for before, later in itertools.pairwise(tops)), order
    visitor.go("/runs/1/units")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_the_systems_until_one_is_chosen(
    chromium: Any, site: Server, scheme: str
) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    paper = "getComputedStyle(document.body).backgroundColor"
    with visiting(chromium, site, color_scheme=scheme) as visitor:
        page = visitor.page
        system = page.evaluate(paper)
        assert (system == "rgb(247, 246, 242)") is (scheme == "light")
        page.get_by_role("button", name="Dark or light").click()
        chosen = page.evaluate(paper)
        assert chosen != system
        visitor.go("/runs/1")
        assert page.evaluate(paper) == chosen
        assert page.evaluate("document.documentElement.dataset.theme") == other
        page.get_by_role("button", name="Dark or light").click()
        assert page.evaluate(paper) == system


def test_charts_are_drawn_by_vega_in_the_theme(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/compare?runs=1")
    assert not any("vega" in each for each in visitor.asked), "fetched before it is wanted"
    page.get_by_text("As a chart with values to point at").click()
    chart = page.locator("[data-chart] canvas")
    chart.wait_for()
    corner = "canvas => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data].slice(0, 3)"
    assert chart.evaluate(corner) == [255, 255, 255]
    page.get_by_role("button", name="Dark or light").click()
    settled(page, f"({corner})(document.querySelector('[data-chart] canvas'))[0] < 40")
    box = page.locator("[data-chart] canvas").bounding_box()
    x, y = page.evaluate(_MARK)
    page.mouse.move(box["x"] + x - 4, box["y"] + y)
    page.mouse.move(box["x"] + x, box["y"] + y)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "mean" in tip.inner_text()


def test_a_figure_of_a_trial_is_drawn(visitor: Visitor) -> None:
    visitor.go("/runs/1#figures")
    visitor.page.locator("#figures").scroll_into_view_if_needed()
    visitor.page.locator("#figures canvas").wait_for()


def test_samples_come_when_they_are_reached(visitor: Visitor) -> None:
    visitor.go("/runs/1")
    assert not any(each.endswith("/samples") for each in visitor.asked)
    visitor.page.locator("#samples").scroll_into_view_if_needed()
    visitor.page.locator("#samples #distributions").wait_for()


def test_mathematics_code_and_pictures(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/catalogue/rotated_runtime_smooth")
    assert page.locator(".katex").count() > 3
    assert not page.locator(".katex-error").count()
    fonts = "[...document.fonts].filter(each => each.status === 'loaded').length"
    settled(page, f"{fonts} > 0")

    visitor.go(f"/runs/1/unit?id={quote(f'u08 {HOSTILE[8]}')}")
    block = page.locator("pre.code").first
    assert block.get_attribute("data-language") == "html"
    assert "<iframe" in block.inner_text()
    picture = page.locator(".exhibit img").first
    picture.scroll_into_view_if_needed()
    settled(page, "document.querySelector('.exhibit img').naturalWidth === 1")
    page.locator("summary", has_text="Conversation").first.click()
    shaded = page.locator(".shaded span[title]").first
    assert re.match(r"[\d.]+%, log-probability -[\d.]+", shaded.get_attribute("title"))


def test_words_that_differ_are_marked(visitor: Visitor) -> None:
    visitor.go(f"/runs/1/unit?id={quote(f'u00 {HOSTILE[0]}')}")
    first, second = visitor.page.locator(".answers article").all()
    assert not first.locator("ins").count()
    marked = "".join(second.locator("ins").all_inner_texts())
    assert "onerror" in marked
    assert "hacked" not in marked, "both say it"
    assert HOSTILE[1] in second.locator(".answer").inner_text()


def test_without_the_token_a_sentence_says_what_to_do(chromium: Any, site: Server) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{site.base}/runs/1")
    assert "equipoise view" in page.get_by_role("alert").inner_text()
    page.goto(f"{site.base}/runs/1?token={TOKEN}")
    assert page.url == f"{site.base}/runs/1", "the token leaves the address"
    context.close()
