"""``stop: early``: arms go side by side over random units until every claim is decided.

Each claim has a confidence sequence, valid at every moment, so looking after
every block costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.core import ScoreSpec, UsageError
from equipoise.kit.statistics.sequences import AsymptoticSequence, BettingSequence
from equipoise.trial.compare import LOST_AT_MOST, fill
from equipoise.trial.result import Status
from equipoise.trial.trial import Claim, Trial
from equipoise.trial.verdict import claim_level, decide
from equipoise.trial.work import Shard

if TYPE_CHECKING:
    from equipoise.trial.engine import Runner

BLOCK = 32


def run_early(run: Runner) -> tuple[Status, list[dict[str, object]]]:
    """Run block by block; return how it ended and each claim's sequence."""
    for task, units in run.units.items():
        if units.held is None:
            raise UsageError(f"stop: early holds the units of {task}; cap them with `units`.")
    waiting = {task: units.groups()[::-1] for task, units in run.units.items()}
    watched = [Watched(run.trial, claim) for claim in run.trial.claims]
    seen = 0
    while any(waiting.values()):
        block = max(BLOCK, seen // 8)  # about 6 looks a doubling
        seen += block
        window = {task: _take(groups, block) for task, groups in waiting.items()}
        within_budget = run.do(_shards(run, window))
        for each in watched:
            _feed(run, each, run.units[each.claim.on].numbers[window[each.claim.on]])
            each.look()
        if not within_budget:
            return "budget", [each.as_json() for each in watched]
        if any(waiting.values()) and all(each.decided() for each in watched):
            return "early", [each.as_json() for each in watched]
    return "finished", [each.as_json() for each in watched]


def _take(groups: list[np.ndarray], block: int) -> np.ndarray:
    """Take whole clusters off the end of a list until there are ``block`` units."""
    taken: list[np.ndarray] = []
    count = 0
    while groups and count < block:
        taken.append(groups.pop())
        count += len(taken[-1])
    return np.concatenate(taken) if taken else np.empty(0, int)


def _shards(run: Runner, window: dict[str, np.ndarray]) -> Iterator[Shard]:
    for arm, task in run.trial.cells():
        picked = window[task]
        if not len(picked):
            continue
        units = run.units[task].held or ()
        run.watcher.doing(arm, task)
        numbers = run.units[task].numbers[picked]
        for repeat, todo in run.todo(arm, task, 0, numbers):
            chosen = [units[position] for position in picked[todo]]
            yield run.shard(arm, task, 0, repeat, chosen, numbers[todo])


class Watched:
    """A claim's confidence sequence, and where it stood at every look."""

    def __init__(self, trial: Trial, claim: Claim) -> None:
        self.claim = claim
        score = claim.score or trial.tasks[claim.on].scores[0].name
        self.spec = next(s for s in trial.tasks[claim.on].scores if s.name == score)
        self.level = claim_level(claim, trial.level, len(trial.claims))
        self.paired = isinstance(claim.other, str)
        self.sign = -1.0 if self.paired and self.spec.higher_is_better is False else 1.0
        self.sequence = sequence_for(self.spec, self.paired, self.level)
        self.steps: list[dict[str, float]] = []
        self.seen = self.lost = 0
        self.clustered = False

    def feed(self, values: np.ndarray, kept: np.ndarray, asked: np.ndarray, groups: Any) -> None:
        """Take units in order.

        Parameters
        ----------
        values
            Of the arm, or how much better it is than the other.
        kept, asked
            Masks: units with a value; units that were asked, with and without one.
        groups
            A cluster's code a unit, or None; a cluster is one observation, its mean.
        """
        # A budget may end a block half way: what was not asked is no loss.
        self.seen += int(asked.sum())
        self.lost += int((asked & ~kept).sum())
        found = values[kept]
        if groups is not None:
            self.clustered = True
            of = groups[kept]
            found = np.array([found[of == name].mean() for name in dict.fromkeys(of.tolist())])
        self.sequence.update_many(found)

    def look(self) -> None:
        """Note where the interval stands."""
        low, high = self.sequence.interval
        self.steps.append(
            {"n": self.sequence.n, "value": self.sequence.value, "low": low, "high": high}
        )

    def decided(self) -> bool:
        """Whether the interval gives a verdict."""
        if self.lost > LOST_AT_MOST * max(1, self.seen):
            return False
        low, high = self.sequence.interval
        threshold = 0.0 if self.paired else float(self.claim.other)
        verdict = decide(self.claim.relation, low, high, self.claim.margin, threshold)
        return verdict != "inconclusive"

    def as_json(self) -> dict[str, object]:
        """Return the sequence as the result keeps it."""
        kind = "betting" if isinstance(self.sequence, BettingSequence) else "asymptotic"
        note = "one value a cluster, the mean of its units" if self.clustered else ""
        return {
            "claim": str(self.claim),
            "level": self.level,
            "method": f"confidence sequence, {kind}",
            "note": note,
            "lost": self.lost / max(1, self.seen),
            "steps": [
                {name: value if math.isfinite(value) else None for name, value in step.items()}
                for step in self.steps
            ],
        }


def _feed(run: Runner, watched: Watched, numbers: np.ndarray) -> None:
    """Feed a claim's sequence with units that are in the store, in the order of ``numbers``."""
    claim = watched.claim
    values, keep, asked, groups = _column(run, watched, claim.arm, numbers)
    if watched.paired:
        other, other_keep, other_asked, _ = _column(run, watched, str(claim.other), numbers)
        values = watched.sign * (values - other)
        keep, asked = keep & other_keep, asked & other_asked
    watched.feed(values, keep, asked, groups)


def _column(
    run: Runner, watched: Watched, arm: str, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return (value, kept, asked, cluster) a unit, in the order of ``numbers``."""
    found = run.outcomes(arm, watched.claim.on)
    found = found.take(np.isin(found.unit, numbers))
    values, keep = fill(found, watched.spec.name, run.trial.errors)
    rows = [np.flatnonzero(found.unit == number) for number in numbers]
    asked = np.array([len(r) == run.trial.repeats for r in rows], bool)
    mean = np.array([values[r].mean() if len(r) else np.nan for r in rows])
    kept = np.array([bool(keep[r].all()) for r in rows], bool) & asked
    groups = None
    if found.cluster is not None:
        groups = np.array([found.cluster[r[0]] if len(r) else -1 for r in rows])
    return mean, kept, asked, groups


def sequence_for(
    spec: ScoreSpec, paired: bool, level: float
) -> BettingSequence | AsymptoticSequence:
    """Return a confidence sequence of a score's mean, or of the mean of differences."""
    if spec.low is None or spec.high is None:
        return AsymptoticSequence(level)
    if paired:
        width = spec.high - spec.low
        return BettingSequence(-width, width, level)
    return BettingSequence(spec.low, spec.high, level)
