import math

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.metrics import f1_score, roc_auc_score

from equipoise.core import Outcomes, Rng, UsageError
from equipoise.methods.evaluation import auroc, f1
from equipoise.methods.evaluation.discrimination import F1, Auroc

RNG = Rng(0)


def rows(generator, n, shift=1.0, share=0.4):
    y = (generator.random(n) < share).astype(float)
    return generator.normal(shift * y), y


@pytest.mark.parametrize("ties", [False, True])
def test_area_is_scikit_learns(ties):
    x, y = rows(np.random.default_rng(0), 150)
    x = np.round(x) if ties else x
    assert auroc(x, y).value == pytest.approx(roc_auc_score(y, x))


def test_variance_is_delongs():
    x, y = rows(np.random.default_rng(1), 80)
    up, down = x[y == 1], x[y == 0]
    wins = (up[:, None] > down) + 0.5 * (up[:, None] == down)
    variance = wins.mean(1).var(ddof=1) / len(up) + wins.mean(0).var(ddof=1) / len(down)
    assert auroc(x, y).details["se"] == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize("n", [40, 200])
def test_area_covers(n):
    generator, hits, runs = np.random.default_rng(n), 0, 800
    truth = float(ndtr(1.5 / math.sqrt(2)))
    for _ in range(runs):
        found = auroc(*rows(generator, n, 1.5), level=0.9)
        assert found.low <= found.value <= found.high
        hits += found.low <= truth <= found.high
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs) + 0.01


def test_area_covers_with_clusters():
    generator, hits, naive, runs = np.random.default_rng(2), 0, 0, 500
    truth = float(ndtr(1 / math.sqrt(2 * 1.5)))
    groups = np.repeat(np.arange(40), 5)
    for _ in range(runs):
        y = (generator.random(200) < np.repeat(generator.choice([0.1, 0.9], 40), 5)).astype(float)
        x = y + np.repeat(generator.normal(0, 1, 40), 5) + generator.normal(0, math.sqrt(0.5), 200)
        found, plain = auroc(x, y, clusters=groups, level=0.9), auroc(x, y, level=0.9)
        hits += found.low <= truth <= found.high
        naive += plain.low <= truth <= plain.high
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs) + 0.01
    assert naive / runs < 0.8  # ignoring clusters is what the test must be able to see


def test_clusters_of_one_row_are_nearly_delong():
    x, y = rows(np.random.default_rng(3), 100)
    assert auroc(x, y, clusters=np.arange(100)).low == pytest.approx(auroc(x, y).low)


def test_no_overlap_keeps_an_interval():
    found = auroc(np.arange(20.0), [0] * 10 + [1] * 10)
    assert found.value == found.high == 1.0
    # Newcombe's equation at its end: 1 - low = z sqrt(V(low)), Hanley & McNeil's V with N* = 10.
    theta = found.low
    q1, q2 = theta / (2 - theta), 2 * theta**2 / (1 + theta)
    v = (theta * (1 - theta) + 9 * (q1 - theta**2) + 9 * (q2 - theta**2)) / 100
    assert 1 - theta == pytest.approx(1.959964 * math.sqrt(v), rel=1e-5)
    assert 0.6 < found.low < 0.95
    mirrored = auroc(-np.arange(20.0), [0] * 10 + [1] * 10)
    assert (mirrored.low, mirrored.high) == pytest.approx((0.0, 1 - found.low))
    flat = auroc(np.ones(20), [0] * 10 + [1] * 10)
    assert flat.value == 0.5
    assert flat.low < 0.35


def test_f1_is_scikit_learns_and_covers():
    generator, hits, runs = np.random.default_rng(4), 0, 200
    for run in range(runs):
        y = (generator.random(200) < 0.3).astype(float)
        hat = np.where(generator.random(200) < 0.8, y, 1 - y)
        found = f1(hat, y, level=0.9, draws=300, rng=Rng(run))
        assert found.low <= found.value <= found.high
        # TP = 0.24, FP = 0.14, FN = 0.06.
        hits += found.low <= 0.48 / (0.48 + 0.14 + 0.06) <= found.high
    assert found.value == pytest.approx(f1_score(y, hat))
    assert abs(hits / runs - 0.9) < 3.5 * math.sqrt(0.09 / runs)


def test_f1_at_the_edge():
    found = f1([1] * 10 + [0] * 90, [1] * 10 + [0] * 90)
    assert found.value == found.high == 1.0
    assert found.low < 0.8  # ten rows speak for it, not a hundred
    with pytest.raises(UsageError, match="undefined"):
        f1([0, 0], [0, 0])


@pytest.mark.parametrize(
    ("part", "first"), [(Auroc(), "probability"), (F1(draws=200), "predicted")], ids=repr
)
def test_parts(part, first):
    x, y = rows(np.random.default_rng(5), 120)
    x = (x > 0.5).astype(float)
    x[7] = math.nan
    outcomes = Outcomes.of(**{first: x, "label": y})
    found = part.measure(outcomes, RNG)
    again = part.measure(outcomes.take(np.random.default_rng(0).permutation(120)), RNG)
    assert (found.low, found.value, found.high) == pytest.approx(
        (again.low, again.value, again.high)
    )
    assert found.value == pytest.approx(part.statistic(outcomes))
    assert "1 of 120 rows" in found.note


def test_refusals():
    with pytest.raises(UsageError, match="all 3 labels are 1; both must occur"):
        auroc([0.1, 0.2, 0.3], [1, 1, 1])
    with pytest.raises(UsageError, match="at least 2 units of each label, got 1 and 2"):
        auroc([0.1, 0.2, 0.3], [1, 0, 0])
    with pytest.raises(UsageError, match="one label a row"):
        auroc([0.1], [1, 0])
    with pytest.raises(UsageError, match="must be 0 or 1"):
        f1([0.5, 1], [1, 0])
