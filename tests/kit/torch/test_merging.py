import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.torch.layers import (
    block_numbers,
    layer_factor,
    layer_factors,
    with_tensors,
)
from equipoise.kit.torch.merge_rules import average, consensus, ties, total, weighted
from equipoise.kit.torch.merging import (
    merged,
    merged_update,
    scaled,
    trim_thresholds,
    update_scale,
)
from equipoise.kit.torch.weight_files import WeightFiles


def models(count=3, dtype=torch.float32, seed=0):
    draw = Rng(seed).torch()
    shapes = {"a": (40, 30), "b": (7,), "none": (0, 3), "one": ()}

    def one():
        return {k: torch.randn(s, generator=draw, dtype=torch.float64).to(dtype)
                for k, s in shapes.items()}  # fmt: skip

    base = one()
    return base, [{k: base[k] + 0.1 * v for k, v in one().items()} for _ in range(count)]


def close(one, other, atol=1e-6):
    assert one.keys() == other.keys()
    return all(torch.allclose(one[k].double(), other[k].double(), atol=atol, rtol=0) for k in one)


def test_rules_against_hand_worked_entries():
    taus = torch.tensor([[2.0, -1.0, 0.0], [1.0, 3.0, 0.0], [-4.0, 1.0, 0.0]])
    assert total(taus).tolist() == [-1.0, 3.0, 0.0]
    assert torch.allclose(average(taus), torch.tensor([-1 / 3, 1.0, 0.0]))
    assert weighted([0.5, 0.25, 0.25])(taus).tolist() == [0.25, 0.5, 0.0]
    # Sums -1 and 3 elect minus and plus: one agrees with the first, two with the second.
    assert ties(taus, 1.0).tolist() == [-4.0, 2.0, 0.0]
    assert ties(taus, 1.0, combine="sum").tolist() == [-4.0, 4.0, 0.0]
    # Masks by hand at 0.4: |2|>0.4*3, |1|>0.4*2, |-4|>0.4*3; then |-1|<0.4*4, |3|>0, |1|>0.4*2.
    assert consensus(taus, 0.4, 2).tolist() == [-1.0, 3.0, 0.0]
    assert consensus(taus, 0.4, 3).tolist() == [-1.0, 0.0, 0.0]
    assert consensus(taus, 0.4, 0).tolist() == total(taus).tolist()


def test_ties_keeps_the_largest_of_each_vector():
    taus = torch.tensor([[5.0, 1.0, -2.0, 0.5, 0.1], [-1.0, 4.0, -3.0, 0.2, 0.3]])
    # 40 % of five entries are two: 5 and -2 of the first, 4 and -3 of the second.
    assert ties(taus, 0.4).tolist() == [5.0, 4.0, -2.5, 0.0, 0.0]
    assert torch.equal(ties(-taus, 0.4), -ties(taus, 0.4))
    # A tie between signs elects none.
    assert ties(torch.tensor([[1.0], [-1.0]]), 1.0).tolist() == [0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("density", [1e-6, 0.2, 0.5, 1.0])
def test_thresholds_are_the_order_statistic(dtype, density):
    base, others = models(dtype=dtype)
    found = trim_thresholds(base, others, density)
    for number, other in enumerate(others):
        every = torch.cat([(other[k].double() - base[k].double()).float().abs().flatten()
                           for k in base])  # fmt: skip
        keep = max(1, int(density * len(every)))
        assert found["a"][number] == every.sort(descending=True).values[keep - 1]
    each = trim_thresholds(base, others, density, by_tensor=True)
    for number, other in enumerate(others):
        every = (other["b"].double() - base["b"].double()).float().abs()
        keep = max(1, int(density * 7))
        assert each["b"][number] == every.sort(descending=True).values[keep - 1]


def test_thresholds_of_an_update_that_is_mostly_zero():
    base = {"w": torch.zeros(10)}
    other = {"w": torch.tensor([1.0] + [0.0] * 9)}
    assert trim_thresholds(base, [other], 0.5)["w"].tolist() == [0.0]
    assert merged(base, [other], total)["w"].sum() == 1.0


def test_merging_is_linear_in_the_update():
    base, others = models(dtype=torch.float64)
    for rule in (total, average, consensus, weighted([0.2, 0.3, 0.5])):
        one = merged_update(base, others, rule)
        for c in (-2.0, 0.5, 3.0):
            stretched = [{k: base[k] + c * (m[k] - base[k]) for k in base} for m in others]
            two = merged_update(base, stretched, rule)
            assert close(two, {k: c * v for k, v in one.items()}, 1e-12)


def test_one_pass_is_update_then_scale():
    base, others = models()
    factors = {name: 0.1 * number for number, name in enumerate(base)}
    for rule in (total, average, consensus):
        two = scaled(base, merged_update(base, others, rule), factors)
        assert close(merged(base, others, rule, factors), two, 1e-6)


def test_limits_are_base_and_model():
    base, (model, *_) = models()
    assert close(merged(base, [model], total, 1.0), model)
    assert close(merged(base, [model], total, 0.0), base, 0)


def test_what_is_given_is_left_alone():
    base, others = models()
    before = [{k: v.clone() for k, v in each.items()} for each in (base, *others)]
    for rule in (total, average, consensus, lambda taus: ties(taus, 0.3)):
        update = merged_update(base, others, rule)
        merged(base, others, rule, 0.5)
        scaled(base, update, 0.5)
        update_scale(base, others, update)
        trim_thresholds(base, others, 0.3)
    for each, kept in zip((base, *others), before, strict=True):
        assert close(each, kept, 0)


def test_chunks_do_not_show(monkeypatch):
    base, others = models()
    whole = merged(base, others, consensus), trim_thresholds(base, others, 0.3)
    monkeypatch.setattr("equipoise.kit.torch.merging._CHUNK", 7)
    parts = merged(base, others, consensus), trim_thresholds(base, others, 0.3)
    assert close(whole[0], parts[0], 0)
    assert close(whole[1], parts[1], 0)


def test_alpha_of_a_plain_sum_is_one_over_n():
    for count in (1, 2, 5, 8):
        base, others = models(count)
        assert update_scale(base, others, merged_update(base, others, total)) == 1 / count
        mean = merged_update(base, others, average)
        assert update_scale(base, others, mean) == pytest.approx(1.0, rel=1e-6)


def test_alpha_makes_up_for_what_a_rule_takes_away():
    base, others = models(4)
    update = merged_update(base, others, consensus)
    summed = merged_update(base, others, total)
    norm = {n: sum(float(v.abs().sum()) for v in u.values())
            for n, u in (("kept", update), ("all", summed))}  # fmt: skip
    found = update_scale(base, others, update)
    assert found == pytest.approx(norm["all"] / norm["kept"] / 4, rel=1e-6)
    assert found > 0.25
    with pytest.raises(UsageError, match="the merged update is zero"):
        update_scale(base, [base], merged_update(base, [base], total))


def test_results_keep_the_number_format_and_sums_are_wider():
    base, others = models(dtype=torch.bfloat16)
    found = merged(base, others, average)
    assert {v.dtype for v in found.values()} == {torch.bfloat16}
    wide = {k: base[k].double() + sum(m[k].double() - base[k].double() for m in others) / 3
            for k in base}  # fmt: skip
    assert close(found, {k: v.to(torch.bfloat16) for k, v in wide.items()}, 0.02)


def test_integers_and_batch_statistics_are_not_merged():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    base = net.state_dict()
    other = {k: v + 1 for k, v in base.items()}
    assert set(merged(base, [other], total)) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_bad_models_are_refused():
    base, (model, *_) = models()
    with pytest.raises(UsageError, match="no models to merge"):
        merged(base, [], total)
    with pytest.raises(UsageError, match="model 2 has no b, which the base has"):
        merged(base, [model, {"a": model["a"]}], total)
    with pytest.raises(UsageError, match=r"b is \(3,\) in model 1 and \(7,\) in the base"):
        merged(base, [model | {"b": torch.ones(3)}], total)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match="b has entries that are not finite in model 2"):
            merged(base, [model, model | {"b": torch.full((7,), bad)}], consensus)
    with pytest.raises(UsageError, match="weights must sum to 1"):
        weighted([0.5, 0.6])
    with pytest.raises(UsageError, match="weights must be one a model, got 2 for 1"):
        merged(base, [model], weighted([0.5, 0.5]))


def test_twelve_layers_as_in_the_paper():
    factors = [layer_factor(block, 12, 0.1, 0.9) for block in range(12)]
    assert np.allclose(factors, np.linspace(0.1, 1.0, 12))
    assert factors[1] == pytest.approx(0.1818, abs=5e-5)
    assert layer_factor(0, 1, 0.3, 0.7) == layer_factor(None, 12, 0.3, 0.7) == 0.3


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_of_every_family(family):
    module = random_model(family).module
    numbers, count = block_numbers(module)
    assert count == 4
    assert sorted(set(numbers.values())) == [0, 1, 2, 3]
    factors = layer_factors(module, 0.1, 0.9)
    assert set(factors) == {name for name, _ in module.named_parameters()}
    outside = [name for name in factors if name not in numbers]
    assert any("embed" in name or "wte" in name for name in outside)
    assert {factors[name] for name in outside} == {0.1}
    backwards = layer_factors(module, 0.1, 0.9, from_last=True)
    first = next(name for name, block in numbers.items() if block == 0)
    assert backwards[first] == pytest.approx(1.0)


class _Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(2, 2)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"mlp": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))})
            for _ in range(3)
        )


def test_numbers_deeper_in_a_name_are_not_blocks():
    numbers, count = block_numbers(_Nested())
    assert count == 3
    assert numbers["layers.2.mlp.0.weight"] == numbers["layers.2.mlp.1.weight"] == 2
    assert numbers["layers.0.mlp.1.weight"] == 0
    assert not any(name.startswith("stem") for name in numbers)


def test_stacks_are_named_where_they_cannot_be_told():
    both = nn.ModuleDict({"encoder": _Nested().layers, "decoder": _Nested().layers})
    with pytest.raises(UsageError, match=r"several lists of blocks \(encoder, decoder\)"):
        block_numbers(both)
    numbers, count = block_numbers(both, ["encoder", "decoder"])
    assert count == 6
    assert numbers["decoder.0.mlp.0.weight"] == 3
    with pytest.raises(UsageError, match='blocks: "middle" is no list of blocks; there are: enc'):
        block_numbers(both, ["middle"])
    with pytest.raises(UsageError, match="Linear has no blocks"):
        layer_factors(nn.Linear(2, 2), 0.1, 0.9)
    assert layer_factors(nn.Linear(2, 2), 0.1, 0.0) == {"weight": 0.1, "bias": 0.1}


def test_a_copy_with_other_tensors_shares_nothing_and_keeps_ties():
    control = random_model("llama").module
    new = {name: p.detach() + 1 for name, p in control.named_parameters()}
    made = with_tensors(control, new)
    ours = {t.data_ptr() for t in (*control.parameters(), *control.buffers()) if t.numel()}
    assert not ours & {t.data_ptr() for t in (*made.parameters(), *made.buffers()) if t.numel()}
    assert made.lm_head.weight is made.model.embed_tokens.weight
    assert [p.requires_grad for p in made.parameters()] == [
        p.requires_grad for p in control.parameters()
    ]


def shards(folder, tensors):
    folder.mkdir()
    names = list(tensors)
    places = {name: f"model-{k % 2 + 1}.safetensors" for k, name in enumerate(names)}
    for file in set(places.values()):
        save_file({n: tensors[n].contiguous() for n in names if places[n] == file}, folder / file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_folders_are_read_like_state_dicts(tmp_path):
    base, others = models()
    for number, other in enumerate(others):
        if number:
            shards(tmp_path / str(number), other)
        else:
            (tmp_path / "0").mkdir()
            save_file(other, tmp_path / "0" / "model.safetensors")
    files = [WeightFiles(tmp_path / str(number)) for number in range(3)]
    assert files[1].shapes == {k: tuple(v.shape) for k, v in base.items()}
    assert len(files[1]) == 4
    assert close(merged(base, files, consensus), merged(base, others, consensus), 0)


def test_damaged_folders_are_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no such folder"):
        WeightFiles(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"there is no model\.safetensors"):
        WeightFiles(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match="holds an adapter, not a whole model"):
        WeightFiles(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for text, fault in (
        ("{", "cannot be read"),
        ('{"weight_map": {"a": "../elsewhere"}}', "a shard must be a file beside it"),
        ('{"weight_map": {"a": "model-1.safetensors"}}', "cannot be read as safetensors"),
    ):
        index.write_text(text)
        with pytest.raises(UsageError, match=fault):
            WeightFiles(tmp_path)
    save_file({"b": torch.ones(1)}, tmp_path / "model-1.safetensors")
    with pytest.raises(UsageError, match="a is in none of the shards"):
        WeightFiles(tmp_path)
