import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods.quantization.output_error import KINDS, LinearLayer, OutputError, activations
from equipoise.methods.quantization.rotated_runtime_smooth import (
    Rotate,
    RotatedRuntimeSmooth,
    RuntimeSmooth,
)
from equipoise.methods.quantization.round_to_nearest import RoundToNearest

ARMS = {
    "nearest": RoundToNearest(weights=16, activations=4),
    "smooth": RuntimeSmooth(weights=16, activations=4, group=1),
    "smooth_128": RuntimeSmooth(weights=16, activations=4, group=128),
    "rotated": Rotate(weights=16, activations=4),
    "rrs": RotatedRuntimeSmooth(weights=16, activations=4, group=128),
}

# Relative errors measured apart from this code (N = 512, K = 1,024, M = 256, four bits), and
# how far a single other draw may lie from them.
MEASURED = {
    "gaussian": {
        "nearest": (0.143, 0.004),
        "smooth": (0.135, 0.004),
        "smooth_128": (0.140, 0.005),
        "rotated": (0.141, 0.005),
        "rrs": (0.140, 0.005),
    },
    "zero_mean_channels": {
        "nearest": (0.238, 0.02),
        "smooth": (0.127, 0.02),
        "smooth_128": (0.171, 0.03),
        "rotated": (0.112, 0.01),
        "rrs": (0.117, 0.01),
    },
    "spikes": {
        "nearest": (0.143, 0.004),
        "smooth": (0.193, 0.005),
        "smooth_128": (0.376, 0.01),
        "rotated": (0.141, 0.005),
        "rrs": (0.142, 0.005),
    },
    "signed_channels": {
        "nearest": (0.190, 0.03),
        "smooth": (0.058, 0.01),
        "smooth_128": (0.087, 0.015),
        "rotated": (0.117, 0.03),
        "rrs": (0.072, 0.015),
    },
    # A spike that falls on a strong channel ruins plain smoothing, so its mean is not compared.
    "signed_channels_spikes": {
        "nearest": (0.190, 0.03),
        "smooth_128": (0.98, 0.03),
        "rotated": (0.117, 0.03),
        "rrs": (0.094, 0.025),
    },
}


def errors(kind, draws=3, seed=0):
    reference = LinearLayer(weight_seed=seed)
    control = reference.load(Rng(0))
    task = OutputError(reference, kind, draws=draws)
    units = list(task.units(Rng(seed)))
    return {
        arm: np.array(
            [
                outcome.scores["relative_error"]
                for outcome in task.perform(part.apply(control, Rng(seed)), units, Rng(9))
            ]
        )
        for arm, part in ARMS.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_measured_errors_come_out(kind):
    found = errors(kind)
    for arm, (value, tolerance) in MEASURED[kind].items():
        assert found[arm].mean() == pytest.approx(value, abs=tolerance), arm


def test_the_papers_order():
    both = errors("signed_channels_spikes", draws=4, seed=1)
    assert (both["rrs"] < both["nearest"]).all()
    assert (both["rrs"] < both["smooth_128"]).all()
    assert (both["rrs"] < both["rotated"]).all()
    # Where outliers have no steady sign, smoothing after a rotation does not help.
    zero_mean = errors("zero_mean_channels", draws=4, seed=1)
    assert (zero_mean["rrs"] > zero_mean["rotated"]).all()


def test_a_lone_spike_spoils_smoothing_after_a_rotation():
    reference = LinearLayer()
    control = reference.load(Rng(0))
    lost = {}
    for spikes in (1, 20):
        task = OutputError(reference, "signed_channels_spikes", draws=3, spikes=spikes)
        units = list(task.units(Rng(0)))
        for arm in ("rotated", "rrs"):
            found = task.perform(ARMS[arm].apply(control, Rng(1)), units, Rng(0))
            lost[arm, spikes] = np.mean([each.scores["relative_error"] for each in found])
    assert lost["rrs", 1] > 1.1 * lost["rotated", 1]
    assert lost["rrs", 20] < 0.9 * lost["rotated", 20]


def test_arms_see_the_same_draws():
    task = OutputError(LinearLayer.tiny(), "spikes", draws=2, tokens=32)
    control = LinearLayer.tiny().load(Rng(0))
    units = list(task.units(Rng(0)))
    one = task.perform(control, units, Rng(1))
    two = task.perform(control, units, Rng(2))
    assert [outcome.scores for outcome in one] == [outcome.scores for outcome in two]
    assert {unit.content["seed"] for unit in task.units(Rng(1))} != {
        unit.content["seed"] for unit in units
    }


def test_the_layer_follows_its_own_seed():
    one, two = (LinearLayer(8, 4).load(Rng(seed)).module.weight for seed in (0, 1))
    assert (one == two).all()
    assert not (one == LinearLayer(8, 4, weight_seed=1).load(Rng(0)).module.weight).all()


@pytest.mark.parametrize("kind", KINDS)
def test_outliers_are_as_described(kind):
    x, ordinary = activations(kind, np.random.default_rng(0), tokens=200, width=64, channels=4)
    assert x.shape == (200, 64)
    assert x.dtype == np.float32
    spiky = kind.endswith("spikes")
    assert ordinary.sum() == (180 if spiky else 200)
    assert ((np.abs(x) == 1000).sum() == 20) == spiky
    quiet = x[ordinary]
    strong = np.abs(quiet).mean(0) > 10
    assert strong.sum() == (0 if kind in ("gaussian", "spikes") else 4)
    if kind == "zero_mean_channels":
        assert np.abs(quiet[:, strong].mean(0)).max() < 15
        assert quiet[:, strong].std() == pytest.approx(50, rel=0.15)
    if kind.startswith("signed"):
        assert (np.sign(quiet[:, strong]) == np.sign(quiet[0, strong])).all()
        assert np.abs(quiet[:, strong]).mean() == pytest.approx(60, rel=0.05)
        assert np.abs(quiet[:, strong]).std() == pytest.approx(6, rel=0.2)


def test_outlier_statistics_fall_with_the_rotation():
    task = OutputError(LinearLayer(), "signed_channels", draws=1)
    control = LinearLayer().load(Rng(0))
    units = list(task.units(Rng(0)))
    plain, turned = (
        task.perform(part.apply(control, Rng(0)), units, Rng(0))[0].scores
        for part in (ARMS["nearest"], ARMS["rotated"])
    )
    assert plain["crest"] > 2 * turned["crest"]
    assert plain["channel_spread"] > 5 * turned["channel_spread"]


def test_faults_are_told():
    with pytest.raises(UsageError, match="spikes must be fewer than the 16 tokens, got 20"):
        OutputError(LinearLayer.tiny(), "spikes", tokens=16)
    task = OutputError(LinearLayer(inputs=4), "signed_channels", draws=1)
    with pytest.raises(UsageError, match="channels must be at most the 4 there are, got 8"):
        task.perform(task.oracle(), list(task.units(Rng(0))), Rng(0))
