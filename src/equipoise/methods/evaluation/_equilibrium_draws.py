"""Resampling comparisons for ratings at an equilibrium: what is independent, and within what."""

from __future__ import annotations

import numpy as np

from equipoise.kit.statistics.comparisons import Comparisons
from equipoise.methods.evaluation._equilibrium_game import Actions, Array


def independent(comparisons: Comparisons, actions: Actions) -> tuple[Array, Array]:
    """Return which group each row is drawn with, and the stratum each group is drawn within.

    Prompts that are actions themselves are drawn with their clusters, all from one stratum. Where
    clusters are the actions, or all comparisons are one, what is pooled is drawn: prompts, or rows
    where no prompts are known.
    """
    rows = np.arange(len(comparisons))
    prompt, cluster = comparisons.prompt, comparisons.cluster
    if actions == "clusters" and cluster is not None:
        # A prompt in two clusters is drawn in each by itself.
        both = np.stack([cluster, rows if prompt is None else prompt], axis=1)
        groups, code = np.unique(both, axis=0, return_inverse=True)
        return code.ravel(), np.unique(groups[:, 0], return_inverse=True)[1]
    unit = cluster if cluster is not None else prompt if prompt is not None else rows
    code = np.unique(unit, return_inverse=True)[1]
    return code, np.zeros(code.max() + 1, np.int64)


def resampled(group: Array, stratum: Array, generator: np.random.Generator) -> Array:
    """Return how often each row is drawn, as many groups of each stratum as there were."""
    times = np.zeros(len(stratum))
    for each in range(stratum.max() + 1):
        members = np.flatnonzero(stratum == each)
        picked = members[generator.integers(len(members), size=len(members))]
        times += np.bincount(picked, minlength=len(stratum))
    return times[group]
