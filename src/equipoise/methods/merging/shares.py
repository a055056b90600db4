r"""Accuracy as a share of a reference's: how much of a skill an edited or merged model has.

With tasks k of accuracy $a_k$ and a reference's $r_k$ the normalised accuracy is
$\frac{1}{K} \sum_k a_k / r_k$. A reference near chance makes its ratio mean nothing,
so tasks whose reference is not above chance are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between
from equipoise.kit.statistics import single

Pair = tuple[Outcomes, Outcomes]


def normalized_accuracy(
    x: npt.ArrayLike,
    reference: npt.ArrayLike,
    tasks: Sequence[object] | np.ndarray | None = None,
    *,
    units: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    builds: npt.ArrayLike | None = None,
    level: float = 0.95,
    chance: float = 0.0,
) -> Estimate:
    r"""Mean over tasks of the ratio of two means, rows paired by position.

    The interval is that of the mean of
    $R + \frac{n}{K n_k} (x_i - R_k y_i) / \bar y_k$, the ratio's linear part, so that
    clusters and builds count as they do for a mean.

    Parameters
    ----------
    x, reference
        Scores of the model and of the reference on the same units, ``(n,)``.
    tasks
        Task of each row; one for all when None.
    units, clusters, builds
        Of each row, as in `equipoise.kit.statistics.single.mean`.
    level
        Coverage aimed for, in (0, 1).
    chance
        Tasks whose reference mean is not above this are left out.

    Raises
    ------
    UsageError
        If columns do not fit, or no task's reference is above chance.

    Examples
    --------
    >>> x, y = [1, 0, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 1, 1]
    >>> normalized_accuracy(x, y, ["a"] * 4 + ["b"] * 4).value
    0.75
    """
    who = "normalized_accuracy"
    x, y = np.asarray(x, float), np.asarray(reference, float)
    names = np.zeros(x.shape, int) if tasks is None else np.asarray([str(t) for t in tasks])
    if x.ndim != 1 or x.shape != y.shape or x.shape != names.shape or not x.size:
        raise UsageError(
            f"{who}: give rows of one length, got {x.shape}, {y.shape}, {names.shape}."
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UsageError(f"{who}: scores must be finite numbers.")
    kept = np.ones(x.shape, bool)
    dropped = []
    for name in np.unique(names):
        here = names == name
        if y[here].mean() <= chance:
            kept &= ~here
            dropped.append(str(name))
    if not kept.any():
        raise UsageError(f"{who}: the reference is not above {chance:g} in any task.")
    x, y, names = x[kept], y[kept], names[kept]
    found = np.unique(names)
    linear, value = np.empty(x.shape), 0.0
    for name in found:
        here = names == name
        ratio = x[here].mean() / y[here].mean()
        scale = len(x) / (len(found) * here.sum() * y[here].mean())
        linear[here] = scale * (x[here] - ratio * y[here])
        value += ratio / len(found)

    def rows(column: npt.ArrayLike | None) -> np.ndarray | None:
        return None if column is None else np.asarray(column)[kept]

    estimate = single.mean(
        linear + value, units=rows(units), clusters=rows(clusters), builds=rows(builds),
        level=level,
    )  # fmt: skip
    note = f"Left out, because the reference is at chance: {', '.join(dropped)}." if dropped else ""
    return replace(
        estimate,
        value=float(value),
        method="linearised ratio",
        note=" ".join(filter(None, (estimate.note, note))),
        details={**estimate.details, "tasks": float(len(found))},
    )


def target_control_tradeoff(
    target: npt.ArrayLike,
    control: npt.ArrayLike,
    *,
    fine_tuned: float,
    zero_shot: Sequence[float] | np.ndarray,
) -> np.ndarray:
    r"""Return the shares of skill kept and skill restored, for each setting of an edit.

    Parameters
    ----------
    target
        Accuracy on the task an update was for, ``(settings,)``.
    control
        Accuracies on other tasks, ``(settings, controls)``.
    fine_tuned
        Target accuracy of the fine-tuned model, above 0.
    zero_shot
        Control accuracies of the base, ``(controls,)``, above 0.

    Returns
    -------
    ndarray
        Target share and mean control share of each setting, ``(settings, 2)``.

    Examples
    --------
    The published notebook's figures for EuroSAT, ViT-B/32: fine-tuned, then scaled with
    alpha 0.1, on EuroSAT and (control) DTD, SUN397, MNIST.

    >>> target_control_tradeoff(
    ...     [0.9987, 0.9870],
    ...     [[0.3750, 0.5260, 0.3735], [0.4383, 0.6198, 0.5552]],
    ...     fine_tuned=0.9987,
    ...     zero_shot=[0.4399, 0.6316, 0.4826],
    ... ).round(3)
    array([[1.   , 0.82 ],
           [0.988, 1.043]])
    """
    a, b = np.asarray(target, float), np.asarray(control, float)
    z = np.asarray(zero_shot, float)
    if a.ndim != 1 or b.shape != (len(a), len(z)) or not b.size:
        raise UsageError(
            "target_control_tradeoff: control must be (settings, controls) for"
            f" {a.shape} target scores and {z.shape} references, got {b.shape}."
        )
    if not (fine_tuned > 0 and (z > 0).all()):
        raise UsageError("target_control_tradeoff: fine_tuned and zero_shot must be above 0.")
    return np.column_stack([a / fine_tuned, (b / z).mean(axis=1)])


@dataclass(frozen=True)
class NormalizedAccuracy(Measure):
    r"""An arm's accuracy as a share of the other arm's, averaged over tasks (strata).

    1 is the reference's own: ``no_worse_than`` with ``within: 0.02`` claims a share
    above 0.98.

    Parameters
    ----------
    score
        Name of a score where more is better; None is the task's first.
    level
        Coverage the interval aims for.
    chance
        Strata in which the other arm is not above this are left out.

    Examples
    --------
    >>> a, b = Outcomes.of(correct=[1, 1, 1, 0]), Outcomes.of(correct=[1, 1, 1, 1])
    >>> NormalizedAccuracy().measure((a, b), Rng(0)).value
    0.75
    """

    scope = "pair"
    null: ClassVar[float] = 1.0
    """The share of arms that do not differ."""

    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    chance: float = between(0.0, 1.0, default=0.0)

    def simulate(self, rng: Rng) -> tuple[Pair, float]:
        """Return two tasks of 150 units each, in which the share is 0.5 and 0.8."""
        world = _world(rng, {"a": (0.4, 0.4), "b": (0.8, 0.5)}, self.score)
        return (world["a"], world["b"]), (0.4 / 0.8 + 0.4 / 0.5) / 2

    def measure(self, outcomes: Pair, rng: Rng) -> Estimate:
        """Return the share; ``rng`` is not used."""
        return _share(*outcomes, self.score, self.level, self.chance)


@dataclass(frozen=True)
class TargetControlTradeoff(Measure):
    """Of every arm: the share of the target skill it keeps, and of other skills it restores.

    Parameters
    ----------
    target
        Strata the change was for; all others are controls.
    fine_tuned
        Arm whose score on the target is 1.
    zero_shot
        Arm whose scores on the controls are 1.
    score
        Name of a score where more is better; None is the task's first.
    level
        Coverage the intervals aim for.
    chance
        Strata in which the reference is not above this are left out.

    Examples
    --------
    >>> outcomes, truth = TargetControlTradeoff.tiny().simulate(Rng(0))
    >>> found = TargetControlTradeoff.tiny().measure(outcomes, Rng(0))
    >>> list(found), found["fine_tuned target"].value
    (['fine_tuned target', 'fine_tuned control', 'zero_shot target', 'zero_shot control',
    'edited target', 'edited control'], 1.0)
    """

    scope = "arms"

    target: tuple[str, ...]
    fine_tuned: str = "fine_tuned"
    zero_shot: str = "pretrained"
    score: str | None = None
    level: float = between(0.5, 0.9999999, default=0.95)
    chance: float = between(0.0, 1.0, default=0.0)

    @classmethod
    def tiny(cls) -> TargetControlTradeoff:
        return cls(("0",), zero_shot="zero_shot")

    def simulate(self, rng: Rng) -> tuple[dict[str, Outcomes], dict[str, float]]:
        """Return a target and two controls of 150 units each, and three arms."""
        chances = {
            self.fine_tuned: (0.9, 0.4, 0.3),
            self.zero_shot: (0.6, 0.8, 0.7),
            "edited": (0.85, 0.6, 0.5),
        }
        names = (*self.target[:1], "control 1", "control 2")
        truth = {}
        for arm, (a, b, c) in chances.items():
            truth[f"{arm} target"] = a / 0.9
            truth[f"{arm} control"] = (b / 0.8 + c / 0.7) / 2
        return _world(rng, chances, self.score, names), truth

    def measure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> dict[str, Estimate]:
        """Return two estimates an arm; ``rng`` is not used."""
        found: dict[str, Estimate] = {}
        for reference in (self.fine_tuned, self.zero_shot):
            if reference not in outcomes:
                raise UsageError(
                    f'TargetControlTradeoff: there is no arm "{reference}" on this task; it has'
                    f" {', '.join(outcomes)}."
                )
        for arm, rows in outcomes.items():
            for side, reference in (("target", self.fine_tuned), ("control", self.zero_shot)):
                pair = _matched(rows, outcomes[reference])
                mine = [self._on_side(each, side) for each in pair]
                found[f"{arm} {side}"] = _share(
                    mine[0], mine[1], self.score, self.level, self.chance
                )
        return found

    def _on_side(self, rows: Outcomes, side: str) -> Outcomes:
        if rows.stratum is None:
            raise UsageError("TargetControlTradeoff: the units of this task have no strata.")
        missing = sorted(set(self.target) - set(rows.strata))
        if missing:
            raise UsageError(
                f'TargetControlTradeoff: there is no stratum "{missing[0]}"; there are'
                f" {', '.join(rows.strata)}."
            )
        codes = [code for code, name in enumerate(rows.strata) if name in self.target]
        inside = np.isin(rows.stratum, codes)
        return rows.take(inside if side == "target" else ~inside)


def _share(a: Outcomes, b: Outcomes, score: str | None, level: float, chance: float) -> Estimate:
    name = score or (a.specs[0].name if a.specs else next(iter(a.scores)))
    if a.spec(name).higher_is_better is not True:
        raise UsageError(f"A share of {name} says nothing, because more of it is not better.")
    x, y = a.score(name), b.score(name)
    whole = ~(np.isnan(x) | np.isnan(y))
    if not whole.any():
        raise UsageError(f"No unit has {name} in both arms.")
    rows = a.take(whole)
    tasks = None
    if rows.stratum is not None:
        tasks = [rows.strata[code] if code >= 0 else "none" for code in rows.stratum]
    several = len(np.unique(rows.unit)) < len(rows)
    found = normalized_accuracy(
        x[whole],
        y[whole],
        tasks,
        units=rows.unit if several else None,
        clusters=rows.cluster,
        builds=rows.build if len(np.unique(rows.build)) > 1 else None,
        level=level,
        chance=chance,
    )
    left = int((~whole).sum())
    note = f"{left} of {len(x)} pairs lack a score and are left out." if left else ""
    return replace(found, note=" ".join(filter(None, (found.note, note))))


def _matched(a: Outcomes, b: Outcomes) -> Pair:
    """Return the rows of both by unit, build and repeat; one build stands for all of the other."""
    a, b = _spread(a, b), _spread(b, a)
    keys = [np.column_stack([each.unit, each.build, each.repeat]) for each in (a, b)]
    _, codes = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    _, rows_a, rows_b = np.intersect1d(
        codes[: len(a)], codes[len(a) :], assume_unique=True, return_indices=True
    )
    return a.take(rows_a), b.take(rows_b)


def _spread(outcomes: Outcomes, other: Outcomes) -> Outcomes:
    builds = np.unique(other.build)
    if len(builds) < 2 or len(np.unique(outcomes.build)) > 1:
        return outcomes
    rows = outcomes.take(np.tile(np.arange(len(outcomes)), len(builds)))
    return replace(rows, build=np.repeat(builds, len(outcomes)))


def _world(
    rng: Rng,
    chances: Mapping[str, Sequence[float]],
    score: str | None,
    names: Sequence[str] = ("first", "second"),
) -> dict[str, Outcomes]:
    """Return arms that pass each stratum's 150 units with the chances given."""
    codes = np.repeat(np.arange(len(names)), 150)
    found = {}
    for arm, each in chances.items():
        passed = rng.child(arm).numpy().random(len(codes)) < np.array(each)[codes]
        columns: dict[str, Any] = {score or "correct": passed.astype(float)}
        rows = Outcomes.of(**columns)
        found[arm] = replace(rows, stratum=codes, strata=tuple(names))
    return found
