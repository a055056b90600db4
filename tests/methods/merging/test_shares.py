from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.methods.merging.shares import (
    NormalizedAccuracy,
    TargetControlTradeoff,
    normalized_accuracy,
    target_control_tradeoff,
)

# ViT-B/32 fine-tuned on EuroSAT, from the published notebook: zero-shot, fine-tuned, alpha 0.1.
PUBLISHED = {
    "EuroSAT": (0.4650, 0.9987, 0.9870),
    "DTD": (0.4399, 0.3750, 0.4383),
    "SUN397": (0.6316, 0.5260, 0.6198),
    "MNIST": (0.4826, 0.3735, 0.5552),
    "RESISC45": (0.6067, 0.3102, 0.4651),
    "GTSRB": (0.3260, 0.2560, 0.3432),
    "Cars": (0.5973, 0.4665, 0.5804),
    "SVHN": (0.3163, 0.1850, 0.3391),
}


def test_published_numbers_give_the_papers_trade_off():
    table = np.array(list(PUBLISHED.values()))
    found = target_control_tradeoff(
        table[0, 1:], table[1:, 1:].T, fine_tuned=table[0, 1], zero_shot=table[1:, 0]
    )
    assert found.shape == (2, 2)
    assert found[:, 0] == pytest.approx([1.0, 0.9870 / 0.9987])
    by_hand = [np.mean([v[k] / v[0] for v in list(PUBLISHED.values())[1:]]) for k in (1, 2)]
    assert found[:, 1] == pytest.approx(by_hand)
    assert found[0, 1] < 0.75
    assert found[1, 1] > 0.97


def test_a_share_is_a_mean_of_ratios_not_a_ratio_of_means():
    x = [1, 0, 0, 0] + [1] * 8
    y = [1, 1, 1, 1] + [1] * 4 + [0] * 4
    tasks = ["a"] * 4 + ["b"] * 8
    assert normalized_accuracy(x, y, tasks).value == pytest.approx((0.25 + 2.0) / 2)
    assert normalized_accuracy(x, y).value == pytest.approx(9 / 8)


def test_one_task_has_the_interval_of_a_ratio():
    from equipoise.kit.statistics.ratios import ratio

    draw = Rng(1).numpy()
    y = (draw.random(2000) < 0.8).astype(float)
    x = y * (draw.random(2000) < 0.9)
    one, two = normalized_accuracy(x, y), ratio(x, y, rng=Rng(0), draws=4000)
    assert one.value == pytest.approx(two.value)
    assert (one.low, one.high) == pytest.approx((two.low, two.high), abs=0.002)


def test_tasks_at_chance_are_left_out():
    x, y = [1, 1, 0, 1], [0, 0, 1, 1]
    found = normalized_accuracy(x, y, ["a", "a", "b", "b"])
    assert found.value == 0.5
    assert found.note.endswith("Left out, because the reference is at chance: a.")
    with pytest.raises(UsageError, match="the reference is not above 1 in any task"):
        normalized_accuracy(x, y, ["a", "a", "b", "b"], chance=1.0)


def test_bad_columns_are_refused():
    with pytest.raises(UsageError, match="give rows of one length"):
        normalized_accuracy([1, 0], [1])
    with pytest.raises(UsageError, match="scores must be finite"):
        normalized_accuracy([1, float("nan")], [1, 1])
    with pytest.raises(UsageError, match="control must be"):
        target_control_tradeoff([1.0], [[0.5]], fine_tuned=1.0, zero_shot=[0.5, 0.5])
    with pytest.raises(UsageError, match="must be above 0"):
        target_control_tradeoff([1.0], [[0.5]], fine_tuned=1.0, zero_shot=[0.0])


def test_clusters_widen_the_interval():
    draw = Rng(2).numpy()
    y = np.repeat(draw.random(60) < 0.8, 10).astype(float)
    x = np.repeat(draw.random(60) < 0.6, 10) * y
    alone = normalized_accuracy(x, y)
    together = normalized_accuracy(x, y, clusters=np.repeat(np.arange(60), 10))
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_a_score_where_less_is_better_has_no_share():
    rows = Outcomes.of(specs=[ScoreSpec("loss", False)], loss=[1.0, 2.0])
    with pytest.raises(UsageError, match="A share of loss says nothing"):
        NormalizedAccuracy().measure((rows, rows), Rng(0))


def test_the_trade_off_matches_one_build_with_several():
    part = TargetControlTradeoff(("target",), zero_shot="zero_shot")
    outcomes, _ = part.simulate(Rng(0))
    tuned = outcomes["fine_tuned"]
    n = len(tuned)
    twice = replace(tuned.take(np.tile(np.arange(n), 2)), build=np.repeat([0, 1], n))
    found = part.measure({**outcomes, "fine_tuned": twice}, Rng(0))
    once = part.measure(outcomes, Rng(0))
    for name in ("edited target", "zero_shot control", "fine_tuned control"):
        assert found[name].value == pytest.approx(once[name].value)
    with pytest.raises(UsageError, match='there is no arm "pretrained" on this task; it has'):
        TargetControlTradeoff(("target",)).measure(outcomes, Rng(0))
    with pytest.raises(UsageError, match='there is no stratum "x"; there are target, control 1'):
        TargetControlTradeoff(("x",), zero_shot="zero_shot").measure(outcomes, Rng(0))
