import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.utilization import quantization_space_utilization
from equipoise.kit.worlds.small_llama import with_outliers
from equipoise.methods.quantization.quantization_space import PLACES, QuantizationSpace
from equipoise.methods.quantization.rotated_runtime_smooth import Rotate

TASK = QuantizationSpace.tiny()
UNITS = list(TASK.units(Rng(0)))


def scores(subject, name):
    found = TASK.perform(subject, UNITS, Rng(0))
    return np.array([outcome.scores[name] for outcome in found])


def test_units_name_every_input_but_the_embedding():
    assert len(UNITS) == 2 * len(PLACES) - 1
    assert UNITS[0].id == "block-000-output"
    assert {unit.stratum for unit in UNITS} == set(PLACES)


def test_outliers_waste_the_grid_and_a_rotation_wins_some_back():
    plain = TASK.oracle()
    loud = plain.with_module(with_outliers(plain.module, 2, 50.0, Rng(1)))
    turned = Rotate(weights=16, activations=4).apply(loud, Rng(0))
    assert (scores(plain, "utilization") > scores(loud, "utilization") + 1).all()
    gain = scores(turned, "utilization") - scores(loud, "utilization")
    assert (gain > 0.5).all()
    assert gain.mean() > 2
    assert scores(turned, "leading_utilization").mean() > scores(loud, "leading_utilization").mean()


def test_it_is_the_plain_function_of_what_a_layer_reads():
    import torch

    live, kept = TASK.oracle(), []
    layer = live.module.get_submodule("model.layers.1.mlp.down_proj")
    hook = layer.register_forward_pre_hook(lambda _, given: kept.append(given[0][0]))
    found = dict(zip([u.id for u in UNITS], scores(live, "utilization"), strict=True))
    hook.remove()
    rows = torch.cat(kept).double().numpy()
    assert rows.shape == (128, 64)
    wanted = quantization_space_utilization(rows, per_dimension=True)
    # The task divides by n, numpy by n - 1; volumes of both sides scale alike but for the mean.
    assert found["block-001-down"] == pytest.approx(wanted, abs=1e-3)


def test_a_rounded_input_is_looked_at_before_rounding():
    # What is rounded to two bits already loses nothing more when it is rounded to four.
    rounded = Rotate(weights=16, activations=2).apply(TASK.oracle(), Rng(0))
    assert (scores(rounded, "relative_error") > 0.05).all()


def test_what_cannot_be_measured_is_an_error_of_its_unit():
    live = TASK.oracle()
    many = QuantizationSpace(blocks=3, windows=1, length=40)
    found = many.perform(live, list(many.units(Rng(0))), Rng(0))
    assert {o.error_kind for o in found if "block-002" in o.unit} == {"too_short"}
    assert "the model has 2 blocks" in found[-1].error
    (down,) = [o for o in found if o.unit == "block-001-down"]
    assert down.error_kind == "degenerate"
    assert "40 tokens are too few for an input of 64 channels" in down.error
    (output,) = [o for o in found if o.unit == "block-001-output"]
    assert output.status == "ok"


def test_too_little_text_is_told(tmp_path):
    (tmp_path / "short.txt").write_text("few words")
    task = QuantizationSpace(data=str(tmp_path / "short.txt"))
    with pytest.raises(UsageError, match="has 9 tokens, too few for 16 windows of 256"):
        task.perform(TASK.oracle(), UNITS, Rng(0))
