"""What tasks that put one question a row have in common: rows, columns, prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.core import Json, Message, Split, Task, Unit, UsageError, nearest, setting
from equipoise.kit.data import content_hash, read_rows, unit_id

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_SPLITS: dict[str, Split] = {
    "train": "train",
    "calibration": "calibration",
    "validation": "calibration",
    "dev": "calibration",
    "test": "test",
}


@dataclass(frozen=True)
class QuestionTask(Task):
    """A task over rows of data, each a question with a right answer.

    Parameters
    ----------
    data
        A path (``.jsonl``, ``.json``, ``.csv``, ``.parquet``),
        ``hf:NAME_OR_FOLDER`` or ``builtin:NAME``.
    rows
        The rows themselves, in place of ``data``.
    question, answer, context
        Columns; the context (a passage) is optional.
    id, cluster, stratum
        Columns; rows without an id are numbered.
    split
        ``train``, ``calibration`` or ``test`` for all rows, or the column that
        says it (``validation`` and ``dev`` count as calibration).
    template
        What is asked, with ``{question}``, ``{context}`` and any other column.
    system
        A system message, or text that goes before a plain prompt.
    chat
        Ask by a chat message; otherwise by plain text to be continued.
    """

    data: str | None = setting(None)
    rows: tuple[dict[str, Any], ...] = ()
    question: str = "question"
    answer: str = "answer"
    context: str | None = None
    id: str = "id"
    cluster: str | None = None
    stratum: str | None = None
    split: str = "test"
    template: str | None = None
    system: str = ""
    chat: bool = True

    def check(self) -> None:
        if (self.data is None) == (not self.rows):
            raise UsageError(
                f"{type(self).__name__}: give either data (a file, hf: or builtin:) or rows."
            )

    def content(self) -> Json:
        return None if self.data is None else content_hash(self.data)

    def read(self, columns: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], Unit]]:
        """Yield each row and its unit, whose content holds the columns that are asked."""
        if self.split not in _SPLITS:
            columns = [*columns, self.split]
        wanted = [c for c in (*columns, self.cluster, self.stratum) if c is not None]
        shown = {"question": self.question}
        if self.context is not None:
            shown["context"] = self.context
        needed = dict.fromkeys([*shown.values(), *wanted])
        seen: set[str] = set()
        for index, row in enumerate(self._rows(list(needed))):
            name = unit_id({"id": row.get(self.id)}, index)
            if name in seen:
                raise self.wrong(index, f'the id "{name}" is already that of another row')
            seen.add(name)
            asked = {key: row[column] for key, column in shown.items()}
            asked |= {
                place: self._column(row, place, index)
                for place in self.places()
                if place not in asked and place not in self.made()
            }
            yield (
                row,
                Unit(
                    name,
                    content=asked,
                    cluster=None if self.cluster is None else str(row[self.cluster]),
                    stratum=None if self.stratum is None else str(row[self.stratum]),
                    split=self._split(row, index),
                ),
            )

    def made(self) -> tuple[str, ...]:
        """Return the places of a template that the task fills in itself."""
        return ()

    def places(self) -> list[str]:
        """Return the names in the template."""
        return list(dict.fromkeys(_PLACE.findall(self.layout())))

    def layout(self) -> str:
        """Return the template in use."""
        if self.template is not None:
            return self.template
        context = "" if self.context is None else "{context}\n\n" if self.chat else "{context}\n"
        return context + ("{question}" if self.chat else "Question: {question}\nAnswer:")

    def text(self, content: Mapping[str, Any]) -> str:
        """Return the template filled in."""
        return _PLACE.sub(lambda place: str(content[place.group(1)]), self.layout())

    def prompt(self, content: Mapping[str, Any]) -> str | list[Message]:
        """Return what a subject is asked."""
        text = self.text(content)
        if not self.chat:
            return f"{self.system}\n\n{text}" if self.system else text
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": text}]

    def wrong(self, index: int, fault: str) -> UsageError:
        """Return the error about a row."""
        place = self.data or "rows"
        return UsageError(f"{type(self).__name__}: {place}, row {index + 1}: {fault}.")

    def _rows(self, columns: list[str]) -> Sequence[Mapping[str, Any]]:
        if self.data is not None:
            return read_rows(self.data, columns=columns)
        for index, row in enumerate(self.rows):
            for column in columns:
                self._column(row, column, index)
        return self.rows

    def _column(self, row: Mapping[str, Any], column: str, index: int) -> Any:
        if row.get(column) is None:
            there = ", ".join(map(str, row))
            near = nearest(column, map(str, row))
            fault = f'there is no column "{column}".{near} There are: {there}'
            raise self.wrong(index, fault)
        return row[column]

    def _split(self, row: Mapping[str, Any], index: int) -> Split:
        found = self.split if self.split in _SPLITS else str(row[self.split])
        if found not in _SPLITS:
            known = ", ".join(_SPLITS)
            raise self.wrong(index, f'{self.split} must be one of {known}, got "{found}"')
        return _SPLITS[found]
