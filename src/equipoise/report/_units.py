"""What a page needs from the store: distributions, disagreements, errors.

Everything is read task by task and reduced at once, so that a million
outcomes cost the memory of one task's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from equipoise.core import Outcomes, ScoreSpec, UsageError
from equipoise.report import charts
from equipoise.report._diff import marked
from equipoise.report._text import as_text, clip, one_line
from equipoise.report.words import number
from equipoise.store import Store
from equipoise.trial.compare import fill, pair

EACH = 10
"""Disagreements shown for a pair of arms."""

IN_ALL = 120
"""Disagreements shown on a page; more pairs get fewer each."""

PAIRS = 40
ASKED, ANSWER, RIGHT, LABEL, FILE = 1_500, 1_500, 400, 200, 40_000  # characters shown
ERRORS_READ = 400
EXAMPLES = 2


@dataclass
class Found:
    """What was read for a page."""

    distributions: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    pairs_left: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    file: str = ""


def gather(row: Mapping[str, Any], store: Store) -> Found:
    """Read what a result's page shows of its units; nothing when the run is not in the store."""
    found = Found()
    if row.get("run") is None:
        return found
    try:
        run = store.run(int(row["run"]))
    except UsageError:
        return found
    found.file = clip(run["file"], FILE)
    wanted = _pairs(row)
    found.pairs_left = max(0, len(wanted) - PAIRS)
    wanted = wanted[:PAIRS]
    each = max(2, min(EACH, IN_ALL // max(1, len(wanted))))
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in run["covers"]:
        cells.setdefault(cell["task_label"], {})[cell["arm_label"]] = cell
    for task, arms in cells.items():
        here = [pair for pair in wanted if pair[2] == task and {pair[0], pair[1]} <= arms.keys()]
        _task(row, store, run["id"], task, arms, here, each, found)
    return found


def _pairs(row: Mapping[str, Any]) -> list[tuple[str, str, str, str | None]]:
    """Return (compared with, arm, task, score) of the claims, or of every arm with the control."""
    claims = [
        (claim["other"], claim["arm"], claim["on"], claim.get("score"))
        for claim in row.get("claims", ())
        if isinstance(claim.get("other"), str)
    ]
    if not claims:
        claims = [
            (effect["versus"], effect["arm"], effect["task"], effect["name"])
            for effect in row.get("effects", ())
            if effect.get("versus")
        ]
    return list(dict.fromkeys(claims))


def _task(
    row: Mapping[str, Any],
    store: Store,
    run: int,
    task: str,
    arms: Mapping[str, dict[str, Any]],
    pairs: Sequence[tuple[str, str, str, str | None]],
    each: int,
    found: Found,
) -> None:
    estimates = [e for e in row.get("estimates", ()) if e["task"] == task]
    scores = [spec.name for spec in store.specs(next(iter(arms.values()))["task"])]
    # What stands first may be a measure, such as a debiased mean: its samples are the first score.
    main = next((e["name"] for e in estimates if e["name"] in scores), scores[0])
    claimed = [c["score"] for c in row.get("claims", ()) if c["on"] == task and c.get("score")]
    names = list(dict.fromkeys([main, *claimed]))
    columns = {
        arm: store.outcomes(
            cell["arm"],
            cell["task"],
            units=cell["units"],
            builds=cell["builds"],
            repeats=cell["repeats"],
            score_names=names,
        )
        for arm, cell in arms.items()
    }
    columns = {arm: outcomes for arm, outcomes in columns.items() if len(outcomes)}
    if not columns:
        return
    found.distributions += [_distribution(task, name, columns, estimates) for name in names]
    for versus, arm, _, score in pairs:
        name = score if score in scores else main
        if versus in columns and arm in columns:
            shown = _disagreements(store, task, arms, columns, (versus, arm), name, each)
            found.pairs.append(shown)
    for arm, outcomes in columns.items():
        if failed := int(outcomes.failed.sum()):
            found.errors += _errors(store, run, arms[arm], len(outcomes), failed)


def _distribution(
    task: str,
    name: str,
    columns: Mapping[str, Outcomes],
    estimates: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    spec = next(iter(columns.values())).spec(name)
    values = {arm: each.scores.get(name, np.full(len(each), np.nan)) for arm, each in
              columns.items()}  # fmt: skip
    binary = spec.binary and all(
        np.isin(each[np.isfinite(each)], (0, 1)).all() for each in values.values()
    )
    means = {each["arm"]: each for each in estimates if each["name"] == name}
    found = {"task": task, "name": name, "spec": spec, "binary": binary}
    if binary:
        rows = [_share(arm, values[arm], columns[arm], spec) for arm in columns]
        return found | {"rows": rows, "axis": None}
    edges = charts.bin_edges(list(values.values()), spec.low, spec.high)
    scale = charts.Scale.over([float(edges[0]), float(edges[-1])])
    bins = {arm: charts.count(each, edges) for arm, each in values.items()}
    top = max(int(each.counts.max(initial=0)) for each in bins.values())
    rows = [_histogram(arm, values[arm], columns[arm], bins[arm], top, scale, means.get(arm))
            for arm in columns]  # fmt: skip
    return found | {
        "rows": rows,
        "axis": charts.axis(scale, right=spec.unit or name),
        "means": bool(means),
    }


def _share(arm: str, values: np.ndarray, outcomes: Outcomes, spec: ScoreSpec) -> dict[str, Any]:
    failed = int(outcomes.failed.sum())
    seen = values[np.isfinite(values) & ~outcomes.failed]
    ones, zeros = int((seen == 1).sum()), int((seen == 0).sum())
    good, bad = (zeros, ones) if spec.higher_is_better is False else (ones, zeros)
    total = ones + zeros + failed
    said = ", ".join(
        f"{n:,} {what} ({n / total:.1%})"
        for n, what in ((ones, "scored 1"), (zeros, "scored 0"), (failed, "failed"))
        if n or (what != "failed" and total)
    )
    chart = charts.shares([(good, "yes"), (bad, "no"), (failed, "failed")], f"{arm}: {said}")
    return {"arm": arm, "chart": chart, "text": said}


def _histogram(
    arm: str,
    values: np.ndarray,
    outcomes: Outcomes,
    bins: charts.Bins,
    top: int,
    scale: charts.Scale,
    mean: Mapping[str, Any] | None,
) -> dict[str, Any]:
    seen = values[np.isfinite(values)]
    failed = int(outcomes.failed.sum())
    parts = [f"{len(seen):,} scores"]
    if len(seen):
        middle = np.quantile(seen, [0.25, 0.5, 0.75])
        parts.append(f"median {number(middle[1])}")
        parts.append(f"middle half {number(middle[0])} to {number(middle[2])}")
    outside = [f"{n:,} {side}" for n, side in ((bins.below, "below"), (bins.above, "above")) if n]
    if outside:
        parts.append(f"{' and '.join(outside)} the part shown")
    if failed:
        parts.append(f"{failed:,} failed")
    said = ", ".join(parts)
    chart = charts.histogram(bins, top, scale, mean, f"{arm}: {said}")
    return {"arm": arm, "chart": chart, "text": said}


def _disagreements(
    store: Store,
    task: str,
    arms: Mapping[str, dict[str, Any]],
    columns: Mapping[str, Outcomes],
    names: tuple[str, str],
    score: str,
    each: int,
) -> dict[str, Any]:
    versus, arm = names
    a, b = pair(columns[versus], columns[arm])
    spec = a.spec(score)
    sign = -1 if spec.higher_is_better is False else 1
    gap = sign * _unit_means(fill(b, score, "worst")[0] - fill(a, score, "worst")[0], a.unit)
    cells = arms[versus], arms[arm]
    size = {name: cells[0][name] for name in ("units", "repeats")}
    rows = store.disagreements(
        cells[0]["arm"], cells[1]["arm"], cells[0]["task"], score, limit=each, **size
    )
    return {
        "versus": versus,
        "arm": arm,
        "task": task,
        "score": score,
        "directed": spec.higher_is_better is not None,
        "better": int((gap > 1e-12).sum()),
        "worse": int((gap < -1e-12).sum()),
        "same": int((np.abs(gap) <= 1e-12).sum()),
        "units": [_unit(shown, spec) for shown in rows[:each]],
    }


def _unit_means(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    kept = np.isfinite(values)
    _, where = np.unique(units[kept], return_inverse=True)
    counts = np.bincount(where)
    return np.bincount(where, values[kept]) / counts if len(counts) else np.empty(0)


def _unit(row: Mapping[str, Any], spec: ScoreSpec) -> dict[str, Any]:
    score = spec.name
    gain = 0.0 if spec.higher_is_better is None else row["difference"]
    gain = -gain if spec.higher_is_better is False else gain
    asked = as_text(row["content"])
    texts = [_answer(row[side]) for side in ("a", "b")]
    sides = [
        {
            "score": row[side]["scores"].get(score),
            "scores": {k: v for k, v in row[side]["scores"].items() if k != score},
            "status": row[side]["status"],
            "answer": answer,
            "empty": not text,
        }
        for side, answer, text in zip(("a", "b"), marked(*texts), texts, strict=True)
    ]
    return {
        "unit": clip(row["unit"], LABEL),
        "tone": "good" if gain > 0 else "bad" if gain < 0 else "",
        "sign": "▲" if gain > 0 else "▼" if gain < 0 else "",
        "said": "better" if gain > 0 else "worse",
        "stratum": clip(row["stratum"] or "", LABEL),
        "cluster": clip(row["cluster"] or "", LABEL),
        "build": row["build"],
        "repeat": row["repeat"],
        "short": one_line(asked, 110),
        "asked": clip(asked, ASKED),
        "right": clip(as_text(row.get("target")), RIGHT),
        "sides": sides,
    }


def _answer(side: Mapping[str, Any]) -> str:
    if side["status"] == "error":
        return clip(f"{side['error_kind'] or 'error'}: {side['error'] or ''}".rstrip(": "), ANSWER)
    return clip(as_text(side["output"]), ANSWER)


def _errors(
    store: Store, run: int, cell: Mapping[str, Any], outcomes: int, failed: int
) -> list[dict[str, Any]]:
    rows = store.rows(
        run, arm=cell["arm"], task=cell["task"], where={"status": "error"}, limit=ERRORS_READ
    )
    rows = [row for row in rows if row["arm"] == cell["arm_label"]]
    kinds = Counter(row["error_kind"] or "error" for row in rows)
    found = []
    for kind, n in kinds.most_common():
        same = [row for row in rows if (row["error_kind"] or "error") == kind]
        examples = {row["error"] or "": row["unit"] for row in reversed(same)}
        found.append(
            {
                "arm": cell["arm_label"],
                "task": cell["task_label"],
                "kind": kind,
                "n": n,
                "outcomes": outcomes,
                # More failed than were read: what is counted is a part.
                "part": f"of the first {len(rows):,} of {failed:,}" if len(rows) < failed else "",
                "examples": [
                    {"text": clip(text, RIGHT), "unit": clip(unit, LABEL)}
                    for text, unit in list(reversed(examples.items()))[:EXAMPLES]
                ],
            }
        )
    return found
