r"""Bradley-Terry ratings of models from how pairs of them compare.

Bradley and Terry (1952) give every model a score :math:`s_i` on a log scale:

.. math:: P(i \text{ beats } j) = \sigma(s_i - s_j).

The likelihood rests on how often each pair met and how it went, so comparisons are counted
first: a million of them cost no more than the table. Ties are half a win to both, or have a
parameter of their own: Davidson (1970), Rao and Kupper (1967). Standard errors are sandwich
estimates; comparisons on the same prompt, or in the same cluster, are not independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from equipoise.core import Rng, UsageError
from equipoise.kit import progress
from equipoise.kit.statistics._common import Array, Codes, check_draws, check_level, critical
from equipoise.kit.statistics._pair_fit import (
    check_settled,
    cyclic_share,
    fit,
    lack_of_fit,
    sandwich,
    settled,
)
from equipoise.kit.statistics._pair_tables import Rows, Ties, rows_of, rows_of_table
from equipoise.kit.statistics.comparisons import Comparisons

ELO = 400 / math.log(10)
"""Points of Elo a unit of the log scale: 400 points are odds of ten to one."""

ROUGH = 1e-5
"""The last Newton step of a resample; the error is about its square."""

BLOCK = 1_000_000
"""Numbers that a block of resamples holds at once, about."""


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """A fitted Bradley-Terry model; see `bradley_terry`.

    Parameters
    ----------
    models
        Names.
    scores
        Log strengths of mean 0, shape ``(m,)``.
    covariance
        Of ``scores``, shape ``(m, m)``: sandwich over clusters, prompts or rows.
    tie
        Davidson's ``log nu`` or Rao and Kupper's ``log theta``; NaN for ``ties="half"``.
    wins
        How often the row's model beat the column's, ties half, shape ``(m, m)``.
    clusters
        How many clusters or prompts; None where every comparison counts by itself.
    misfit
        Pearson's chi-squared of the pairs over its degrees of freedom: about 1 where the model
        holds, more where preferences go in circles. NaN where pairs are no more than scores.
    misfit_p
        Its p-value; NaN where comparisons share clusters.
    cyclic
        Share of what pairs differ by that no ranking explains, 0 for a pure ranking, 1 for a pure
        circle, such as rock, paper, scissors. Noise counts too.
    """

    models: tuple[str, ...]
    scores: Array
    covariance: Array
    tie: float
    wins: Array
    clusters: int | None
    misfit: float
    misfit_p: float
    cyclic: float

    @property
    def se(self) -> Array:
        """Standard errors of the scores, each against the mean of all."""
        return np.sqrt(np.maximum(self.covariance.diagonal(), 0))

    @property
    def elo(self) -> Array:
        """Scores in points of Elo around 1000."""
        return 1000 + ELO * self.scores

    @property
    def games(self) -> Array:
        """How many comparisons each model was in."""
        return np.asarray((self.wins + self.wins.T).sum(axis=1))

    @property
    def df(self) -> float:
        """Degrees of freedom of the standard errors."""
        return math.inf if self.clusters is None else self.clusters - 1.0

    def ends(self, level: float = 0.95) -> tuple[Array, Array]:
        """Return both ends of each score's interval."""
        check_level(level, "bradley_terry")
        reach = critical(level, self.df) * self.se
        return self.scores - reach, self.scores + reach

    def draws(self, count: int, rng: Rng) -> Array:
        """Return scores drawn from their normal law, shape ``(count, m)``."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        z = rng.numpy().standard_normal((count, len(self.models)))
        return np.asarray(self.scores + z @ root.T)


def bradley_terry(
    comparisons: Comparisons | npt.ArrayLike, *, ties: Ties = "half", prior: float = 0.0
) -> BradleyTerry:
    r"""Fit a Bradley-Terry model by maximum likelihood.

    With ``ties="davidson"``, :math:`P(i), P(j), P(\text{tie}) \propto e^{s_i}, e^{s_j},
    \nu e^{(s_i+s_j)/2}`; with ``"rao-kupper"``, :math:`P(i) = \sigma(s_i - s_j - \log\theta)`.

    Parameters
    ----------
    comparisons
        `Comparisons`, or a table ``(m, m)`` of how often the row's model beat the column's (shares
        allowed); models are then named by their place.
    ties
        ``"half"`` a win to both, ``"davidson"`` or ``"rao-kupper"``.
    prior
        How many ties with an average model, of score 0, every model is imagined to have had. It
        pulls scores together a little and keeps them finite; 0 is maximum likelihood.

    Returns
    -------
    BradleyTerry
        Scores, covariance, and how well one scale fits. Rows of a cluster, else of a prompt, are
        taken as dependent; without either, rows are independent.

    Raises
    ------
    UsageError
        If fewer than two models are there, groups of models never met, or the likelihood has no
        maximum since some models never lost to the others; both unless there is a prior.

    References
    ----------
    Bradley and Terry, "Rank Analysis of Incomplete Block Designs", Biometrika 1952.

    Examples
    --------
    >>> fit = bradley_terry([[0, 3], [1, 0]])
    >>> (fit.scores[0] - fit.scores[1]).round(6) == np.log(3).round(6)
    np.True_
    """
    models, rows = _rows(comparisons, ties, prior)
    counts = rows.counts()
    check_settled(models, rows.pairs, counts, ties, prior)
    s, t = fit(rows.pairs, counts, ties, prior)
    won, lost = counts[0] + counts[2] / 2, counts[1] + counts[2] / 2
    wins = np.zeros((len(models), len(models)))
    wins[rows.pairs.first, rows.pairs.second] = won
    wins[rows.pairs.second, rows.pairs.first] = lost
    return BradleyTerry(
        models,
        s - s.mean(),
        sandwich(rows, counts, s, t, ties, prior),
        math.nan if ties == "half" else float(t),
        wins,
        rows.clusters,
        *lack_of_fit(rows, counts, s, t, ties),
        cyclic_share(rows.pairs, won, lost),
    )


def bradley_terry_draws(
    comparisons: Comparisons | npt.ArrayLike,
    *,
    ties: Ties = "half",
    prior: float = 0.0,
    draws: int = 1000,
    rng: Rng,
) -> Array:
    """Return Bradley-Terry scores of resampled comparisons, shape ``(draws, m)``, rows of mean 0.

    Clusters, else prompts, else single comparisons are drawn with replacement. Single ones are
    drawn as counts of the table, which has the same law and costs no more for a million of them.
    A resample without a maximum, since some model won or lost all, has a prior of 1.

    Parameters
    ----------
    comparisons, ties, prior
        As for `bradley_terry`, and the same errors.
    draws
        Resamples, at least 100.
    rng
        Stream for the draws.

    Examples
    --------
    >>> drawn = bradley_terry_draws([[0, 30], [10, 0]], draws=100, rng=Rng(0))
    >>> drawn.shape
    (100, 2)
    """
    check_draws(draws, "bradley_terry")
    models, rows = _rows(comparisons, ties, prior)
    counts = rows.counts()
    check_settled(models, rows.pairs, counts, ties, prior)
    start = fit(rows.pairs, counts, ties, prior)
    generator = rng.numpy()
    m, out = len(models), np.empty((draws, len(models)))
    step = max(1, BLOCK // max(m * m, counts.size, len(rows.times)))
    for begin in range(0, draws, step):
        taken = rows.drawn(min(step, draws - begin), generator)
        good = np.array([settled(rows.pairs, each, ties, prior) for each in taken])
        if ties != "half":  # a resample without a tie, or of ties alone, gets one of each
            taken[~good] += np.array([0.25, 0.25, 0.5])[:, None] / taken.shape[-1]
        part = out[begin : begin + step]
        for which, weight in ((good, prior), (~good, prior or 1.0)):
            if which.any():
                part[which] = fit(rows.pairs, taken[which], ties, weight, start, ROUGH)[0]
        progress.report("resampling Bradley-Terry", begin + len(taken), draws)
    return np.asarray(out - out.mean(axis=1, keepdims=True))


def rank_ranges(scores: npt.ArrayLike, draws: npt.ArrayLike, *, level: float = 0.95) -> Codes:
    r"""Return the ranks each model may have, all at once at the level, shape ``(m, 2)``.

    A model is surely better than another where their difference is beyond
    :math:`c\,\mathrm{se}_{ij}`; :math:`c` is the quantile of the largest of all
    :math:`|\Delta^*_{ij} - \Delta_{ij}| / \mathrm{se}_{ij}` over draws. Its best rank is 1 and one
    for each that is surely better, its worst one leaves room for those that are surely worse.

    Parameters
    ----------
    scores
        Shape ``(m,)``, higher is better.
    draws
        Scores of resamples or from their law, shape ``(draws, m)``.
    level
        Chance that all ranks are within their ranges.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(size=(1000, 3))
    >>> rank_ranges([0, 1, 9], np.array([0, 1, 9]) + noise).tolist()
    [[2, 3], [2, 3], [1, 1]]
    """
    check_level(level, "rank_ranges")
    s, star = np.asarray(scores, float), np.asarray(draws, float)
    star = star - star.mean(axis=0)
    m = len(s)
    most = np.zeros(len(star))
    spread = np.empty((m, m))
    for i in range(m):
        apart = star - star[:, [i]]
        spread[i] = apart.std(axis=0)
        scale = np.where(spread[i] > 0, spread[i], np.inf)
        np.maximum(most, np.abs(apart / scale).max(axis=1), out=most)
    reach = float(np.quantile(most, level)) * spread
    ahead = s[:, None] - s > reach
    return np.stack([1 + ahead.sum(axis=0), m - ahead.sum(axis=1)], axis=1)


def _rows(
    comparisons: Comparisons | npt.ArrayLike, ties: Ties, prior: float
) -> tuple[tuple[str, ...], Rows]:
    who = "bradley_terry"
    if ties not in ("half", "davidson", "rao-kupper"):
        raise UsageError(f"{who}: ties must be 'half', 'davidson' or 'rao-kupper', got {ties!r}.")
    if not 0 <= prior < math.inf:
        raise UsageError(f"{who}: prior must be at least 0, got {prior}.")
    if isinstance(comparisons, Comparisons):
        models, rows = comparisons.models, rows_of(comparisons, ties)
    elif ties != "half":
        raise UsageError(f'{who}: a table of wins has no ties; give Comparisons for ties="{ties}".')
    else:
        rows = rows_of_table(comparisons)
        models = tuple(map(str, range(rows.pairs.m)))
    if len(models) < 2:
        raise UsageError(f"{who}: one model cannot be compared; at least two are needed.")
    if rows.clusters == 1:
        raise UsageError(f"{who}: all comparisons share one cluster; at least two are needed.")
    return models, rows
