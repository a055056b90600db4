"""Docstrings become HTML without letting any HTML in."""

from __future__ import annotations

import re

import pytest

from equipoise.viewer.markdown import as_html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Costs $5 and $6.", "<p>Costs $5 and $6.</p>\n"),
        ("`$x$` is code", "<p><code>$x$</code> is code</p>\n"),
        ("$x$", '<p><span class="math">\\(x\\)</span></p>\n'),
        ("$$a < b$$", '<p><span class="math">\\[a &lt; b\\]</span></p>\n'),
        ("a $x_1$ b *c* $y_2$", '<p>a <span class="math">\\(x_1\\)</span> b <em>c</em> '
         '<span class="math">\\(y_2\\)</span></p>\n'),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>\n"),
        ("$</b><script>$", '<p><span class="math">\\(&lt;/b&gt;&lt;script&gt;\\)</span></p>\n'),
        ("", ""),
    ],
)  # fmt: skip
def test_small_pieces(text: str, html: str) -> None:
    assert as_html(text) == html


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:alert(1))", "![x](https://example.org/x.png)", "<img src=x onerror=y>",
        "[x](data:text/html,<script>)", "<https://a.example/\"onclick='x'>",
        "```html\n<script>\n```",
        "| a |\n|---|\n| <i> |", "$$\n\\href{javascript:x}{y}\n$$", "\ue0000\ue001 $x$",
    ],
)  # fmt: skip
def test_nothing_dangerous_gets_through(text: str) -> None:
    html = as_html(text)
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {"p", "a", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert not re.search(r'href="(?!https:)', html)
    assert not re.search(r"<[^>]*\son\w+=", html)


def test_many_equations_keep_their_places() -> None:
    html = as_html(" ".join(f"$x_{{{i}}}$" for i in range(30)))
    assert [int(n) for n in re.findall(r"x_\{(\d+)\}", html)] == list(range(30))
