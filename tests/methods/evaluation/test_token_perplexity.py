import math

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.evaluation import bits_per_byte, log_likelihood_per_token, perplexity
from equipoise.methods.evaluation.token_perplexity import (
    BitsPerByte,
    LogLikelihoodPerToken,
    TokenPerplexity,
)

RNG = Rng(0)


def texts(generator, units=100):
    tokens = generator.integers(20, 200, units).astype(float)
    rate = generator.normal(-2.5, 0.4, units)
    return rate * tokens + generator.normal(0, 1, units) * np.sqrt(tokens), tokens


def test_values():
    total, tokens = texts(np.random.default_rng(0))
    assert perplexity(total, tokens).value == pytest.approx(math.exp(-total.sum() / tokens.sum()))
    assert log_likelihood_per_token(total, tokens).value == pytest.approx(
        total.sum() / tokens.sum()
    )
    # A uniform guess over 256 bytes costs eight bits each.
    assert bits_per_byte([-3 * math.log(256), -5 * math.log(256)], [3, 5]).value == pytest.approx(8)


def test_equal_lengths_are_the_mean():
    from scipy import stats

    total = np.random.default_rng(1).normal(-50, 5, 30)
    found = log_likelihood_per_token(total, np.full(30, 20))
    low, high = stats.t.interval(0.95, 29, (total / 20).mean(), stats.sem(total / 20))
    assert (found.low, found.high) == pytest.approx((low, high))
    ppl = perplexity(total, np.full(30, 20))
    assert (ppl.low, ppl.high) == pytest.approx((math.exp(-high), math.exp(-low)))


def test_ends_change_places_with_the_sign():
    total, tokens = texts(np.random.default_rng(2))
    per, bits = log_likelihood_per_token(total, tokens), bits_per_byte(total, tokens)
    assert bits.low == pytest.approx(-per.high / math.log(2))
    assert bits.high == pytest.approx(-per.low / math.log(2))


def test_covers_with_and_without_clusters():
    generator = np.random.default_rng(3)
    for clustered in (False, True):
        hits, runs = 0, 500
        for _ in range(runs):
            tokens = generator.integers(20, 200, 120).astype(float)
            groups = np.arange(120) // 4 if clustered else None
            rate = np.repeat(generator.normal(-2.5, 0.4, 30), 4)
            if not clustered:
                rate = generator.normal(-2.5, 0.4, 120)
            found = perplexity(rate * tokens, tokens, clusters=groups, level=0.9)
            hits += found.low <= math.exp(2.5) <= found.high
        assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


def test_parts():
    total, tokens = texts(np.random.default_rng(4))
    total[3] = math.nan
    rows = Outcomes.of(log_likelihood=total, tokens=tokens, bytes=4 * tokens)
    keep = ~np.isnan(total)
    for part, function, size in (
        (TokenPerplexity(), perplexity, tokens),
        (LogLikelihoodPerToken(), log_likelihood_per_token, tokens),
        (BitsPerByte(), bits_per_byte, 4 * tokens),
    ):
        found, wanted = part.measure(rows, RNG), function(total[keep], size[keep])
        assert (found.value, found.low, found.high) == (wanted.value, wanted.low, wanted.high)
        assert "1 of 100 rows" in found.note
        assert part.statistic(rows) == pytest.approx(found.value)
        assert part.better(rows) is (function is log_likelihood_per_token)
        again = part.measure(rows.take(np.random.default_rng(0).permutation(100)), RNG)
        assert (again.low, again.high) == pytest.approx((found.low, found.high))


def test_refusals():
    with pytest.raises(UsageError, match="at least one token"):
        perplexity([-1.0, -2.0], [0, 3])
    with pytest.raises(UsageError, match="one size a unit"):
        perplexity([-1.0, -2.0], [3])
    with pytest.raises(UsageError, match='No score "tokens"'):
        TokenPerplexity().measure(Outcomes.of(log_likelihood=[-1, -2]), RNG)
