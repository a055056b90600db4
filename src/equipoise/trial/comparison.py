"""Two runs, one answer: paired effects on everything two sides share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from equipoise.core import Rng, UsageError, nearest
from equipoise.kit.statistics.corrections import benjamini_hochberg, holm
from equipoise.store import Store
from equipoise.trial._joining import agreed, join
from equipoise.trial.compare import describe
from equipoise.trial.contrast import Contrast, macro, outlook, row_of
from equipoise.trial.result import EXIT_CODES, ClaimResult, Row, Verdict
from equipoise.trial.sides import Side
from equipoise.trial.trial import Claim
from equipoise.trial.verdict import claim_level, judge

Correction = Literal["holm", "bh", "none"]
OVERALL = "overall"


@dataclass
class Comparison:
    """What became of comparing two sides.

    Parameters
    ----------
    names
        Of the sides.
    level
        Coverage of the intervals.
    correct
        Whether and how p-values are corrected over tasks, scores and arms.
    contrasts
        In the order of ``rows``.
    rows
        One an arm, task and score, as plain JSON.
    overall
        One an arm and score that several tasks have: the mean over tasks, each counting once.
    claims
        Verdicts on what was claimed.
    notices
        Sentences on what could not be compared as one might think.
    """

    names: tuple[str, str]
    level: float
    correct: Correction
    contrasts: Sequence[Contrast]
    rows: list[dict[str, Any]]
    overall: list[dict[str, Any]]
    claims: list[ClaimResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict | None:
        """Refuted if any claim is, else inconclusive if any is, else supported."""
        found = {each.verdict for each in self.claims}
        order: tuple[Verdict, ...] = ("refuted", "inconclusive", "supported")
        return next((each for each in order if each in found), None)

    @property
    def exit_code(self) -> int:
        """0 without a claim, else what `run` returns for its verdict."""
        return EXIT_CODES[self.verdict] if self.verdict else 0

    @property
    def worse(self) -> list[dict[str, Any]]:
        """Rows on which the second side is worse, after correction."""
        return [row for row in [*self.overall, *self.rows] if row["says"] == "worse"]

    def flips(self, most: int) -> list[dict[str, Any]]:
        """Return the units of the first score that changed most, as many up as down.

        Each has both scores and, where the outcomes tell, both outputs.
        """
        score = self.contrasts[0].score if self.contrasts else None
        found: list[tuple[float, int, int, float, float]] = []
        for index, each in enumerate(self.contrasts):
            if each.score == score:
                units, x, y, d = each.differences
                for way in (1, -1):
                    rows = np.flatnonzero(way * d > 0)
                    rows = rows[np.argsort(-way * d[rows], kind="stable")[:most]]
                    found += [(d[i], index, units[i], x[i], y[i]) for i in rows.tolist()]
        up = sorted((each for each in found if each[0] > 0), key=lambda each: -each[0])[:most]
        down = sorted((each for each in found if each[0] < 0), key=lambda each: each[0])[:most]
        return [self._flip(*each) for each in (*up, *down)]

    def _flip(self, d: float, index: int, unit: int, x: float, y: float) -> dict[str, Any]:
        contrast = self.contrasts[index]
        (name,) = contrast.joined.ids(np.array([unit]))
        rows = [cell.answer(name) for cell in contrast.sides]
        shown = {
            key: next((row[key] for row in rows if row.get(key) is not None), None)
            for key in ("content", "target")
        }
        sides = [
            {"score": score, "output": row["output"], "error": row.get("error")}
            for score, row in zip((x, y), rows, strict=True)
        ]
        return {
            "arm": contrast.arm, "versus": contrast.versus, "task": contrast.task, "unit": name,
            "difference": float(d), **shown, "first": sides[0], "second": sides[1],
        }  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the JSON contract of ``compare --json``."""
        found = {
            "first": self.names[0],
            "second": self.names[1],
            "level": self.level,
            "correct": self.correct,
            "overall": self.overall,
            "comparisons": self.rows,
            "claims": [claim.as_json() for claim in self.claims],
            "verdict": self.verdict,
            "notices": self.notices,
        }
        return {name: value for name, value in found.items() if value is not None}


def compare(
    first: Side,
    second: Side,
    *,
    arm: str | None = None,
    other: str | None = None,
    score: str | None = None,
    level: float = 0.95,
    correct: Correction = "holm",
) -> Comparison:
    """Return how much better the second side is than the first on each task and score they share.

    Parameters
    ----------
    first, second
        Runs or files; the same one twice compares its arms with its first.
    arm, other
        Label of one arm of the first and of the second; needed where a
        side has several and the labels do not match.
    score
        Name of the one score to compare; None for all.
    level
        Coverage of each interval.
    correct
        ``holm`` bounds the chance of any false finding, ``bh`` (Benjamini and
        Hochberg) the expected share of false ones among the findings.

    Raises
    ------
    UsageError
        If the sides share no task or unit, or an arm has to be named.
    """
    notices = dict.fromkeys([*first.notices, *second.notices])
    contrasts: list[Contrast] = []
    pairs = _pairs(first, second, arm, other)
    for one, two in pairs:
        contrasts += _contrasts(first, second, one, two, level, notices)
    if not contrasts:
        reason = "".join(f" {each}" for each in notices)
        raise UsageError(
            f"{first.name} and {second.name} share no task with common units, so nothing can be"
            f" paired.{reason}"
        )
    if score is not None:
        names = list(dict.fromkeys(each.score for each in contrasts))
        contrasts = [each for each in contrasts if each.score == score]
        if not contrasts:
            said = f"{nearest(score, names)} There are: {', '.join(names)}."
            raise UsageError(f'No score "{score}" on both sides.{said}')
    rows = [row_of(each) for each in contrasts]
    overall = _overall(contrasts, level, notices)
    for family in (rows, overall):
        _correct(family, level, correct)
    return Comparison(
        (first.name, second.name), level, correct, contrasts, rows, overall, notices=list(notices)
    )


def claimed(
    found: Comparison, relation: Literal["beats", "no_worse_than", "matches"], margin: float,
    on: str | None = None,
) -> Comparison:  # fmt: skip
    """Return a comparison with the verdict on a claim about it.

    Parameters
    ----------
    found
        What was compared; the claim is about its first score.
    relation, margin
        As in trial files; the margin is in units of the score.
    on
        A task, ``each`` for all tasks at once, or ``overall``. None is the only
        task, or overall where there are several.

    Raises
    ------
    UsageError
        If there is no such task, or the margin does not fit the relation.
    """
    if not margin >= 0 or (margin == 0 and relation != "beats"):
        raise UsageError(f"{relation} needs a margin above 0, as in --margin 0.02.")
    score = found.contrasts[0].score
    low, high = found.contrasts[0].bounds
    if low is not None and high is not None and margin >= high - low:
        raise UsageError(
            f"The margin {margin:g} is as wide as the whole score {score}, {low:g} to {high:g};"
            " two points in a hundred are 0.02."
        )
    mine = [each for each in found.contrasts if each.score == score]
    tasks = list(dict.fromkeys(each.task for each in mine))
    on = on or (tasks[0] if len(tasks) == 1 else OVERALL)
    if on not in (*tasks, "each", OVERALL):
        raise UsageError(f'No task "{on}" on both sides.{nearest(on, tasks)}')
    if on == OVERALL and len(tasks) > 1:
        arms = list(dict.fromkeys((each.arm, each.versus) for each in mine))
        groups = [[each for each in mine if (each.arm, each.versus) == pair] for pair in arms]
        several = [each for each in groups if len(each) > 1]
        if why := next(filter(None, map(_apart, several)), ""):
            raise UsageError(f"There is no overall {score}: {why}; name a task with --on, or each.")
    else:
        groups = [[each] for each in mine if on in ("each", OVERALL, each.task)]
    claims = []
    for group in groups:
        label = OVERALL if len(group) > 1 else group[0].task
        claim = Claim(group[0].arm, relation, group[0].versus, label, margin, score)
        level = claim_level(claim, found.level, len(groups))
        whole = group[0].at(level) if len(group) == 1 else macro(group, level)[0]
        claims.append(judge(claim, whole.estimate, whole.lost))
    return replace(found, claims=claims)


def estimates(store: Store, run: Mapping[str, Any], *, level: float = 0.95) -> list[dict[str, Any]]:
    """Return the mean of every score of every arm and task of a run, with its interval.

    For runs without a result of their own: imported ones, and those that were stopped.
    """
    rows = []
    for cell in run["covers"]:
        size = {name: cell[name] for name in ("units", "builds", "repeats")}
        found = store.outcomes(cell["arm"], cell["task"], **size)
        for spec in found.specs:
            mean = describe(found, spec.name, level=level, errors="worst")
            row = Row(
                cell["arm_label"], cell["task_label"], spec.name, mean, None,
                spec.higher_is_better, spec.unit,
            )  # fmt: skip
            rows.append(row.as_json() | {"errors": int(found.failed.sum())})
    return rows


def _pairs(first: Side, second: Side, arm: str | None, other: str | None) -> list[tuple[str, str]]:
    ones, twos = list(first.arms), list(second.arms)
    for label, arms, side in ((arm, ones, first), (other, twos, second)):
        if label is not None and label not in arms:
            raise UsageError(f'No arm "{label}" in {side.name}. There are: {", ".join(arms)}.')
    if arm is not None or other is not None:
        if arm is None and len(ones) == 1:
            arm = ones[0]
        if other is None:
            other = twos[0] if len(twos) == 1 else arm
        if arm is None or other is None or other not in twos:
            raise UsageError("Name an arm of each side: --arm and --other.")
        if first is second and arm == other:
            raise UsageError(f"Name two arms of {first.name}: --arm and --other.")
        return [(arm, other)]
    if first is second:
        control, *treated = ones
        if not treated:
            raise UsageError(
                f"{first.name} has one arm; name another run or file to compare it with."
            )
        return [(control, each) for each in treated]
    if len(ones) == len(twos) == 1:
        return [(ones[0], twos[0])]
    shared = [label for label in ones if label in twos]
    if not shared:
        raise UsageError(
            f"{first.name} and {second.name} share no arm label; name one of each: --arm "
            f"{'|'.join(ones)} --other {'|'.join(twos)}."
        )
    return [(label, label) for label in shared]


def _contrasts(
    first: Side, second: Side, one: str, two: str, level: float, notices: dict[str, None]
) -> list[Contrast]:
    ours, theirs = first.arms[one], second.arms[two]
    names = (one, two) if first is second else (first.name, second.name)
    for name, mine, others in ((names[0], ours, theirs), (names[1], theirs, ours)):
        lone = [task for task in mine if task not in others]
        if lone:
            notices[f"Only {name} has {_listed(lone)}."] = None
    versus, arm = (one, two) if one != two else (f"{one} ({first.name})", f"{two} ({second.name})")
    found = []
    lacking = [0, 0]
    averaged = []
    for task in [label for label in ours if label in theirs]:
        a, b = ours[task], theirs[task]
        if a.task != b.task and not (a.imported or b.imported):
            notices[f"Task {task} is not compared: the two sides set it up differently."] = None
            continue
        joined = join(a, b, names)
        lacking[0] += joined.only_second
        lacking[1] += joined.only_first
        if not len(joined.first):
            notices[f"Task {task} is not compared: no unit is on both sides."] = None
            continue
        averaged += [task] * joined.averaged
        if not set(joined.first.scores) & set(joined.second.scores):
            ones, twos = (", ".join(each.scores) for each in (joined.first, joined.second))
            said = f"Task {task} is not compared: it has {ones} on one side, {twos} on the other."
            notices[said] = None
        for spec in joined.first.specs:
            if not (spec.name in joined.first.scores and spec.name in joined.second.scores):
                continue
            common, said = agreed(spec, joined.second.spec(spec.name), task)
            if said:
                notices[said] = None
            if common is None or common.higher_is_better is None:
                continue
            both = (replace(joined.first, specs=(common,)), replace(joined.second, specs=(common,)))
            seed = Rng(0).child("compare", one, two, task, spec.name)
            found.append(
                Contrast(
                    arm, versus, task, spec.name,
                    replace(joined, first=both[0], second=both[1]), (a, b),
                    (common.low, common.high), seed, level,
                )
            )  # fmt: skip
    for name, count in zip(names, lacking, strict=True):
        if count and found:
            many = "1 unit" if count == 1 else f"{count:,} units"
            notices[f"{name} lacks {many} of the other; the shared ones are compared."] = None
    if averaged and found:
        notices[f"Repeats do not match in {_listed(averaged)}: each side's are averaged first."] = (
            None
        )
    return found


def _listed(labels: Sequence[str], most: int = 8) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    word = "task" if len(labels) == 1 else "tasks"
    return f"{word} {', '.join(labels[:most])}{more}"


def _overall(
    contrasts: Sequence[Contrast], level: float, notices: dict[str, None]
) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[Contrast]] = {}
    for each in contrasts:
        groups.setdefault((each.arm, each.versus, each.score), []).append(each)
    rows = []
    for (arm, versus, score), group in groups.items():
        if len(group) < 2:
            continue
        if why := _apart(group):
            notices[f"There is no overall {score}: {why}."] = None
            continue
        found, used, means = macro(group, level)
        if len(used) < len(group):
            left = _listed([each.task for each in group if each.task not in used])
            notices[f"The overall {score} leaves out {left}: one unit or cluster there."] = None
        if len(used) < 2:
            continue
        rows.append(
            {
                "arm": arm,
                "versus": versus,
                "tasks": len(used),
                "score": score,
                "lost": found.lost,
                **outlook(found.estimate),
                "first_mean": means[0],
                "second_mean": means[1],
                "test": "t",
                "bounds": list(group[0].bounds),
            }
        )
    return rows


def _apart(group: Sequence[Contrast]) -> str:
    """Return why tasks have no effect in common, or nothing where they may have."""
    if len({each.bounds for each in group}) > 1:
        return "its bounds differ between tasks"
    if any(each.builds for each in group):
        return "several builds link the tasks"
    return ""


def _correct(rows: Sequence[dict[str, Any]], level: float, how: Correction) -> None:
    """Add the corrected p-value of each row, and what the row says then."""
    tested = [row for row in rows if row.get("p_value") is not None]
    if tested:
        p = [row["p_value"] for row in tested]
        adjusted = p if how == "none" else (holm if how == "holm" else benjamini_hochberg)(p)
        for row, each in zip(tested, adjusted, strict=True):
            row["p_adjusted"] = float(each)
    for row in rows:
        clear = row.get("p_adjusted", 1.0) <= 1 - level + 1e-12 and row["value"]
        row["says"] = ("better" if row["value"] > 0 else "worse") if clear else "unclear"
