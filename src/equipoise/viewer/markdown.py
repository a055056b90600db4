"""Docstrings' Markdown to HTML; raw HTML in it is shown as text, equations are left to KaTeX."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# Code comes first, so that a dollar in it is no equation.
_MATH = re.compile(r"(```.*?```|`[^`\n]*`)|\$\$(.+?)\$\$|\$(?=\S)([^$\n]+?)(?<=\S)\$", re.DOTALL)
_MARK = "\ue000{}\ue001"


def as_html(text: str) -> Markup:
    r"""Return Markdown as HTML.

    Examples
    --------
    >>> as_html("Of `x_1` and $x_1 < 2$.")
    Markup('<p>Of <code>x_1</code> and <span class="math">\\(x_1 &lt; 2\\)</span>.</p>\n')
    """
    equations: list[Markup] = []

    def keep(found: re.Match[str]) -> str:
        code, shown, inline = found.groups()
        if code is not None:
            return str(code)
        ends = (r"\[", r"\]") if shown else (r"\(", r"\)")
        span = Markup('<span class="math">{}{}{}</span>')
        equations.append(span.format(ends[0], (shown or inline).strip(), ends[1]))
        return _MARK.format(len(equations) - 1)

    html = str(_parser().render(_MATH.sub(keep, text)))
    html = html.replace("<pre>", '<pre tabindex="0">')  # keys can scroll it
    for place, equation in enumerate(equations):
        html = html.replace(_MARK.format(place), str(equation))
    return Markup(html)  # noqa: S704 - the parser escapes what it is given


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
