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
                for page in sorted(folder.glob("*.md"), key=lambda each: each.read_text().lower())
            ]
        }
        for folder in folders
    ]


def on_page_content(content: str, **_: Any) -> str:
    """Render the equations that arithmatex has marked."""
    return _MATH.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    return convert(html.unescape(match[2]).strip(), display=display)
