import pytest
import torch

from equipoise.core import Rng, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.structure import structure_of
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.rotations import random_orthogonal
from equipoise.kit.torch.transforms import (
    BlockTransforms,
    Transforms,
    fold_,
    fuse_norms,
    hollow_,
    keep_ones,
    norm_readers,
    ones_basis,
    rotary_size,
)

IDS = torch.arange(80).view(2, 40) * 3 % 256


def logits(module):
    with torch.no_grad():
        return module(IDS).logits


def random_transforms(module, structure, rng):
    """Rotations uniform over the orthogonal group and scales over a factor of five."""
    generator = rng.torch()

    def scale(*shape):
        return torch.exp(0.5 * torch.randn(*shape, generator=generator, dtype=torch.float64))

    d = structure.hidden
    residual = random_orthogonal(d - structure.centred, rng)
    blocks = []
    for block in structure.blocks:
        attention, mlp = block.attention, block.feed_forward
        groups, size = attention.key_value_heads, attention.head_size
        turns = [random_orthogonal(size, rng.child(block.index, g)) for g in range(groups)]
        pairs = rotary_size(module, attention) // 2
        query_key = scale(1 if attention.query_norm else groups, size)
        query_key[:, pairs : 2 * pairs] = query_key[:, :pairs]
        blocks.append(
            BlockTransforms(
                attention=scale(d),
                feed_forward=scale(d),
                values=torch.stack(turns),
                value_scale=scale(groups, size),
                query_key=query_key,
                channels=None if mlp.gate is None else scale(mlp.channels),
            )
        )
    return Transforms(tuple(blocks), keep_ones(residual) if structure.centred else residual)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_transforms_leave_every_family_as_it_computes(family):
    module = random_model(family).module
    structure = structure_of(module)
    before, kept = logits(module), {k: v.clone() for k, v in module.state_dict().items()}
    made = copy_module(module)
    fuse_norms(made, structure)
    assert (logits(made) - before).abs().max() < 1e-4
    fold_(made, structure, random_transforms(made, structure, Rng(3)))
    assert (logits(made) - before).abs().max() < 1e-4
    after = module.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in kept.items())
    changed = dict(made.named_parameters())
    for name in structure.linear_layers():
        assert not torch.equal(changed[f"{name}.weight"], kept[f"{name}.weight"])


def test_a_query_key_scale_that_splits_a_rotary_pair_is_no_identity():
    module = random_model("llama").module
    structure = structure_of(module)
    made = copy_module(module)
    fuse_norms(made, structure)
    scale = torch.ones(2, 8, dtype=torch.float64)
    scale[:, 0] = 3.0
    each = BlockTransforms(query_key=scale)
    fold_(made, structure, Transforms((each,) * 4))
    assert (logits(made) - logits(module)).abs().max() > 1e-2


def test_partly_rotary_heads_are_known():
    neox = random_model("gpt_neox").module
    attention = structure_of(neox).blocks[0].attention
    assert rotary_size(neox, attention) == 2  # a quarter of 8
    gpt2 = random_model("gpt2").module
    assert rotary_size(gpt2, structure_of(gpt2).blocks[0].attention) == 0


def test_a_norms_bias_stays_with_the_norm_where_readers_have_none():
    module = random_model("gpt_neox", attention_bias=False).module
    structure = structure_of(module)
    made = copy_module(module)
    fuse_norms(made, structure)
    norm = made.get_submodule(structure.blocks[0].norms[0])
    assert norm.bias.abs().max() > 0
    assert (logits(made) - logits(module)).abs().max() < 1e-4
    fold_(made, structure, random_transforms(made, structure, Rng(0)))
    assert (logits(made) - logits(module)).abs().max() < 1e-4
    silent = copy_module(module)
    gain = silent.get_submodule(structure.blocks[0].norms[0]).weight.detach().clone()
    gain[3] = 0.0
    silent.get_submodule(structure.blocks[0].norms[0]).weight = torch.nn.Parameter(gain)
    with pytest.raises(UsageError, match="has a bias and gains of zero"):
        fuse_norms(silent, structure)


def test_rotation_that_keeps_ones():
    for size in (2, 7, 32):
        basis = ones_basis(size)
        assert torch.allclose(basis @ basis, torch.eye(size, dtype=torch.float64))
        turn = keep_ones(random_orthogonal(size - 1, Rng(size)))
        ones = torch.ones(size, dtype=torch.float64)
        assert torch.allclose(ones @ turn, ones)
        assert torch.allclose(turn @ turn.T, torch.eye(size, dtype=torch.float64))


def test_hollow_tensors_are_those_that_change():
    for family in FAMILIES:
        module = random_model(family).module
        structure = structure_of(module)
        hollow = copy_module(module)
        hollow_(hollow, structure)
        left = {name for name, tensor in hollow.named_parameters() if tensor.device.type != "meta"}
        assert left == set(), family


def test_blocks_with_other_norms_are_refused():
    block = structure_of(random_model("llama").module).blocks[0]
    from dataclasses import replace

    with pytest.raises(UsageError, match=r"has 4 norms .* one before attention"):
        norm_readers(replace(block, norms=block.norms * 2))
    shared = replace(block, norms=block.norms[:1], parallel=True)
    ((name, readers),) = norm_readers(shared)
    assert name == block.norms[0]
    assert len(readers) == 5
