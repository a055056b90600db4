"""Markdown: a real parser must find the tables and the text, and nothing else."""

import re
from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from equipoise.kit.worlds.coins import Tosses
from equipoise.report import markdown, words
from equipoise.report._text import clip, visible

TAGS = {"h3", "p", "strong", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "details",
        "summary"}  # fmt: skip


class Parsed(HTMLParser):
    """What a reader sees: tags, and the text of table cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells = set(), []
        rendered = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
        self.feed(rendered.render(text))

    def handle_starttag(self, tag, attrs):
        assert not attrs or tag in ("th", "td")
        self.tags.add(tag)
        if tag in ("th", "td"):
            self.cells.append("")
        self.inside = tag

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def text_of(row, tmp_path):
    path = tmp_path / "new" / "report.md"
    markdown.write(row, path)
    return path.read_text(encoding="utf-8")


def test_verdicts_come_first_then_the_numbers(case, tmp_path, coins):
    row = case(coins()).row
    text = text_of(row, tmp_path)
    found = Parsed(text)
    found.cells = [cell.strip() for cell in found.cells]
    assert found.tags <= TAGS
    assert text.startswith("### equipoise: coins\n\n> **Question:** Is it fair?\n\n**✗ ")
    for claim in row["claims"]:
        assert claim["claim"] in found.cells
        assert words.evidence(claim) in found.cells
    for each in (*row["estimates"], *row["effects"]):
        assert words.number(each["value"]) in found.cells
        assert any(words.interval(each) in cell for cell in found.cells)
    assert text.count("<details>") == text.count("</details>") == 2


@example("a | b \\| c `|` *d* [e](f) <g> ~~h~~ @i #1 http://j www.k :tada: $l$")
@given(st.text(st.characters(), max_size=60))
def test_any_text_is_shown_as_it_is(text):
    wanted = " ".join(visible(text).split())
    table = markdown._table(("a", "b"), [(markdown.plain(text), "end")])
    found = Parsed(table)
    assert found.tags <= TAGS
    assert len(found.cells) == 4
    assert found.cells[2].strip().replace("\u200b", "") == wanted


def test_hostile_text_makes_no_markup_in_any_place(case, tmp_path, hostile_text, coins):
    text = hostile_text
    row = case(coins(tasks={"toss": Tosses(20)})).row
    claims = [claim | {"claim": text, "reason": text} for claim in row["claims"]]
    rows = [each | {"arm": text, "task": text, "name": text, "unit": text}
            for each in row["estimates"]]  # fmt: skip
    places = dict.fromkeys(("trial", "question", "differs", "control", "paper"), text)
    poisoned = row | places | {"claims": claims, "estimates": rows, "notices": [text]}
    found = Parsed(text_of(poisoned, tmp_path))
    assert found.tags <= TAGS
    shown = " ".join(clip(visible(text), 2_000).split())
    assert any(shown in cell.replace("\u200b", "") for cell in found.cells)


def test_nobody_is_called_and_nothing_is_linked(case, tmp_path, hostile):
    text = text_of(case(hostile()).row | {"control": "@me #1 <b>"}, tmp_path)
    assert "Effects against @&#8203;me #&#8203;1 &lt;b&gt;</summary>" in text
    assert not re.search(r"(?<![\\&])[@#]\w", text.replace("### ", ""))
    assert "www." not in markdown.plain("www.evil.example")
    assert "http:" not in markdown.plain("http://evil.example")


def test_a_long_table_is_cut_to_what_a_comment_holds(case, tmp_path, coins):
    row = case(coins(tasks={"toss": Tosses(20)})).row
    text = text_of(row | {"estimates": row["estimates"] * 200}, tmp_path)
    assert "400 more are in the HTML report" in text
    assert len(text) < 65_536


def test_missing_pieces_are_left_out(tmp_path):
    row = {"trial": "t", "claims": [], "estimates": [], "effects": [], "units": 0, "errors": 0,
           "seconds": 0.0}  # fmt: skip
    assert "|" not in text_of(row, tmp_path)
