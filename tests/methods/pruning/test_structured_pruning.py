import numpy as np
import pytest
import torch

from equipoise.core import Request, Rng, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.local import LanguageModel
from equipoise.kit.language.structure import structure_of
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.linear import weight_of
from equipoise.kit.torch.plain import NotPlain, plain_module
from equipoise.methods.pruning import (
    Flap,
    ProbePruning,
    RandomPruning,
    WandaSp,
    flap_scores,
    kept_units,
    wanda_sp_scores,
)
from equipoise.methods.pruning._scores import best

SMALL = {
    "spared": 1,
    "calibration": "builtin:sklearn_descriptions",
    "samples": 4,
    "length": 24,
}
PARTS = [
    WandaSp(0.4, "both", **SMALL),
    Flap(0.4, "both", multiple=1, **SMALL),
    RandomPruning(0.4, "both", spared=1),
]


def ids(rows=3, length=20, seed=1):
    return torch.randint(0, 255, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits(module, tokens):
    with torch.no_grad():
        return module(input_ids=tokens).logits


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def activations(control, part, name):
    """Return what goes into a layer on the text that a treatment calibrates on."""
    windows = calibration_batches(
        control, part.calibration, Rng(0).child("calibration"),
        samples=part.samples, length=part.length,
    )  # fmt: skip
    heard = []
    hook = control.module.get_submodule(name).register_forward_pre_hook(
        lambda _, args: heard.append(args[0])
    )
    logits(control.module, torch.cat(windows))
    hook.remove()
    return heard[0]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_leaving_out_is_masking(family, part):
    """Smaller layers give what zeros at the inputs of output layers give, plus FLAP's bias."""
    control = random_model(family)
    before = logits(control.module, ids())
    treated = part.apply(control, Rng(0))
    kept = kept_units(treated.module)
    assert len(kept) == 6
    hooks = []
    for block in structure_of(control.module).blocks[1:]:
        for label, name, width in (
            (f"heads_{block.index}", block.attention.output, block.attention.head_size),
            (f"channels_{block.index}", block.feed_forward.down, 1),
        ):
            layer = control.module.get_submodule(name)
            fill = torch.zeros(weight_of(layer).shape[1])
            if isinstance(part, Flap):  # what is removed stays at its mean
                fill = activations(control, part, name).mean((0, 1))
            mask = torch.zeros(kept[label][1], dtype=torch.bool)
            mask[kept[label][0]] = True
            mask = mask.repeat_interleave(width)
            hooks.append((layer, mask, fill))
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, m=mask, f=fill: (args[0].where(m, f),))
        for layer, mask, fill in hooks
    ]
    masked = logits(control.module, ids())
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(logits(treated.module, ids()), masked, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits(control.module, ids()), before)
    assert (before - masked).abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_fall_by_what_was_removed(family):
    control = random_model(family)
    structure = structure_of(control.module)
    width = structure.hidden
    attention, mlp = structure.blocks[0].attention, structure.blocks[0].feed_forward
    shared = attention.heads != attention.key_value_heads
    for what in ("channels", "heads"):
        treated = RandomPruning(0.4, what, spared=1).apply(control, Rng(0))
        gone = sum(total - len(places) for places, total in kept_units(treated.module).values())
        assert gone == 3 * (2 if what == "heads" else 32)  # 0.53 of 4 heads, 64 channels
        if what == "heads":
            each = (2 if shared else 4) * width * attention.head_size
            biases = [control.module.get_submodule(attention.query).bias is not None]
            biases = biases * (1 if shared else 3)
            each += sum(biases) * attention.head_size
        else:
            layers = [mlp.up] if mlp.gate is None else [mlp.gate, mlp.up]
            each = (len(layers) + 1) * width
            each += sum(control.module.get_submodule(x).bias is not None for x in layers)
        assert size(control.module) - size(treated.module) == gone * each


def test_llama_loses_three_rows_a_channel_and_four_blocks_a_head():
    control = random_model("llama", num_key_value_heads=4)
    channels = RandomPruning(0.4, spared=1).apply(control, Rng(0)).module
    assert size(control.module) - size(channels) == 3 * 32 * 3 * 32
    heads = RandomPruning(0.4, "heads", spared=1).apply(control, Rng(0)).module
    assert size(control.module) - size(heads) == 3 * 2 * 4 * 32 * 8


@pytest.mark.parametrize("what", ["channels", "heads"])
def test_wanda_sp_keeps_the_largest_scores(what):
    control = random_model("llama")
    part = WandaSp(0.4, what, **SMALL)
    kept = kept_units(part.apply(control, Rng(0)).module)
    for block in structure_of(control.module).blocks[1:]:
        heads = what == "heads"
        name = block.attention.output if heads else block.feed_forward.down
        energy = activations(control, part, name).square().mean(0).sum(0)
        weight = weight_of(control.module.get_submodule(name))
        scores = wanda_sp_scores(weight, energy, block.attention.head_size if heads else 1)
        places, _ = kept[f"{what}_{block.index}"]
        assert places.tolist() == best(scores, len(places)).tolist()


def test_flap_compares_blocks():
    control = random_model("llama")
    with torch.no_grad():  # one block whose channels differ more than those of the others
        mlp = control.module.model.layers[2].mlp
        mlp.up_proj.weight.mul_(torch.linspace(0, 3, 64)[:, None] ** 3)
    part = Flap(0.4, multiple=1, **SMALL)
    kept = kept_units(part.apply(control, Rng(0)).module)
    counts = [len(places) for places, _ in kept.values()]
    assert sum(counts) == 192 - int(192 * 0.53)
    assert counts[1] != counts[0]
    standard = {}
    for block in structure_of(control.module).blocks[1:]:
        x = activations(control, part, block.feed_forward.down)
        weight = weight_of(control.module.get_submodule(block.feed_forward.down))
        scores = flap_scores(weight, x.var(0, correction=0).sum(0))
        standard[f"channels_{block.index}"] = (scores - scores.mean()) / scores.std()
    edge = min(standard[name][places].min() for name, (places, _) in kept.items())
    assert sum(int((scores > edge).sum()) for scores in standard.values()) == sum(counts) - 1


def test_flap_keeps_the_mean_of_the_output():
    control = random_model("llama")
    part = Flap(0.4, **SMALL)
    treated = part.apply(control, Rng(0))
    name = structure_of(control.module).blocks[1].feed_forward.down
    x = activations(control, part, name)
    before = torch.nn.functional.linear(x, control.module.get_submodule(name).weight)
    layer = treated.module.get_submodule(name)
    after = layer(x[..., kept_units(treated.module)["channels_1"][0]])
    torch.testing.assert_close(after.mean((0, 1)), before.mean((0, 1)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_pruning_draws_anew_with_each_seed(family):
    control = random_model(family)
    kept = [
        {
            name: places.tolist()
            for name, (places, _) in kept_units(
                RandomPruning(0.4, "both", spared=1).apply(control, Rng(seed)).module
            ).items()
        }
        for seed in (0, 0, 1)
    ]
    assert kept[0] == kept[1] != kept[2]
    assert kept[0]["channels_1"] != kept[0]["channels_2"]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_skeleton_filled_from_a_folder_is_the_treated_subject(family, part, tmp_path):
    control = random_model(family)
    treated = part.apply(control, Rng(0))
    treated.save(tmp_path)
    again = part.skeleton(control).fill(tmp_path)
    assert torch.equal(logits(again.module, ids()), logits(treated.module, ids()))
    layer = again.module.get_submodule(structure_of(control.module).blocks[1].feed_forward.down)
    assert weight_of(layer).shape == (
        (layer.nf, layer.nx) if hasattr(layer, "nf") else (layer.out_features, layer.in_features)
    )


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_plain_form_loads_anywhere(family, part, tmp_path):
    from transformers import AutoModelForCausalLM

    control = random_model(family)
    treated = part.apply(control, Rng(0))
    if isinstance(part, Flap) and family in ("mistral", "qwen2", "qwen3"):
        with pytest.raises(NotPlain, match="knows no biases of"):
            plain_module(treated.module)
        return
    plain = plain_module(treated.module)
    LanguageModel(plain, control.tokenizer).save(tmp_path)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(opened, ids()), logits(treated.module, ids()))
    if not isinstance(part, Flap):
        assert size(plain) == size(control.module), "zeros take the place of what is gone"
    zeros = sum(int((each == 0).sum()) for each in plain.parameters())
    assert zeros >= size(control.module) - size(treated.module)


def test_pruned_models_take_further_edits_and_generate():
    control = random_model("llama")
    treated = WandaSp(0.4, **SMALL).apply(control, Rng(0))
    found = structure_of(treated.module)
    assert [block.feed_forward.channels for block in found.blocks] == [64, 32, 32, 32]
    both = WandaSp(0.4, "both", **SMALL).apply(control, Rng(0))
    (answer,) = both.generate([Request("hello", max_tokens=5)])
    assert len(answer.texts) == 1
    pairs = [("hello", " there"), ("hello", " you"), ("hello", " again, and again")]
    found = both.log_likelihood(pairs)  # the prompt's cache is shared
    for pair, scores in zip(pairs, found, strict=True):
        (alone,) = both.log_likelihood([pair])
        np.testing.assert_allclose(scores.log_probs, alone.log_probs, atol=1e-4)


def test_wrong_use_is_one_sentence():
    control = tiny_model()
    before = {name: tensor.clone() for name, tensor in control.module.state_dict().items()}
    for cls in (WandaSp, Flap, RandomPruning):
        with pytest.raises(UsageError, match="Of 2 blocks 3 are spared"):
            cls().apply(control, Rng(0))
        with pytest.raises(UsageError, match="prune must be one of 'channels', 'heads', 'both'"):
            cls(prune="layers")
    treated = RandomPruning(spared=0).apply(control, Rng(0))
    with pytest.raises(UsageError, match="has been pruned before; prune it once"):
        RandomPruning(spared=0).apply(treated, Rng(0))
    for name, tensor in control.module.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_functions_come_from_the_package():
    import equipoise.methods.pruning as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        _ = package.nothing


class Foreign(torch.nn.Linear):
    """A layer whose weight is not all there is to it."""


@pytest.mark.parametrize("cls", [WandaSp, Flap, RandomPruning, ProbePruning])
def test_layers_of_another_kind_are_left_alone(cls):
    control = random_model("llama")
    control.module.model.layers[2].mlp.up_proj = Foreign(32, 64, bias=False)
    before = logits(control.module, ids())
    with pytest.raises(UsageError, match=r"layers\.2\.mlp\.up_proj is no linear layer of the mod"):
        cls(0.4, spared=1).apply(control, Rng(0))
    assert torch.equal(logits(control.module, ids()), before)


def test_what_came_after_pruning_may_have_no_plain_form():
    treated = WandaSp(0.4, **SMALL).apply(random_model("llama"), Rng(0))
    treated.module.model.layers[2].mlp.up_proj = Foreign(32, 32, bias=False)
    with pytest.raises(NotPlain, match="pruned layers were replaced by others"):
        plain_module(treated.module)
