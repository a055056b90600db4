from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from equipoise.core import Rng, UnitError, UsageError
from equipoise.kit.worlds.clustered_regression import LEARNERS, gaussian
from equipoise.methods.shift import DeploymentForecast, EvaluationProtocol
from equipoise.methods.shift.evaluation_protocols import _kendall, _world


def _play(kind, task):
    subject = EvaluationProtocol(kind).load(Rng(0))
    found = task.perform(subject, task.units(Rng(1)), Rng(2))
    return {name: np.array([each.scores[name] for each in found]) for name in found[0].scores}


def test_memorisers_win_at_home_and_lose_abroad():
    errors = {name: [] for name in LEARNERS}
    for seed in range(12):
        for novelty in (0.0, 1.0):
            truth = _world(DeploymentForecast(), seed, novelty)[1]
            for name, value in truth.items():
                errors[name].append(value)
    home = {name: np.mean(found[::2]) for name, found in errors.items()}
    away = {name: np.mean(found[1::2]) for name, found in errors.items()}
    assert min(home, key=home.get) == "nearest"
    assert max(away, key=away.get) == "nearest"
    assert home["nearest"] < 0.5 * away["nearest"]


def test_random_split_is_right_at_home_and_too_hopeful_abroad():
    home = _play("random", DeploymentForecast(worlds=12, novelty=(0.0, 0.0)))
    away = _play("random", DeploymentForecast(worlds=12, novelty=(1.0, 1.0)))
    assert abs(home["bias"].mean()) < 0.15
    assert away["bias"].mean() < -0.3
    assert home["absolute_error"].mean() < away["absolute_error"].mean()


def test_weights_follow_the_deployment():
    away = DeploymentForecast(worlds=12, novelty=(0.9, 1.0))
    assert _play("weighted", away)["absolute_error"].mean() < (
        _play("random", away)["absolute_error"].mean()
    )
    home = DeploymentForecast(worlds=12, novelty=(0.0, 0.1))
    assert _play("weighted", home)["absolute_error"].mean() < (
        _play("uniform", home)["absolute_error"].mean()
    )


def test_cluster_split_keeps_clusters_whole():
    task = DeploymentForecast(worlds=1)
    unit = task.units(Rng(1))[0]
    seen, _ = _world(task, unit.content["seed"], unit.content["novelty"])
    from equipoise.methods.shift.evaluation_protocols import _clusters

    test = _clusters(seen, Rng(0))
    assert 0.1 < test.mean() <= 0.2
    near = gaussian(seen.inputs[test], seen.inputs[~test]).max(axis=1)
    plain = np.random.default_rng(0).permutation(len(test)) < test.sum()
    assert np.median(near) < np.median(
        gaussian(seen.inputs[plain], seen.inputs[~plain]).max(axis=1)
    )
    one = replace(seen, inputs=seen.inputs * 1e-3)
    with pytest.raises(UnitError, match="one cluster"):
        _clusters(one, Rng(0))


def test_oracle_knows_and_protocols_see_no_truth():
    task = DeploymentForecast(worlds=3)
    found = task.perform(task.oracle(), task.units(Rng(0)), Rng(0))
    for each in found:
        assert each.scores["absolute_error"] == 0.0
        assert each.scores["kendall"] == 1.0
        assert each.scores["regret"] == 0.0


def test_kendall_is_scipys():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.random(6), rng.random(6)
        assert _kendall(a, b) == pytest.approx(stats.kendalltau(a, b)[0])
    assert _kendall(np.zeros(4), np.arange(4)) == 0.0


def test_bad_input_is_told():
    with pytest.raises(UsageError, match="novelty must rise"):
        DeploymentForecast(novelty=(0.8, 0.2))
