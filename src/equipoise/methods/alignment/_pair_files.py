"""Pairs of responses from files: RewardBench's stored scores, or a table of one's own."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from typing import Any

from equipoise.core import Unit, UsageError, nearest
from equipoise.kit.data import split_of
from equipoise.kit.data.formats import text_of
from equipoise.kit.data.rows import load
from equipoise.kit.data.source import existing, one_line, scheme
from equipoise.kit.language.canned import message_text

_SIDES = ("chosen", "rejected")
_LISTS = ("scores_chosen", "scores_rejected")
_LAYOUT = (
    "RewardBench's eval-set-scores has parallel lists scores_chosen, scores_rejected and subset"
)


@functools.lru_cache(maxsize=4)
def pair_units(data: str, calibration: float, version: str) -> tuple[Unit, ...]:
    """Return a unit a pair; ``version`` says when the file is another one.

    The content is ``prompt`` and, for ``chosen`` and ``rejected``, ``text`` and numbers by name;
    what is not known is left out.
    """
    rows, places = _rows(data)
    found = []
    for index, row in enumerate(rows):
        sides = {side: _side(row, side, places[index]) for side in _SIDES}
        for name in set(sides["chosen"]) ^ set(sides["rejected"]):
            raise UsageError(
                f'{places[index]}: "{name}" is there for one of the two responses; a pair needs'
                f" {name}_chosen and {name}_rejected."
            )
        if not sides["chosen"]:
            raise UsageError(
                f"{data}: there are no columns of pairs; name them score_chosen and score_rejected,"
                " text_chosen and text_rejected, and so on."
            )
        key = str(row["id"]) if row.get("id") is not None else f"pair-{index:06d}"
        content: dict[str, Any] = dict(sides)
        if row.get("prompt") is not None:
            content["prompt"] = str(row["prompt"])
        found.append(
            Unit(
                key,
                content=content,
                stratum=_label(row.get("subset")),
                cluster=_label(row.get("cluster")),
                split=split_of(key, train=0.0, calibration=calibration),
            )
        )
    return tuple(found)


def _rows(data: str) -> tuple[Sequence[dict[str, Any]], Sequence[str]]:
    kind, _ = scheme(data)
    if kind == "file" and data.lower().removesuffix(".gz").endswith(".json"):
        text = text_of(data, existing(data))
        if text.lstrip().startswith("{"):
            return _reward_bench(data, text)
    source = load(data)
    return source.rows, [source.at(index) for index in range(len(source.rows))]


def _reward_bench(data: str, text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of parallel lists; ids are left out, since subsets may share them."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{data}: is not JSON ({one_line(error)}).") from error
    lists = {
        name: list(each.values()) if isinstance(each, dict) else each
        for name, each in found.items()
        if isinstance(each, (list, dict))
    }
    lacking = [name for name in _LISTS if name not in lists]
    if lacking:
        hint = nearest(lacking[0], found)
        raise UsageError(f"{data}: there is no list {' nor '.join(lacking)}; {_LAYOUT}.{hint}")
    count = len(lists["scores_chosen"])
    if not count:
        raise UsageError(f"{data}: scores_chosen is empty; at least one pair is needed.")
    for name, each in lists.items():
        if len(each) != count:
            raise UsageError(
                f"{data}: {name} has {len(each)} entries and scores_chosen {count}; {_LAYOUT}."
            )
    wanted = {"scores_chosen": "score_chosen", "scores_rejected": "score_rejected"}
    kept = [*_LISTS, "subset", "prompt", "text_chosen", "text_rejected"]
    rows = [
        {wanted.get(name, name): _single(lists[name][i]) for name in kept if name in lists}
        for i in range(count)
    ]
    return rows, [f"{data}, pair {i + 1}" for i in range(count)]


def _single(value: Any) -> Any:
    """Return the entry of a list of one, as some scorers store their scores."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _side(row: dict[str, Any], side: str, place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column, value in row.items():
        if not column.endswith(f"_{side}"):
            continue
        name = column.removesuffix(f"_{side}")
        if name == "text":
            found[name] = _text(value, place, column)
        else:
            found[name] = _number(value, place, column)
    return found


def _text(value: Any, place: str, column: str) -> str:
    """Return a text; of a conversation, the last message."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return message_text(value[-1])
    if value is None or isinstance(value, (str, int, float)):
        return "" if value is None else str(value)
    raise UsageError(f'{place}: "{column}" must be text, got {str(value)[:40]!r}.')


def _number(value: Any, place: str, column: str) -> float | None:
    """Return a number, None for an empty cell."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f'{place}: "{column}" must be a number, got {str(value)[:40]!r}.')
    return None if math.isnan(value) else float(value)


def _label(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
