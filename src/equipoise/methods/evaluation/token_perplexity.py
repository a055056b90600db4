r"""Perplexity, log-likelihood per token and bits per byte, from sums a unit.

All three are a ratio of sums over units, :math:`R = \sum_i L_i / \sum_i T_i`,
not a mean of ratios: long units weigh more, as in one long text. Its interval
is that of the mean of :math:`R + (L_i - R T_i) / \bar T` (delta method), which
respects clusters and builds; perplexity's is its exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from equipoise.core import Estimate, Measure, Outcomes, Rng, UsageError, between
from equipoise.kit.statistics import single
from equipoise.kit.statistics.columns import builds_of, complete, noted, repeated, rows_of

Column = np.ndarray | Sequence[float]


def log_likelihood_per_token(
    log_likelihood: Column,
    tokens: Column,
    *,
    units: Column | None = None,
    clusters: Column | None = None,
    builds: Column | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Mean log-likelihood of a token, :math:`\sum L_i / \sum T_i`, in nats.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of each unit's text in nats, shape ``(n,)``.
    tokens
        How many tokens it has.
    units, clusters, builds
        Unit, cluster and build of each row, as for `mean`.
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> log_likelihood_per_token([-10.0, -30.0], [5, 5]).value
    -4.0
    """
    total, size = np.asarray(log_likelihood, float), np.asarray(tokens, float)
    if total.shape != size.shape:
        raise UsageError(
            f"log_likelihood_per_token: give one size a unit, got {size.shape} for {total.shape}."
        )
    if not (size > 0).all():
        raise UsageError("log_likelihood_per_token: every unit must have at least one token.")
    value = float(total.sum() / size.sum())
    around = value + (total - value * size) / size.mean()
    found = single.mean(around, units=units, clusters=clusters, builds=builds, level=level)
    return replace(found, value=value, method=f"delta, {found.method}")


def perplexity(
    log_likelihood: Column,
    tokens: Column,
    *,
    units: Column | None = None,
    clusters: Column | None = None,
    builds: Column | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Perplexity, :math:`\exp(-\sum L_i / \sum T_i)`, with an interval on the log scale.

    Parameters are those of `log_likelihood_per_token`.

    Examples
    --------
    >>> round(perplexity([-10.0, -30.0], [5, 5]).value, 3)
    54.598
    """
    found = log_likelihood_per_token(
        log_likelihood, tokens, units=units, clusters=clusters, builds=builds, level=level
    )
    return replace(
        _turned(found, _exp),
        method=f"{found.method}, log scale",
        details={**found.details, "log_perplexity": -found.value},
    )


def bits_per_byte(
    log_likelihood: Column,
    size: Column,
    *,
    units: Column | None = None,
    clusters: Column | None = None,
    builds: Column | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Bits a byte of text costs, :math:`-\sum L_i / (\ln 2 \sum B_i)`.

    Unlike perplexity it compares models with different tokenizers. ``size`` is
    each text's length in bytes; the other parameters are those of
    `log_likelihood_per_token`.

    Examples
    --------
    >>> round(bits_per_byte([-10.0, -30.0], [20, 20]).value, 3)
    1.443
    """
    found = log_likelihood_per_token(
        log_likelihood, size, units=units, clusters=clusters, builds=builds, level=level
    )
    return _turned(found, lambda x: x / math.log(2))


def _turned(found: Estimate, scale: Callable[[float], float]) -> Estimate:
    """Return an estimate of the loss, scaled: the ends change places."""
    value, low, high = (scale(-each) for each in (found.value, found.high, found.low))
    return replace(found, value=value, low=low, high=high)


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def _measured(
    part: str, outcomes: Outcomes, function: Callable[..., Estimate], size: str, level: float
) -> Estimate:
    rows, note = complete(part, outcomes, "log_likelihood", size)
    several = repeated(rows)
    found = function(
        rows.score("log_likelihood"),
        rows.score(size),
        units=rows.unit if several else None,
        clusters=rows.cluster,
        builds=builds_of(rows),
        level=level,
    )
    return noted(found, note)


def _per(part: str, outcomes: Outcomes, size: str) -> float:
    rows, _ = complete(part, outcomes, "log_likelihood", size)
    return float(rows.score("log_likelihood").sum() / rows.score(size).sum())


def _texts(size: str, rng: Rng) -> Outcomes:
    generator = rng.numpy()
    length = generator.integers(20, 200, 100).astype(float)
    loss = generator.normal(2.5, 0.4, 100)
    return rows_of({"log_likelihood": -loss * length, size: length})


@dataclass(frozen=True)
class TokenPerplexity(Measure):
    """Perplexity over all tokens, from the scores ``log_likelihood`` and ``tokens``.

    Parameters
    ----------
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(log_likelihood=[-10, -30], tokens=[5, 5])
    >>> round(TokenPerplexity().statistic(outcomes), 3)
    54.598
    """

    higher_is_better = False

    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 100 texts of random lengths at 2.5 nats a piece."""
        return _texts("tokens", rng), math.exp(2.5)

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return perplexity; ``rng`` is not used."""
        return _measured("TokenPerplexity", outcomes, perplexity, "tokens", self.level)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return perplexity alone."""
        return _exp(-_per("TokenPerplexity", outcomes, "tokens"))


@dataclass(frozen=True)
class LogLikelihoodPerToken(Measure):
    """Mean log-likelihood of a token in nats, from ``log_likelihood`` and ``tokens``.

    Parameters
    ----------
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(log_likelihood=[-10, -30], tokens=[5, 5])
    >>> LogLikelihoodPerToken().statistic(outcomes)
    -4.0
    """

    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 100 texts of random lengths at 2.5 nats a piece."""
        return _texts("tokens", rng), -2.5

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the mean; ``rng`` is not used."""
        function = log_likelihood_per_token
        return _measured("LogLikelihoodPerToken", outcomes, function, "tokens", self.level)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the mean alone."""
        return _per("LogLikelihoodPerToken", outcomes, "tokens")


@dataclass(frozen=True)
class BitsPerByte(Measure):
    """Bits a byte of text costs, from the scores ``log_likelihood`` and ``bytes``.

    Parameters
    ----------
    level
        Coverage the interval aims for.

    Examples
    --------
    >>> outcomes = Outcomes.of(log_likelihood=[-10, -30], bytes=[20, 20])
    >>> round(BitsPerByte().statistic(outcomes), 3)
    1.443
    """

    higher_is_better = False

    level: float = between(0.5, 0.9999999, default=0.95)

    def simulate(self, rng: Rng) -> tuple[Outcomes, float]:
        """Return 100 texts of random lengths at 2.5 nats a piece."""
        return _texts("bytes", rng), 2.5 / math.log(2)

    def measure(self, outcomes: Outcomes, rng: Rng) -> Estimate:
        """Return the cost; ``rng`` is not used."""
        return _measured("BitsPerByte", outcomes, bits_per_byte, "bytes", self.level)

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the cost alone."""
        return -_per("BitsPerByte", outcomes, "bytes") / math.log(2)
