r"""What a task on dialogue turns lets us conclude: whole states, actions by class, kinds of error.

The plain functions take arrays: `joint_state_accuracy`, `action_macro_f1`, `history_effect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from equipoise.core import (
    Estimate,
    Figure,
    Measure,
    Outcomes,
    Rng,
    ScoreSpec,
    Series,
    between,
    one_of,
)
from equipoise.kit.statistics.columns import clusters_of, noted
from equipoise.kit.statistics.single import proportion
from equipoise.methods.interactive._dialogue_statistics import (
    action_macro_f1,
    complete,
    effect,
    history_effect,
    joint_state_accuracy,
    macro_f1,
    whole,
)
from equipoise.methods.interactive._tooldial_text import ERRORS, NONE

__all__ = [
    "ActionMacroF1",
    "ErrorTaxonomy",
    "HistoryEffect",
    "JointStateAccuracy",
    "action_macro_f1",
    "history_effect",
    "joint_state_accuracy",
]


@dataclass(frozen=True)
class JointStateAccuracy(Measure):
    """Share of turns whose whole dialogue state is right, or of dialogues all of whose turns are.

    The plain function is `joint_state_accuracy`. On the sub-task ``overall``, with ``per:
    dialogue``, it is the share of dialogues that go right from end to end.

    Parameters
    ----------
    per
        ``turn`` or ``dialogue``.
    score
        A score that is 1 where a turn is right.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(correct=[1, 1, 1, 0], cluster=["a", "a", "b", "b"])
    >>> JointStateAccuracy("dialogue").statistic(outcomes)
    0.5
    """

    per: str = one_of("turn", "dialogue", default="turn")
    score: str = "correct"
    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 80 dialogues of 4 turns, each turn right with a chance of its dialogue."""
        draw = rng.numpy()
        chance = np.repeat(draw.beta(4, 2, 80), 4)
        right = draw.random(320) < chance
        # E p = 2/3 of a beta (4, 2), and E p^4 = (4 5 6 7) / (6 7 8 9).
        truth = 2 / 3 if self.per == "turn" else 840 / 3024
        return _drawn(np.repeat(np.arange(80), 4), **{self.score: right}), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the share; ``rng`` is not used."""
        rows, note = complete("JointStateAccuracy", outcomes, self.score)
        values, clusters = rows.score(self.score), clusters_of(rows)
        found = joint_state_accuracy(values, dialogues=clusters, per=self.per, level=self.level)
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        rows, _ = complete("JointStateAccuracy", outcomes, self.score)
        right = rows.score(self.score)
        return float((right if self.per == "turn" else whole(right, rows.cluster)).mean())


@dataclass(frozen=True)
class ActionMacroF1(Measure):
    """Mean over actions of F1: every action weighs the same, however rare.

    The plain function is `action_macro_f1`. Failed turns count as misses.

    Parameters
    ----------
    predicted, label
        Scores that hold the codes of the actions said and right.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> outcomes = Outcomes.of(predicted=[0, 0, 1, 1], label=[0, 1, 1, 1])
    >>> round(ActionMacroF1().statistic(outcomes), 4)
    0.7333
    """

    predicted: str = "predicted"
    label: str = "label"
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> Self:
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 120 dialogues of 6 turns; of 4 actions each is said rightly 80 times in 100."""
        draw = rng.numpy()
        shares = np.array([0.4, 0.3, 0.2, 0.1])
        label = draw.choice(4, size=720, p=shares)
        other = (label + draw.integers(1, 4, 720)) % 4
        predicted = np.where(draw.random(720) < 0.8, label, other)
        called = 0.8 * shares + 0.2 * (1 - shares) / 3
        truth = float((1.6 * shares / (shares + called)).mean())
        columns = {self.predicted: predicted, self.label: label}
        return _drawn(np.repeat(np.arange(120), 6), **columns), truth

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the mean F1 with its interval."""
        rows, missed, note = self._rows(outcomes)
        found = action_macro_f1(
            rows.score(self.predicted), rows.score(self.label), missed=missed,
            clusters=clusters_of(rows), level=self.level, draws=self.draws, rng=rng,
        )  # fmt: skip
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        rows, missed, _ = self._rows(outcomes)
        hat, y = rows.score(self.predicted), rows.score(self.label)
        return macro_f1(hat, y, missed / len(y))

    def _rows(self, outcomes: Outcomes) -> tuple[Outcomes, int, str]:
        rows, note = complete("ActionMacroF1", outcomes, self.predicted, self.label)
        missed = int(outcomes.failed.sum())
        if missed:
            note = f"{missed} failed turns count as misses, spread over actions. {note}".strip()
        return rows, missed, note


@dataclass(frozen=True)
class ErrorTaxonomy(Measure):
    """Share of turns in each class of error that occurs.

    Classes of states, in the order in which they are tried: generation_error (no dictionary),
    format, predict_false_label_true and label_false_predict_true (whether an interface is
    confirmed), input_parameter_slot_error, value_error, api_error. Of actions: generation_error,
    acts_too_early (calls or answers where it should ask), asks_needlessly, other_action. Of
    replies: unsupported_value, nothing_told. Failed turns are a class of their own.

    Parameters
    ----------
    score
        The score that holds the class as a code, 0 for right.
    level
        Coverage each interval aims for.

    Examples
    --------
    >>> table = ErrorTaxonomy().measure(Outcomes.of(error=[0, 0, 7, 1]), Rng(0))
    >>> {name: each.value for name, each in table.items()}
    {'right': 0.5, 'generation_error': 0.25, 'value_error': 0.25}
    """

    score: str = "error"
    level: float = between(0.5, 0.9999999, default=0.95)

    higher_is_better: ClassVar[bool | None] = None

    def simulate(self, rng: Rng) -> tuple[Outcomes, Mapping[str, float]]:
        """Return 300 turns: half right, three in ten with wrong values, two with wrong slots."""
        shares = {"right": 0.5, "value_error": 0.3, "input_parameter_slot_error": 0.2}
        codes = [ERRORS.index(name) for name in shares]
        drawn = rng.numpy().choice(codes, size=300, p=list(shares.values()))
        return _drawn(np.arange(300), **{self.score: drawn}), shares

    def measure(self, outcomes: Outcomes, rng: Rng) -> Mapping[str, Estimate]:
        """Return a table of shares; ``rng`` is not used."""
        codes, clusters, note = self._codes(outcomes)
        names = (*ERRORS, "failed")
        return {
            names[code]: noted(
                proportion((codes == code).astype(float), clusters=clusters, level=self.level), note
            )
            for code in np.unique(codes).astype(int)
        }

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return the shares of the errors as bars, each arm beside the others."""
        tables = {arm: self.measure(rows, rng) for arm, rows in outcomes.items()}
        names = [
            each for each in (*ERRORS[1:], "failed") if any(each in t for t in tables.values())
        ]
        if not names:
            return None
        width = 0.8 / len(tables)
        series = []
        for place, (arm, table) in enumerate(tables.items()):
            found = [table.get(name, Estimate(0.0, 0.0, 0.0)) for name in names]
            x = [i + 1 + width * (place - (len(tables) - 1) / 2) for i in range(len(names))]
            series.append(
                Series(arm, x, [e.value for e in found], [e.low for e in found],
                       [e.high for e in found], look="bars")
            )  # fmt: skip
        listed = ", ".join(f"{i + 1} {name}" for i, name in enumerate(names))
        return Figure("Errors by class", "class", "share of turns", series, f"Classes: {listed}.")

    def _codes(self, outcomes: Outcomes) -> tuple[np.ndarray, np.ndarray | None, str]:
        values = outcomes.score(self.score).copy()
        values[outcomes.failed] = len(ERRORS)
        rows, note = complete(
            "ErrorTaxonomy",
            replace(outcomes, scores={**outcomes.scores, self.score: values}),
            self.score,
        )
        return rows.score(self.score), clusters_of(rows), note


@dataclass(frozen=True)
class HistoryEffect(Measure):
    """How much more often turns go right where the history shows what was right.

    The plain function is `history_effect`. The task asks each turn in both settings, as
    ``{tooldial: {history: both}}`` does.

    Parameters
    ----------
    score
        A score from 0 to 1; the task's first when left out.
    level, draws
        Coverage and bootstrap resamples.

    Examples
    --------
    >>> outcomes = Outcomes.of(correct=[1, 0, 1, 1], with_gt=[1, 0, 1, 0], cluster=list("aabb"))
    >>> HistoryEffect().statistic(outcomes)
    0.5
    """

    score: str = "correct"
    level: float = between(0.5, 0.9999999, default=0.95)
    draws: int = between(100, 100_000, default=2000)

    @classmethod
    def tiny(cls) -> Self:
        return cls(draws=200)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 60 dialogues of 3 turns in both settings, right with chances 0.8 and 0.6."""
        draw = rng.numpy()
        shown = np.tile([1, 0], 180)
        right = draw.random(360) < np.where(shown == 1, 0.8, 0.6)
        return _drawn(np.repeat(np.arange(60), 6), **{self.score: right, "with_gt": shown}), 0.2

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the difference with its interval."""
        rows, note = self._rows(outcomes)
        found = history_effect(
            rows.score(self.score), rows.score("with_gt"), clusters=clusters_of(rows),
            level=self.level, draws=self.draws, rng=rng,
        )  # fmt: skip
        return noted(found, note)

    def statistic(self, outcomes: Outcomes) -> float:
        rows, _ = self._rows(outcomes)
        return effect(rows.score(self.score), rows.score("with_gt"))

    def _rows(self, outcomes: Outcomes) -> tuple[Outcomes, str]:
        shown = outcomes.score("with_gt").copy()
        if outcomes.stratum is not None and "with_gt" in outcomes.strata:
            # A failed turn has no scores; its stratum says how it was asked.
            lost = np.isnan(shown)
            shown[lost] = outcomes.stratum[lost] == outcomes.strata.index("with_gt")
        known = replace(outcomes, scores={**outcomes.scores, "with_gt": shown})
        return complete("HistoryEffect", known, self.score, "with_gt")


def _drawn(dialogues: np.ndarray, **columns: np.ndarray) -> Outcomes:
    bounds = {"predicted": NONE, "label": NONE, "error": len(ERRORS)}
    specs = [ScoreSpec(n, True if n not in bounds else None, 0, bounds.get(n, 1)) for n in columns]
    return Outcomes.of(cluster=dialogues, specs=specs, **columns)
