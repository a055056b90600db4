r"""Protocols that foretell how learners do in deployment, on trial in worlds where that is known.

A protocol sees labelled rows, the rows of the deployment without labels, and learners; it says
what mean absolute error each learner will have there. Nothing that it does not see enters.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import (
    Acts,
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UnitError,
    UsageError,
    between,
    one_of,
)
from equipoise.kit.arrays.similarity import nearest, similarities
from equipoise.kit.worlds.clustered_regression import (
    LEARNERS,
    ClusteredRegression,
    Learner,
    gaussian,
)
from equipoise.methods.shift._good import au_good, deployment_weights
from equipoise.methods.shift.similarity_split import threshold_grid, usable_partitions

_TEST = 0.2
_APART = 2.0  # mean distance at which two groups of rows are two clusters, for the cluster split


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Evaluation:
    """What a protocol sees.

    Parameters
    ----------
    inputs, targets
        Labelled rows, ``(n, features)`` and ``(n,)``.
    deployment
        Rows to come, ``(m, features)``.
    learners
        By name.
    """

    inputs: np.ndarray
    targets: np.ndarray
    deployment: np.ndarray
    learners: Mapping[str, Learner]

    def error(self, name: str, train: np.ndarray, test: np.ndarray) -> float:
        """Return a learner's mean absolute error on some rows, trained on others."""
        x, y = self.inputs, self.targets
        found = self.learners[name](x[train], y[train], x[test])
        return float(np.abs(found - y[test]).mean())


# What the oracle looks up; protocols are given the evaluation alone.
_truths: weakref.WeakKeyDictionary[Evaluation, dict[str, float]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class EvaluationProtocol(Subject):
    """A way to foretell the error in deployment from labelled rows.

    Parameters
    ----------
    kind
        ``"random"``: a fifth of the rows at random. ``"cluster"``: clusters by average linkage,
        at random, as many as fit into a fifth. ``"uniform"``: the mean of the GOOD curve.
        ``"weighted"``: AU-GOOD with the deployment's weights.

    Examples
    --------
    >>> rows = np.arange(20.0)[:, None]
    >>> seen = Evaluation(rows, rows[:, 0], rows, LEARNERS)
    >>> sorted(EvaluationProtocol("random").load(Rng(0)).act(seen, Rng(0)))
    ['linear', 'nearest', 'nearest_5', 'smooth']
    """

    kind: str = one_of("random", "cluster", "uniform", "weighted", default="weighted")

    provides = frozenset({Acts})

    def load(self, rng: Rng) -> Acts:
        """Return the protocol."""
        return _Protocol(self.kind)


@dataclass(frozen=True)
class _Protocol:
    kind: str

    def act(self, observation: Evaluation, rng: Rng) -> dict[str, float]:
        n = len(observation.inputs)
        if self.kind in ("random", "cluster"):
            test = self._random(n, rng) if self.kind == "random" else _clusters(observation, rng)
            train, test = np.flatnonzero(~test), np.flatnonzero(test)
            return {name: observation.error(name, train, test) for name in observation.learners}
        grid = threshold_grid()
        similar = similarities(observation.inputs, gaussian, minimum=grid[0])
        seed = rng.seed_for_request()
        parts = usable_partitions(similar, grid, test_size=_TEST, seed=seed)
        weights = None
        if self.kind == "weighted":
            met = nearest(observation.deployment, observation.inputs, gaussian)
            weights = deployment_weights(met, [each.threshold for each in parts])
        return {
            name: au_good(
                {each.threshold: observation.error(name, each.train, each.test) for each in parts},
                weights,
            )
            for name in observation.learners
        }

    @staticmethod
    def _random(n: int, rng: Rng) -> np.ndarray:
        return rng.numpy().permutation(n) < _TEST * n


def _clusters(seen: Evaluation, rng: Rng) -> np.ndarray:
    """Return the mask of rows in random clusters, as many as fit into a fifth of the rows."""
    from scipy.cluster.hierarchy import fcluster, linkage

    found = fcluster(linkage(seen.inputs, "average"), _APART, "distance") - 1
    sizes = np.bincount(found)
    chosen = np.zeros(len(sizes), bool)
    for cluster in rng.numpy().permutation(len(sizes)):
        chosen[cluster] = sizes[chosen].sum() + sizes[cluster] <= _TEST * len(found)
    if not chosen.any() and len(sizes) > 1:
        chosen[sizes.argmin()] = True
    if not chosen.any():
        raise UnitError("All rows are one cluster, so none can be held out.", "one_cluster")
    return np.asarray(chosen[found])


@dataclass(frozen=True)
class DeploymentForecast(Task):
    r"""Foretell the error of four learners in a deployment of known truth.

    A unit is one world: labelled rows in clusters, and a deployment of which a share, the unit's
    novelty, comes from clusters that no label is known of. Scores:

    - ``absolute_error``: mean over learners of :math:`|\hat e - e|`, with :math:`e` the true mean
      absolute error in deployment after training on all labelled rows;
    - ``kendall``: Kendall's correlation of the learners' foretold and true order;
    - ``regret``: the true error of the learner that is foretold to be best, less that of the best;
    - ``bias``: mean of :math:`\hat e - e`.

    Parameters
    ----------
    worlds
        How many units.
    novelty
        Range that each unit's novelty is drawn from, in [0, 1].
    clusters
        Clusters with labelled rows, of 1 to 13 rows each.
    offset
        Standard deviation of the clusters' offsets.
    met
        Rows of the deployment that protocols see; truth rests on 4,000 others.

    Examples
    --------
    >>> units = list(DeploymentForecast(worlds=2).units(Rng(0)))
    >>> 0 <= units[1].content["novelty"] <= 1
    True
    """

    worlds: int = between(1, 1_000_000, default=200)
    novelty: tuple[float, float] = between(0.0, 1.0, default=(0.0, 1.0))
    clusters: int = between(10, 1000, default=40)
    offset: float = between(0.0, 100.0, default=1.0)
    met: int = between(1, 100_000, default=300)

    needs = frozenset({Acts})
    scores = (
        ScoreSpec("absolute_error", higher_is_better=False, low=0.0),
        ScoreSpec("kendall", low=-1.0, high=1.0),
        ScoreSpec("regret", higher_is_better=False, low=0.0),
        ScoreSpec("bias", higher_is_better=None),
    )

    def check(self) -> None:
        """Refuse an empty range."""
        if self.novelty[0] > self.novelty[1]:
            raise UsageError(
                f"DeploymentForecast: novelty must rise, as in [0.2, 0.8], got {self.novelty}."
            )

    @classmethod
    def tiny(cls) -> Self:
        """Return a few small worlds."""
        return cls(worlds=12, clusters=12)

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a world: its seed and its novelty."""
        return [self._unit(index, rng.child("world", index)) for index in range(self.worlds)]

    def perform(self, subject: Acts, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Let the protocol foretell each deployment; all arms see the same worlds."""
        return [self._play(subject, unit, rng.child(unit.id)) for unit in units]

    def oracle(self) -> Any:
        """Return a protocol that knows the truth of what it sees."""
        return _Oracle()

    def constant(self) -> Any:
        """Return a protocol that foretells no error, and no order."""
        return _Says(dict.fromkeys(LEARNERS, 0.0))

    def _unit(self, index: int, rng: Rng) -> Unit:
        generator = rng.numpy()
        novelty = float(generator.uniform(*self.novelty))
        content = {"novelty": novelty, "seed": int(generator.integers(2**31))}
        return Unit(f"world-{index:05d}", content=content)

    def _play(self, subject: Acts, unit: Unit, rng: Rng) -> Outcome:
        seed, novelty = unit.content["seed"], unit.content["novelty"]
        seen, truth = _world(self, seed, novelty)
        found = subject.act(seen, rng)
        if set(found) != set(truth) or not np.isfinite(list(found.values())).all():
            raise UnitError(
                "The protocol must foretell a finite error of every learner.", "garbage"
            )
        told, true = (np.array([each[name] for name in truth]) for each in (found, truth))
        return Outcome(
            unit.id,
            {
                "absolute_error": float(np.abs(told - true).mean()),
                "kendall": _kendall(told, true),
                "regret": float(true[told.argmin()] - true.min()),
                "bias": float((told - true).mean()),
            },
            output={"foretold": found, "true": truth},
        )


@functools.lru_cache(maxsize=2048)
def _world(
    task: DeploymentForecast, seed: int, novelty: float
) -> tuple[Evaluation, dict[str, float]]:
    rng = Rng(seed)
    world = ClusteredRegression.draw(rng.child("world"), clusters=task.clusters, offset=task.offset)
    known = world.labelled(rng.child("labelled"))
    met = world.deployment(task.met, novelty, rng.child("met"))
    later = world.deployment(4000, novelty, rng.child("truth"))
    truth = {
        name: float(np.abs(learn(known.inputs, known.targets, later.inputs) - later.targets).mean())
        for name, learn in LEARNERS.items()
    }
    seen = Evaluation(known.inputs, known.targets, met.inputs, LEARNERS)
    _truths[seen] = truth
    return seen, truth


def _kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Return Kendall's correlation; pairs that one of the two ties count for neither."""
    i, j = np.triu_indices(len(a), k=1)
    return float((np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])).mean())


class _Oracle:
    def act(self, observation: Evaluation, rng: Rng) -> dict[str, float]:
        return _truths[observation]


@dataclass(frozen=True, eq=False)
class _Says:
    answer: dict[str, float]

    def act(self, observation: Evaluation, rng: Rng) -> dict[str, float]:
        return self.answer
