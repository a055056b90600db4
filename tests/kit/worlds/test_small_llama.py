import pytest
import torch

from equipoise.core import Rng, UsageError
from equipoise.kit.language.structure import structure_of
from equipoise.kit.worlds.small_llama import trained, with_outliers
from equipoise.methods.language.small_llama import SmallLlama

SIZES = (32, 1, 2, 64)
IDS = torch.arange(100)[None] % 128


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    place = tmp_path_factory.mktemp("world") / "text.txt"
    place.write_text("the same words again and again, " * 40)
    return str(place)


def loss(module):
    ids = torch.tensor([list(b"the same words again and again, the same words again")])
    with torch.no_grad():
        return float(module(ids, labels=ids).loss)


def test_it_learns_and_is_the_same_again(text):
    untaught, taught = (trained(*SIZES, text, steps, 0) for steps in (0, 30))
    assert loss(untaught) > 4
    assert loss(taught) < 2.5
    trained.cache_clear()
    again = trained(*SIZES, text, 30, 0).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in taught.state_dict().items())
    other = trained(*SIZES, text, 0, 1).state_dict()
    assert not torch.equal(other["lm_head.weight"], untaught.state_dict()["lm_head.weight"])


def test_outliers_are_as_large_as_asked_and_change_nothing(text):
    plain = trained(*SIZES, text, 0, 0)
    loud = with_outliers(plain, 3, 20.0, Rng(0))
    with torch.no_grad():
        assert (loud(IDS).logits - plain(IDS).logits).abs().max() < 1e-4
    (block,) = structure_of(plain).blocks
    for name in (block.attention.value, block.feed_forward.up):
        before, after = (m.get_submodule(name).weight for m in (plain, loud))
        # Where the norm before is louder too, the weights that read it are smaller.
        quiet = after[:, :].abs().div(before.abs()).flatten(1).amax(1)
        assert (quiet > 15).sum() == 3, name
    for name in block.norms:
        gain = loud.get_submodule(name).weight / plain.get_submodule(name).weight
        assert sorted(gain.tolist()) == pytest.approx([1.0] * 29 + [20.0] * 3)


def test_arms_share_weights_whatever_their_stream(text):
    part = SmallLlama(*SIZES[:3], channels=64, steps=0, data=text, outliers=1)
    one, two = (part.load(Rng(seed)).module.state_dict() for seed in (0, 1))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_faults_are_told(tmp_path):
    with pytest.raises(UsageError, match="heads must be even and width a multiple"):
        SmallLlama(width=30, heads=4)
    with pytest.raises(UsageError, match="heads must be even"):
        SmallLlama(width=30, heads=3)
    (tmp_path / "short.txt").write_text("few words")
    with pytest.raises(UsageError, match="has 9 bytes, fewer than 129"):
        SmallLlama(data=str(tmp_path / "short.txt"), steps=0).load(Rng(0))
