"""Hooks of mkdocs: equations become MathML, and the catalogue enters the navigation.

MathML needs no script and no font file, so that pages work offline as they are.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

_MATH = re.compile(
    r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.+?)(?:\\\)|\\\])</\1>', flags=re.S
)

_THIN = '<mspace width="0.17em"/>'
_NAMED = re.compile(
    r"(?<!<msub>)(?<!<msup>)(?<!<mover>)(?<!<munder>)(<mi>(?:log|exp|ln|min|max)</mi>)"
    r"(?!</)(<m[a-z]+[^>]*>(?:&#x[0-9A-F]+;)?)"
)


def on_config(config: Any) -> Any:
    """Put a section for each field's cards behind the catalogue's index."""
    docs = Path(config["docs_dir"])
    for entry in config["nav"]:
        if isinstance(entry, dict) and "Catalogue" in entry:
            entry["Catalogue"] = ["catalogue/index.md", *_fields(docs)]
    return config


def _fields(docs: Path) -> list[dict[str, list[str]]]:
    folders = sorted(each for each in (docs / "catalogue").iterdir() if each.is_dir())
    return [
        {
            folder.name.replace("_", " ").capitalize(): [
                page.relative_to(docs).as_posix()
                for page in sorted(folder.glob("*.md"), key=_order)
            ]
        }
        for folder in folders
    ]


def _order(page: Path) -> tuple[bool, str]:
    """Order pages by title, the field's plain functions last."""
    return page.name == "functions.md", page.read_text(encoding="utf-8").lower()


def on_page_content(content: str, **_: Any) -> str:
    """Render the equations that arithmatex has marked."""
    return _MATH.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    found = convert(html.unescape(match[2]).strip(), display=display)
    return _NAMED.sub(_spaced, found)


def _spaced(match: re.Match[str]) -> str:
    """Set a named function apart from what it stands beside, as TeX does."""
    after = "" if match[2].startswith('<mo stretchy="false">&#x00028;') else _THIN
    return f"{_THIN}{match[1]}{after}{match[2]}"
