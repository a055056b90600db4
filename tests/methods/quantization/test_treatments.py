import numpy as np
import pytest
import torch

from equipoise.core import HasModule, Rng, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.quantizers import relative_error
from equipoise.methods.quantization.calibrated import GPTQ, SmoothQuant
from equipoise.methods.quantization.output_error import LinearLayer
from equipoise.methods.quantization.rotated_runtime_smooth import (
    Rotate,
    RotatedRuntimeSmooth,
    RuntimeSmooth,
)
from equipoise.methods.quantization.round_to_nearest import RoundToNearest

PARTS = [
    RoundToNearest(weights=4, activations=4, keys_values=4),
    RuntimeSmooth(),
    Rotate(),
    RotatedRuntimeSmooth(group=8, keys_values=4),
    RotatedRuntimeSmooth(weight_method="gptq", samples=2, length=32),
    GPTQ(activations=4, samples=2, length=32),
    SmoothQuant(samples=2, length=32),
]


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_skeleton_filled_is_the_treated_subject(part):
    control = tiny_model()
    treated = part.apply(control, Rng(0))
    state = {name: tensor.clone() for name, tensor in treated.module.state_dict().items()}
    hollow = part.skeleton(control)
    hollow.module.load_state_dict(state, assign=True)
    pair = ("the quick brown fox", " jumps over")
    one, two = (live.log_likelihood([pair])[0].log_probs for live in (treated, hollow))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_smoothing_asks_for_whole_sequences(part):
    module = part.apply(tiny_model(), Rng(0)).module
    smooths = isinstance(part, RuntimeSmooth | RotatedRuntimeSmooth)
    assert getattr(module, "equipoise_whole_sequence", False) == smooths


def test_null_settings_change_nothing():
    control = LinearLayer.tiny().load(Rng(0))
    x = torch.randn(5, 32, generator=Rng(1).torch())
    for cls in (RoundToNearest, RuntimeSmooth, Rotate, RotatedRuntimeSmooth):
        treated = cls.null().apply(control, Rng(0))
        assert isinstance(treated, HasModule)
        assert (treated.module(x) - control.module(x)).abs().max() < 1e-5


def test_calibrated_treatments_take_rows(tmp_path):
    rows = Rng(0).numpy().normal(size=(400, 4)) @ Rng(1).numpy().normal(size=(4, 32))
    rows += 0.1 * Rng(2).numpy().normal(size=rows.shape)
    np.save(tmp_path / "rows.npy", rows[:200])
    data = str(tmp_path / "rows.npy")
    control = LinearLayer.tiny().load(Rng(0))
    x = torch.from_numpy(rows[200:]).float()

    def error(part):
        return relative_error(part.apply(control, Rng(0)).module(x), control.module(x))

    assert error(GPTQ(calibration=data)) < 0.7 * error(RoundToNearest())
    both = [RotatedRuntimeSmooth(4, 16, weight_method=way, calibration=data)
            for way in ("gptq", "rtn")]  # fmt: skip
    assert error(both[0]) < 0.8 * error(both[1])
    assert error(SmoothQuant(8, 8, calibration=data)) < 0.05


def test_calibration_text_enters_the_identity_only_where_it_is_read(tmp_path):
    from equipoise.catalog import identity

    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("some text")
    two.write_text("other text")

    def identities(way):
        return {
            identity(RotatedRuntimeSmooth(weight_method=way, calibration=str(path)))
            for path in (one, two)
        }

    assert len(identities("rtn")) == 1
    assert len(identities("gptq")) == 2


def test_a_width_without_a_hadamard_matrix_is_rotated_all_the_same():
    control = LinearLayer(inputs=9, outputs=2).load(Rng(0))
    x = torch.randn(5, 9, generator=Rng(1).torch())
    for rotation in ("hadamard", "orthogonal"):
        treated = Rotate(16, 16, rotation=rotation).apply(control, Rng(0))
        assert (treated.module(x) - control.module(x)).abs().max() < 1e-5


def test_what_is_replaced_follows_the_parameters():
    for part, replaced in (
        (RoundToNearest(), {"linear layers"}),
        (RoundToNearest(keys_values=4), {"linear layers", "attention"}),
        (SmoothQuant(), {"linear layers"}),
        (GPTQ(), {"linear layers"}),
        (RuntimeSmooth(), {"linear layers"}),
        (Rotate(), {"linear layers", "residual stream"}),
    ):
        assert part.replaces == part.edits == replaced


def test_one_cannot_follow_another():
    treated = RoundToNearest().apply(tiny_model(), Rng(0))
    with pytest.raises(UsageError, match="is a QuantizedLinear and no ordinary linear layer"):
        Rotate().apply(treated, Rng(0))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", PARTS, ids=repr)
def test_every_family_is_treated_and_filled(part, family, tmp_path):
    control = random_model(family, num_hidden_layers=2)
    pair = ("the quick brown fox", " jumps over")
    before = control.log_likelihood([pair])[0].log_probs
    treated = part.apply(control, Rng(0))
    treated.save(tmp_path)
    filled = part.skeleton(control).fill(tmp_path)
    one, two = (live.log_likelihood([pair])[0].log_probs for live in (treated, filled))
    assert np.array_equal(one, two)
    assert np.abs(one - before).max() > 1e-3
    assert np.array_equal(control.log_likelihood([pair])[0].log_probs, before)


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError, match="weights must be an integer from 2 to 16, got 1"):
        RoundToNearest(weights=1)
    with pytest.raises(UsageError, match="rotation must be one of"):
        Rotate(rotation="givens")


def test_generation_goes_on_from_a_cache():
    from equipoise.core import Request

    treated = RotatedRuntimeSmooth(group=8).apply(tiny_model(), Rng(0))
    (found,) = treated.generate([Request("hello", max_tokens=5)])
    assert len(found.texts) == 1


def test_plain_functions_come_from_the_package():
    import equipoise.methods.quantization as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        _ = package.nothing
