"""Quantised decoders of every family: shape tells what to do, names do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.local import LanguageModel
from equipoise.kit.language.structure import structure_of
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.plain import NotPlain, plain_module
from equipoise.kit.torch.quantized import QuantizedLinear, Scheme, quantize_module
from equipoise.kit.torch.quantizers import relative_error, round_weights
from equipoise.kit.torch.residual import turns_as_a_whole
from equipoise.kit.torch.rotations import OrthogonalRotation

IDS = torch.randint(250, (2, 24), generator=Rng(1).torch())
CALIBRATION = [torch.randint(250, (1, 48), generator=Rng(seed).torch()) for seed in (2, 3)]

IDENTITIES = {
    "rotated": Scheme(rotation="hadamard", smooth=8),
    "orthogonal": Scheme(rotation="orthogonal"),
    "smoothed": Scheme(smooth=4),
    "migrated": Scheme(migrate=0.5),
}
ROUNDED = {
    "nearest": Scheme(4, 4, keys_values=4),
    "smooth": Scheme(4, 4, smooth=4),
    "rotate": Scheme(4, 4, rotation="hadamard", keys_values=4),
    "gptq": Scheme(4, 4, rotation="hadamard", smooth=8, compensate=True),
    "smoothquant": Scheme(4, 4, migrate=0.5),
}
WEIGHTS_ALONE = {
    "nearest": Scheme(3),
    "groups": Scheme(4, weight_group=8),
    "gptq": Scheme(3, compensate=True),
    "rotate": Scheme(4, rotation="hadamard"),
    "smoothquant": Scheme(4, migrate=0.5),
}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return random_model(str(request.param), num_hidden_layers=2)


def logits(module: nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return module(IDS).logits


def treat(module: nn.Module, scheme: Scheme) -> nn.Module:
    return quantize_module(module, scheme, Rng(0), CALIBRATION)


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", IDENTITIES)
def test_without_rounding_nothing_changes(model, name):
    treated = treat(model.module, IDENTITIES[name])
    assert (logits(treated) - logits(model.module)).abs().max() < 1e-4


def test_smoothing_at_many_bits_changes_nothing(model):
    treated = treat(model.module, Scheme(smooth=4, rotation="hadamard"))
    for part in treated.modules():
        if isinstance(part, QuantizedLinear):
            part.bits = 22
    assert (logits(treated) - logits(model.module)).abs().max() < 1e-3


def test_eight_bits_are_close_and_four_are_not_the_same(model):
    exact = logits(model.module)
    errors = {
        (bits, rotation): relative_error(
            logits(treat(model.module, Scheme(bits, bits, rotation=rotation, keys_values=bits))),
            exact,
        )
        for bits in (4, 8)
        for rotation in (None, "hadamard")
    }
    for rotation in (None, "hadamard"):
        assert errors[8, rotation] < 0.15
        assert errors[4, rotation] > 4 * errors[8, rotation]


@pytest.mark.parametrize("name", ROUNDED)
def test_control_and_skeleton(model, name, tmp_path):
    scheme = ROUNDED[name]
    before, config = state(model.module), model.module.config.to_dict()
    treated = model.with_module(treat(model.module, scheme))
    treated.save(tmp_path)
    filled = model.with_module(quantize_module(model.module, scheme)).fill(tmp_path)
    assert torch.equal(logits(filled.module), logits(treated.module))
    pair = ("a river runs", " down to the sea")
    one, two = (each.log_likelihood([pair])[0].log_probs for each in (treated, filled))
    assert np.array_equal(one, two)
    after = model.module.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert model.module.config.to_dict() == config
    assert not any(
        part._forward_hooks or part._forward_pre_hooks for part in model.module.modules()
    )


@pytest.mark.parametrize("name", WEIGHTS_ALONE)
def test_weights_alone_have_an_ordinary_form(model, name, tmp_path):
    from transformers import AutoModelForCausalLM

    treated = treat(model.module, WEIGHTS_ALONE[name]).eval()
    model.with_module(plain_module(treated)).save(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    exact = name in ("nearest", "groups", "gptq")  # else something is multiplied into weights
    reloaded, wanted = (torch.log_softmax(logits(each), -1) for each in (again, treated))
    transposed = model.name == "gpt2"  # the same product, in another order of memory
    assert (reloaded - wanted).abs().max() <= (0 if exact and not transposed else 2e-4)
    assert relative_error(reloaded, torch.log_softmax(logits(model.module), -1)) > 0.005


def test_what_acts_while_it_runs_says_so(model):
    with pytest.raises(NotPlain, match="inputs of linear layers are rounded to 4 bits while"):
        plain_module(treat(model.module, Scheme(4, 4)))
    with pytest.raises(NotPlain, match="keys and values are rounded to 4 bits while it runs"):
        plain_module(treat(model.module, Scheme(keys_values=4)))
    with pytest.raises(NotPlain, match="depend on the whole sequence"):
        plain_module(treat(model.module, Scheme(4, 4, smooth=4)))


def test_every_layer_is_rounded_as_its_rows_say(model):
    treated = treat(model.module, Scheme(3, 4))
    structure = structure_of(model.module)
    assert structure_of(treated) == structure
    for name in structure.linear_layers():
        old, new = model.module.get_submodule(name), treated.get_submodule(name)
        weight = old.weight.T if model.name == "gpt2" else old.weight
        assert torch.equal(new.weight, round_weights(weight.detach().contiguous(), 3))
        assert new.bits == 4
    assert type(treated.get_submodule(structure.head)) is nn.Linear


def test_smoothing_leaves_out_what_attention_reads(model):
    treated = treat(model.module, Scheme(4, 4, smooth=4))
    for block in structure_of(model.module).blocks:
        into, *others = block.stages()
        assert {treated.get_submodule(name).smooth for name in into} == {0}
        assert {treated.get_submodule(name).smooth for stage in others for name in stage} == {4}


def test_keys_and_values_are_rounded_in_every_attention(model):
    exact = logits(model.module)
    errors = [
        relative_error(logits(treat(model.module, Scheme(keys_values=bits))), exact)
        for bits in (3, 6, 12)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


def test_keys_and_values_follow_the_attention_that_was_there(model):
    mine = copy_module(model.module)
    mine.config._attn_implementation = "eager"
    found = [logits(treat(each, Scheme(keys_values=4))) for each in (model.module, mine)]
    assert (found[0] - found[1]).abs().max() < 1e-4


def test_the_residual_stream_is_rotated_offline(model):
    treated = treat(model.module, Scheme(rotation="hadamard"))
    structure = structure_of(model.module)
    turned = {name for name, part in treated.named_modules() if getattr(part, "rotation", None)}
    blocks = structure.blocks
    ends = {block.feed_forward.down for block in blocks} | {b.attention.output for b in blocks}
    assert turned == ends
    assert not treated.config.tie_word_embeddings
    embeddings = treated.get_submodule(structure.embeddings).weight
    assert treated.get_submodule(structure.head).weight is not embeddings


def test_rotation_spreads_an_outlier_of_the_stream(model):
    mine = copy_module(model.module)
    structure = structure_of(mine)
    embedding = mine.get_submodule(structure.embeddings)
    weight = embedding.weight.detach().clone()
    weight[:, 5] += 30.0
    embedding.weight = nn.Parameter(weight)
    if structure.tied:
        mine.get_submodule(structure.head).weight = embedding.weight

    def crest(module: nn.Module) -> float:
        seen: list[torch.Tensor] = []
        layer = module.get_submodule(structure.blocks[0].attention.query)
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        logits(module)
        x = seen[0] - seen[0].mean(-1, keepdim=True)
        return float((x.abs().amax(-1) / x.square().mean(-1).sqrt()).mean())

    assert crest(mine) > 1.5 * crest(treat(mine, Scheme(rotation="hadamard")))


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 1},
        {"hidden_size": 42, "num_attention_heads": 3, "num_key_value_heads": 3},
        {"hidden_size": 56, "num_attention_heads": 7, "intermediate_size": 54,
         "num_key_value_heads": 1},
        {"hidden_size": 30, "num_attention_heads": 5, "intermediate_size": 77,
         "num_key_value_heads": 5},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("family", ["qwen3", "gpt_neox", "gpt2"])
def test_sizes_without_a_hadamard_matrix(family, sizes):
    module = random_model(family, num_hidden_layers=2, **sizes).module
    treated = treat(module, Scheme(rotation="hadamard"))
    assert (logits(treated) - logits(module)).abs().max() < 1e-4
    if sizes.get("intermediate_size"):
        down = structure_of(module).blocks[0].feed_forward.down
        assert isinstance(treated.get_submodule(down).rotation, OrthogonalRotation)
    assert relative_error(logits(treat(module, Scheme(8, 8, keys_values=8))), logits(module)) < 0.2


@pytest.mark.parametrize("tied", [True, False])
def test_tied_or_not(model, tied):
    module = random_model(model.name, tie_word_embeddings=tied, num_hidden_layers=2).module
    treated = treat(module, Scheme(rotation="hadamard"))
    assert (logits(treated) - logits(module)).abs().max() < 1e-4
    assert module.config.tie_word_embeddings == tied
    structure = structure_of(module)
    assert structure.tied == tied


@pytest.mark.parametrize("changes", [{"use_parallel_residual": False}, {"attention_bias": False}])
def test_variants_of_gpt_neox(changes):
    module = random_model("gpt_neox", **changes).module
    for scheme in (Scheme(rotation="hadamard"), Scheme(rotation="orthogonal")):
        assert (logits(treat(module, scheme)) - logits(module)).abs().max() < 1e-4
    assert turns_as_a_whole(module)


OTHERS = {
    "gemma": {},  # norms whose gain is one more than the weight says
    "gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8},  # norms after each part too
    "olmo2": {},  # norms after each part only
    "opt": {"word_embed_proj_dim": 32, "ffn_dim": 64},
    "phi": {},  # one norm for both parts
}


@pytest.mark.parametrize("family", OTHERS)
def test_families_no_one_thought_of_are_rotated_somehow(family):
    module = random_model(family, **OTHERS[family]).module
    treated = treat(module, Scheme(rotation="hadamard"))
    assert relative_error(logits(treated), logits(module)) < 1e-4
    filled = quantize_module(module, Scheme(rotation="hadamard"))
    filled.load_state_dict(state(treated), assign=True)
    assert torch.equal(logits(filled), logits(treated))
    assert turns_as_a_whole(module) == (family == "opt")
    errors = [
        relative_error(logits(treat(module, Scheme(bits, bits))), logits(module)) for bits in (4, 8)
    ]
    assert errors[0] > 3 * errors[1]


def test_faults_are_told_in_one_sentence(model):
    twice = treat(model.module, Scheme(4))
    with pytest.raises(UsageError, match=r"is a QuantizedLinear and no ordinary linear layer; .*"):
        quantize_module(twice, Scheme(4), Rng(0))
    long = [torch.zeros(1, 513, dtype=torch.long)]
    with pytest.raises(UsageError, match="513 tokens are longer than the 512 positions"):
        quantize_module(model.module, Scheme(4, compensate=True), Rng(0), long)


def test_a_skeleton_does_not_look_at_tensors(model):
    """A chain of treatments is opened from hollow modules, which hold anything at all."""
    hollow = copy_module(model.module)
    for part in hollow.modules():
        for name, tensor in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(torch.empty_like(tensor, device="meta")))
    for scheme in ROUNDED.values():
        wanted = treat(model.module, scheme).state_dict()
        found = quantize_module(hollow, scheme).state_dict()
        assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in wanted.items()}


def test_calibration_of_a_few_tokens_is_enough_to_run(model):
    few = [torch.tensor([[1, 2]])]
    for scheme in (Scheme(4, compensate=True), Scheme(4, migrate=0.5)):
        treated = quantize_module(model.module, scheme, Rng(0), few)
        assert torch.isfinite(logits(treated)).all()
