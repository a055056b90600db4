"""How often intervals cover the truth, in the cases the guide's table is about.

Prints JSON lines: the method, the case, and the share of ``--runs`` simulated
studies whose 95 % interval held the truth. Weak cases are in on purpose.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator

import numpy as np

from equipoise.core import Estimate, Rng
from equipoise.kit.statistics import (
    BettingSequence,
    bootstrap_mean,
    mean,
    proportion,
    ratio,
)

Study = Callable[[np.random.Generator, Rng], tuple[Estimate, float]]


def exponential(n: int) -> Study:
    """Return a study of skewed scores."""
    return lambda draw, rng: (mean(draw.exponential(size=n)), 1.0)


def clustered_proportion(p: float, clusters: int, size: int) -> Study:
    """Return a study of binary scores that agree within clusters (beta-binomial)."""

    def study(draw: np.random.Generator, rng: Rng) -> tuple[Estimate, float]:
        rates = draw.beta(p * 4, (1 - p) * 4, clusters)
        x = (draw.random((clusters, size)) < rates[:, None]).astype(float).ravel()
        return proportion(x, clusters=np.repeat(np.arange(clusters), size)), p

    return study


def skewed_clusters(method: str) -> Study:
    """Return a study of 30 clusters with exponential means."""

    def study(draw: np.random.Generator, rng: Rng) -> tuple[Estimate, float]:
        x = (draw.exponential(size=30)[:, None] + draw.normal(size=(30, 5))).ravel()
        clusters = np.repeat(np.arange(30), 5)
        return bootstrap_mean(x, clusters=clusters, draws=1_000, rng=rng, method=method), 1.0

    return study


def small_ratio(n: int) -> Study:
    """Return a study of the ratio of two arms' means, 2 in truth."""

    def study(draw: np.random.Generator, rng: Rng) -> tuple[Estimate, float]:
        base = draw.gamma(4.0, size=n)
        a, b = 2 * base * draw.gamma(20, 1 / 20, n), base * draw.gamma(20, 1 / 20, n)
        return ratio(a, b, draws=1_000, rng=rng), 2.0

    return study


def builds(count: int, units: int) -> Study:
    """Return a study of crossed builds and units, each with variance of its own."""

    def study(draw: np.random.Generator, rng: Rng) -> tuple[Estimate, float]:
        table = (
            draw.normal(size=(count, 1)) * 0.3
            + draw.normal(size=(1, units))
            + draw.normal(size=(count, units))
        )
        build, unit = (grid.ravel() for grid in np.indices(table.shape))
        return mean(table.ravel(), units=unit, builds=build), 0.0

    return study


def betting(looks: int) -> Study:
    """Return a study that looks after every unit; the worst look counts."""

    def study(draw: np.random.Generator, rng: Rng) -> tuple[Estimate, float]:
        sequence = BettingSequence(0.0, 1.0)
        worst = Estimate(0.0, -np.inf, np.inf)
        for x in draw.beta(2, 3, looks):
            sequence.update(float(x))
            low, high = sequence.interval
            worst = Estimate(0.4, max(worst.low, low), min(worst.high, high))
        return worst, 0.4

    return study


def studies() -> Iterator[tuple[str, str, Study]]:
    """Yield method, case and study."""
    for n in (10, 30, 100):
        yield "t", f"exponential scores, n = {n}", exponential(n)
    yield "cr2-logit", "p = 0.9, 25 clusters of 20", clustered_proportion(0.9, 25, 20)
    for method in ("bca", "percentile", "studentized"):
        yield method, "30 skewed clusters", skewed_clusters(method)
    yield "studentized-log", "ratio, n = 20", small_ratio(20)
    yield "two-way", "2 builds, 100 units", builds(2, 100)
    yield "two-way", "5 builds, 100 units", builds(5, 100)
    yield "betting", "200 looks", betting(200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    words = parser.parse_args()
    for method, case, study in studies():
        hits = 0
        for index in range(words.runs):
            rng = Rng(0).child(method, case, index)
            found, truth = study(rng.child("data").numpy(), rng.child("method"))
            hits += found.low <= truth <= found.high
        row = {"method": method, "case": case, "covered": hits / words.runs}
        print(json.dumps(row | {"aim": 0.95, "runs": words.runs}), flush=True)


if __name__ == "__main__":
    main()
