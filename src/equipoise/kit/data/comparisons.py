"""Comparisons of pairs from files: one a row, or scores of models that are then compared."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from equipoise.core import UsageError, nearest
from equipoise.kit.data.rows import kind_of, load
from equipoise.kit.data.source import Source
from equipoise.kit.statistics.comparisons import Comparisons

SIDES = (("model_a", "model_b"), ("left", "right"), ("first", "second"))
"""Names of the columns that say who met; the first of each is the one a score is for."""

PROMPTS = ("prompt", "question_id", "prompt_id", "question")

TIES = frozenset({"tie", "tie (bothbad)", "bothbad", "both_bad", "draw", "equal"})

MOST = 50_000_000
"""Comparisons at most; so many take about 2 GB."""


def read_comparisons(data: str, *, lower_is_better: bool = False) -> Comparisons:
    """Return comparisons of pairs from a file of one of three shapes, told by its columns.

    - One comparison a row: ``model_a``, ``model_b`` and ``winner`` (``model_a``, ``model_b``,
      ``tie``, ``tie (bothbad)``, or the name of one of the two), or ``score``, how it went for
      the first, from 0 to 1. Columns may also be named ``left`` and ``right``, or ``first`` and
      ``second``. Optional: ``prompt`` or ``question_id``; ``cluster``; ``weight``, how many such
      comparisons there were.
    - One score a row: ``model``, ``prompt`` and ``score``; optional: ``cluster``.
    - One model a row: ``model``, and a column a prompt; an empty cell is a missing score.

    Of scores, every two models are compared on every prompt that both have: the better wins,
    equal ones tie.

    Parameters
    ----------
    data
        As in `read_rows`.
    lower_is_better
        Whether the lower score of a prompt is the better one.

    Raises
    ------
    UsageError
        One sentence that names the file, the line and the fault.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "met.csv"
    >>> _ = path.write_text("model_a,model_b,winner\\nx,y,model_a\\ny,z,tie\\n")
    >>> met = read_comparisons(str(path))
    >>> met.models, met.score.tolist()
    (('x', 'y', 'z'), [1.0, 0.5])
    """
    source = load(data)
    names = dict.fromkeys(str(name) for row in source.rows for name in row)
    sides = next((each for each in SIDES if set(each) <= set(names)), None)
    if sides is not None:
        if lower_is_better:
            raise UsageError(f"{data}: says who won, so that no score can be the lower one.")
        return _pairs(source, sides, names)
    if "model" not in names:
        near = "".join(nearest(each, names) for each in ("model_a", "model"))
        raise UsageError(
            f"{data}: needs the columns model_a, model_b and winner or score; or model, prompt and"
            f" score; or model and a column a prompt. There are: {', '.join(list(names)[:20])}."
            f"{near}"
        )
    prompt = next((each for each in PROMPTS if each in names), None)
    if prompt is not None and "score" in names:
        scores = _long(source, prompt, names)
    else:
        scores = _wide(source, names)
    return _compared(data, *scores, -1.0 if lower_is_better else 1.0)


def _pairs(source: Source, sides: tuple[str, str], names: dict[str, None]) -> Comparisons:
    """Return comparisons from rows that are one each."""
    data = source.data
    how = [each for each in ("winner", "score") if each in names]
    if len(how) != 1:
        wrong = "has both winner and score; keep one" if how else "has no column winner or score"
        raise UsageError(f"{data}: {wrong}.")
    a, b = (_texts(source, each) for each in sides)
    for index, (one, other) in enumerate(zip(a, b, strict=True)):
        if one == other:
            raise UsageError(f'{source.at(index)}: "{one}" is compared with itself.')
    if how == ["winner"]:
        score = _each(source, "winner", _winner(source, sides))
    else:
        score = _each(source, "score", _share(source))
    times = np.ones(len(score), int)
    if "weight" in names:
        times = np.array(_each(source, "weight", _count(source)))
        if times.sum() > MOST:
            raise UsageError(f"{data}: weights add up to {times.sum():,}; at most {MOST:,} work.")
        if not times.any():
            raise UsageError(f"{data}: every weight is 0, so there is no comparison.")
    rows = np.repeat(np.arange(len(score)), times)
    models, met = np.unique([*a, *b], return_inverse=True)
    prompts: np.ndarray = np.array([], str)
    prompt = cluster = None
    column = next((each for each in PROMPTS if each in names), None)
    if column is not None:
        prompts, prompt = np.unique(_texts(source, column), return_inverse=True)
    if "cluster" in names:
        cluster = np.unique(_texts(source, "cluster"), return_inverse=True)[1]
    return Comparisons(
        tuple(models.tolist()),
        met[: len(a)][rows],
        met[len(a) :][rows],
        np.array(score)[rows],
        tuple(prompts.tolist()),
        None if prompt is None else prompt[rows],
        None if cluster is None else cluster[rows],
    )


def _winner(source: Source, sides: tuple[str, str]) -> Callable[[int, Any], float]:
    known = {**dict.fromkeys(TIES, 0.5)}
    for place, side in enumerate(sides):
        known |= {side: 1.0 - place, side.removeprefix("model_"): 1.0 - place}

    def read(index: int, value: Any) -> float:
        row, text = source.rows[index], str(value)
        for place, side in enumerate(sides):
            if text == str(row[side]):
                return 1.0 - place
        found = known.get(text.strip().lower())
        if found is None:
            raise UsageError(
                f'{source.at(index)}: winner is "{text[:60]}"; it must be {sides[0]}, {sides[1]},'
                " tie, tie (bothbad), or the name of one of the two."
            )
        return found

    return read


def _share(source: Source) -> Callable[[int, Any], float]:
    def read(index: int, value: Any) -> float:
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise UsageError(
                f"{source.at(index)}: score is {_shown(value)}; it must be from 0 (the first lost)"
                " to 1 (it won)."
            )
        return float(value)

    return read


def _count(source: Source) -> Callable[[int, Any], int]:
    def read(index: int, value: Any) -> int:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= MOST or value != int(value):
            raise UsageError(
                f"{source.at(index)}: weight is {_shown(value)}; it must be a whole number, how"
                " many such comparisons there were."
            )
        return int(value)

    return read


def _each(source: Source, column: str, read: Callable[[int, Any], Any]) -> list[Any]:
    """Return a column read cell by cell; an empty cell is refused."""
    found = []
    for index, row in enumerate(source.rows):
        value = row.get(column)
        if _empty(value):
            raise UsageError(f"{source.at(index)}: {column} is empty; every row needs one.")
        found.append(read(index, value))
    return found


def _texts(source: Source, column: str) -> list[str]:
    """Return a column as texts; conversations and other JSON are told apart by what they hold."""

    def read(index: int, value: Any) -> str:
        return json.dumps(value, sort_keys=True) if isinstance(value, (list, dict)) else str(value)

    return _each(source, column, read)


def _long(
    source: Source, prompt: str, names: dict[str, None]
) -> tuple[list[str], list[str], np.ndarray, np.ndarray | None]:
    """Return models, prompts, scores ``(models, prompts)`` and each prompt's cluster."""
    model, asked = _texts(source, "model"), _texts(source, prompt)
    models, prompts = (list(dict.fromkeys(each)) for each in (model, asked))
    rows = {name: place for place, name in enumerate(models)}
    columns = {name: place for place, name in enumerate(prompts)}
    scores = np.full((len(models), len(prompts)), np.nan)
    groups = _texts(source, "cluster") if "cluster" in names else None
    cluster: dict[str, str] = {}
    for index, (name, question) in enumerate(zip(model, asked, strict=True)):
        at = rows[name], columns[question]
        if not math.isnan(scores[at]):
            raise UsageError(
                f'{source.at(index)}: "{name}" has a second score for prompt "{question[:60]}";'
                " give each prompt one, such as the mean."
            )
        scores[at] = _score(source, index, "score")
        if groups is not None and cluster.setdefault(question, groups[index]) != groups[index]:
            raise UsageError(
                f'{source.at(index)}: prompt "{question[:60]}" is in cluster "{groups[index]}" and'
                f' was in "{cluster[question]}"; a prompt has one.'
            )
    codes = None
    if groups is not None:
        codes = np.unique([cluster[each] for each in prompts], return_inverse=True)[1]
    return models, prompts, scores, codes


def _wide(
    source: Source, names: dict[str, None]
) -> tuple[list[str], list[str], np.ndarray, np.ndarray | None]:
    models = _texts(source, "model")
    for index, name in enumerate(models):
        if models.index(name) < index:
            raise UsageError(f'{source.at(index)}: "{name}" has a second row; a model has one.')
    prompts = [each for each in names if each not in ("model", "id")]
    if not prompts:
        raise UsageError(f"{source.data}: has no column beside model; each prompt needs one.")
    scores = np.array(
        [
            [_score(source, index, each, missing=True) for each in prompts]
            for index in range(len(models))
        ]
    )
    return models, prompts, scores, None


def _score(source: Source, index: int, column: str, *, missing: bool = False) -> float:
    value = source.rows[index].get(column)
    if missing and _empty(value):
        return math.nan
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UsageError(f'{source.at(index)}: "{column}" is {_shown(value)}; scores are numbers.')
    return float(value)


def _compared(
    data: str,
    models: list[str],
    prompts: list[str],
    scores: np.ndarray,
    cluster: np.ndarray | None,
    sign: float,
) -> Comparisons:
    """Compare every two models on every prompt that both have a score for."""
    if len(models) < 2:
        raise UsageError(f'{data}: "{models[0]}" is the only model; at least two are needed.')
    there = ~np.isnan(scores)
    count = int((there.sum(axis=0) * (there.sum(axis=0) - 1) // 2).sum())
    if not count:
        raise UsageError(f"{data}: no two models have a score for the same prompt.")
    if count > MOST:
        raise UsageError(
            f"{data}: its scores make {count:,} comparisons; at most {MOST:,} work, so leave out"
            " models or prompts."
        )
    order = np.argsort(models)
    scores, there = sign * scores[order], there[order]
    first, second, won, prompt = [], [], [], []
    for i, j in itertools.combinations(range(len(models)), 2):
        both = np.flatnonzero(there[i] & there[j])
        first.append(np.full(len(both), i))
        second.append(np.full(len(both), j))
        won.append(0.5 + 0.5 * np.sign(scores[i, both] - scores[j, both]))
        prompt.append(both)
    place = np.concatenate(prompt)
    return Comparisons(
        tuple(models[each] for each in order),
        np.concatenate(first),
        np.concatenate(second),
        np.concatenate(won),
        tuple(prompts),
        place,
        None if cluster is None else cluster[place],
    )


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(value: Any) -> str:
    if isinstance(value, (int, float, str)):
        return f"{value}"[:60] or "empty"
    return kind_of(value)
