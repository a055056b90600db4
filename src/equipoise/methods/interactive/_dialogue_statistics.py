"""Statistics of dialogue turns as functions of arrays, and what their measures read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from equipoise.core import Estimate, Outcomes, Rng, UsageError
from equipoise.kit.statistics.columns import enclosing, in_order
from equipoise.kit.statistics.resampling import bootstrap
from equipoise.kit.statistics.single import proportion, wilson

Column = np.ndarray | Sequence[float]
Clusters = np.ndarray | Sequence[int] | Sequence[str] | None


def joint_state_accuracy(
    right: Column,
    *,
    dialogues: Clusters = None,
    per: str = "turn",
    level: float = 0.95,
) -> Estimate:
    r"""Return the share of turns whose whole state is right, or of dialogues all of whose are.

    Parameters
    ----------
    right
        1 where every slot of a turn's state is right, else 0; shape ``(turns,)``.
    dialogues
        The dialogue of each turn; turns of one are a cluster.
    per
        ``turn`` or ``dialogue``.
    level
        Coverage the interval aims for.

    Raises
    ------
    UsageError
        If ``per`` is ``dialogue`` and none are given.

    Examples
    --------
    >>> joint_state_accuracy([1, 1, 1, 0], dialogues=["a", "a", "b", "b"], per="dialogue").value
    0.5
    """
    values = np.asarray(right, float)
    if per == "turn":
        return proportion(values, clusters=dialogues, level=level)
    return proportion(whole(values, dialogues), level=level)


def whole(right: np.ndarray, dialogues: Any) -> np.ndarray:
    if dialogues is None:
        raise UsageError(
            "joint_state_accuracy: there are no clusters to say which turns are one dialogue."
        )
    codes = np.unique(np.asarray(dialogues), return_inverse=True)[1]
    wrong = np.bincount(codes, weights=right < 1)
    whole: np.ndarray = (wrong == 0).astype(float)
    return whole


def action_macro_f1(
    predicted: Column,
    label: Column,
    *,
    missed: int = 0,
    clusters: Clusters = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    r"""Return the mean over actions of $F_1 = 2\,TP / (2\,TP + FP + FN)$.

    Actions that are never right are left out, as released evaluations do. The interval is a
    bootstrap over clusters.

    Parameters
    ----------
    predicted, label
        Codes of actions from 0; a prediction may be a code that no label has.
    missed
        Turns without an answer. Each counts as a miss, of the actions in proportion to how often
        they are right.
    clusters
        The dialogue of each turn.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    Examples
    --------
    >>> found = action_macro_f1([0, 0, 1, 1] * 5, [0, 1, 1, 1] * 5)
    >>> round(found.value, 4)
    0.7333
    """
    hat, y = np.asarray(predicted, float), np.asarray(label, float)
    if hat.shape != y.shape or hat.ndim != 1 or not len(y):
        raise UsageError(f"action_macro_f1: give one label a turn, got {y.shape} for {hat.shape}.")
    share = missed / len(y)

    def statistic(some: np.ndarray, right: np.ndarray) -> float:
        return macro_f1(some, right, share)

    stream = Rng(0) if rng is None else rng
    found = bootstrap(statistic, (hat, y), clusters=clusters, level=level, draws=draws, rng=stream)
    if found.value in (0.0, 1.0):
        size = len(y) if clusters is None else len(np.unique(np.asarray(clusters)))
        low, high = wilson(found.value * size, size, level)
        note = "All turns agree: Wilson's interval, one turn a cluster."
        return replace(found, low=low, high=high, method="wilson", note=note)
    return enclosing(found)


def macro_f1(hat: np.ndarray, y: np.ndarray, share: float) -> float:
    codes, said = y.astype(int), hat.astype(int)
    size = int(max(codes.max(), said.max())) + 1
    true = np.bincount(codes[codes == said], minlength=size)
    right, called = np.bincount(codes, minlength=size), np.bincount(said, minlength=size)
    there = right > 0
    found = 2 * true[there] / ((1 + share) * right[there] + called[there])
    return float(found.mean())


def history_effect(
    right: Column,
    with_gt: Column,
    *,
    clusters: Clusters = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng | None = None,
) -> Estimate:
    """Return how much accuracy is higher where the right history is shown than where it is not.

    The interval is a bootstrap over clusters, each with its turns in both settings.

    Parameters
    ----------
    right, with_gt
        Zeros and ones, shape ``(turns,)``.
    clusters
        The dialogue of each turn.
    level, draws, rng
        Coverage, resamples and their stream; ``Rng(0)`` if absent.

    Raises
    ------
    UsageError
        If a setting is absent.

    Examples
    --------
    >>> history_effect([1, 0, 1, 1], [1, 0, 1, 0], clusters=["a", "a", "b", "b"]).value
    0.5
    """
    x, shown = np.asarray(right, float), np.asarray(with_gt, float)
    if not ((shown == 1).any() and (shown == 0).any()):
        raise UsageError("history_effect: turns must be asked with and without ground truth;"
                         " set history: both.")  # fmt: skip
    stream = Rng(0) if rng is None else rng
    found = bootstrap(effect, (x, shown), clusters=clusters, level=level, draws=draws, rng=stream)
    return enclosing(found)


def effect(right: np.ndarray, shown: np.ndarray) -> float:
    gold = shown == 1
    if gold.all() or not gold.any():
        return float("nan")
    return float(right[gold].mean() - right[~gold].mean())


def complete(part: str, outcomes: Outcomes, *names: str) -> tuple[Outcomes, str]:
    """Return the rows that have every score, in a fixed order, and a note on the others."""
    whole = ~np.any([np.isnan(outcomes.score(name)) for name in names], axis=0)
    if not whole.any():
        raise UsageError(f"{part}: no turn has a value for {' and '.join(names)}.")
    left = int((~whole & ~outcomes.failed).sum())
    note = f"{left} of {len(outcomes)} turns lack a score and are left out." if left else ""
    return in_order(outcomes.take(whole)), note
