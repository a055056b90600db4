"""NumPy-style docstrings to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SECTIONS = (
    "Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes", "References", "Examples",
)  # fmt: skip


@dataclass
class Docstring:
    """A docstring in parts.

    ``text`` is what stands before the first section, ``sections`` maps a
    section's name to its lines.
    """

    text: str
    sections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, doc: str) -> Docstring:
        """Split a docstring that `inspect.getdoc` has cleaned."""
        lines = doc.splitlines()
        starts = [
            i
            for i in range(len(lines) - 1)
            if lines[i] in SECTIONS and re.fullmatch(r"-{3,}", lines[i + 1])
        ]
        ends = [*starts[1:], len(lines)] if starts else []
        text = "\n".join(lines[: starts[0]] if starts else lines).strip()
        return cls(
            text,
            {
                lines[a]: "\n".join(lines[a + 2 : b]).strip("\n")
                for a, b in zip(starts, ends, strict=True)
            },
        )

    @property
    def summary(self) -> str:
        """The first paragraph in one line."""
        return " ".join(self.text.split("\n\n")[0].split())

    @property
    def rest(self) -> str:
        """What follows the first paragraph, as Markdown."""
        return markdown(self.text.partition("\n\n")[2])

    def items(self, section: str) -> dict[str, str]:
        """Return a section of definitions, such as Parameters; one name a key."""
        return {
            name: text
            for names, text in definitions(self.sections.get(section, ""))
            for name in (each.strip() for each in names.split(":")[0].split(","))
        }


def definitions(section: str) -> list[tuple[str, str]]:
    """Return (heads, description as Markdown) of each entry of a section."""
    found: list[tuple[str, list[str]]] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            found.append((line.strip(), []))
        elif found:
            found[-1][1].append(line[4:])
    return [(head, markdown("\n".join(lines))) for head, lines in found]


def markdown(text: str) -> str:
    """Turn the few things that docstrings write otherwise into Markdown."""
    text = re.sub(r"^\.\. math::((?: .*)?(?:\n|$)(?:\n| +.*(?:\n|$))*)", _math, text, flags=re.M)
    text = re.sub(r"^(=+(?: +=+)+)\n(.+)\n\1\n((?:.+\n)+?)\1$", _table, text, flags=re.M)
    text = re.sub(r"\$\$(.+?)\$\$([.,;]?)", _display, text, flags=re.S)
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(r"(?<!`)``(?!`)(.+?)(?<!`)``(?!`)", r"`\1`", text)
    return re.sub(r"\n{3,}", "\n\n", _fence(text)).strip()


def examples(section: str) -> str:
    """Return an Examples section as fenced sessions between prose."""
    return _fence(section)


def definition_list(rows: Iterable[tuple[str, str]]) -> str:
    """Return a Markdown list of definitions."""
    return "\n".join(f"- `{head}`" + (f": {flat(text)}" if text else "") for head, text in rows)


def flat(text: str) -> str:
    """Put a description on one line, for tables and lists."""
    return " ".join(text.split())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(flat(cell).replace("|", r"\|") for cell in line) + " |" for line in lines
    )


def _math(match: re.Match[str]) -> str:
    body = " ".join(match[1].split())
    return f"\n$$ {body} $$\n\n"


def _display(match: re.Match[str]) -> str:
    """Give a displayed equation a paragraph of its own, with the sign that ended it."""
    body = " ".join(match[1].split())
    return f"\n\n$$ {body}{match[2]} $$\n\n"


def _table(match: re.Match[str]) -> str:
    spans = [each.span() for each in re.finditer("=+", match[1])]
    ends = [start for start, _ in spans[1:]] + [10_000]

    def cells(line: str) -> list[str]:
        return [line[a:b].strip() for (a, _), b in zip(spans, ends, strict=True)]

    return table(cells(match[2]), map(cells, match[3].splitlines()))


def _fence(text: str) -> str:
    """Put sessions of the interpreter in fences."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            out += ["```pycon"] if not out or not out[-1] else ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            out.append("```")
            inside = False
        out.append(line)
    return "\n".join([*out, "```"] if inside else out)
