import numpy as np
import pytest
import torch

from equipoise.core import Request, Rng, UsageError
from equipoise.kit.language._forward import Forward
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.structure import structure_of
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.linear import weight_of
from equipoise.kit.torch.plain import NotPlain, plain_module
from equipoise.kit.torch.tokens import token_mask
from equipoise.methods.pruning import ProbePruning, batch_stream, kept_units
from equipoise.methods.pruning._moments import moments_of
from equipoise.methods.pruning._online import Probed
from equipoise.methods.pruning._scores import (
    best,
    kept_count,
    ppsp_scores,
    select_probe,
)

SMALL = {
    "spared": 1,
    "calibration": "builtin:sklearn_descriptions",
    "samples": 4,
    "length": 24,
}
WHAT = ("channels", "heads", "both")


def ids(rows=3, length=20, seed=1):
    return torch.randint(0, 255, (rows, length), generator=torch.Generator().manual_seed(seed))


def logits(module, tokens, **given):
    with torch.no_grad():
        return module(input_ids=tokens, **given).logits


def listen(module, name):
    """Return a list that fills with what goes into a layer, and the hook."""
    heard = []
    layer = module.get_submodule(name)
    return heard, layer.register_forward_pre_hook(lambda _, args: heard.append(args[0].clone()))


# What runs


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("family", FAMILIES)
def test_leaving_out_is_masking(family, what):
    """The slices that run give what zeros at the removed inputs of output layers give."""
    control = random_model(family)
    treated = ProbePruning(0.4, what, **SMALL).apply(control, Rng(0))
    tokens = ids()
    found = logits(treated.module, tokens)
    kept = kept_units(treated.module)
    assert {len(places) < total for places, total in kept.values()} == {True}
    hooks = []
    for block in structure_of(control.module).blocks:
        for label, name, width in (
            (f"heads_{block.index}", block.attention.output, block.attention.head_size),
            (f"channels_{block.index}", block.feed_forward.down, 1),
        ):
            if label in kept:
                layer = control.module.get_submodule(name)
                mask = torch.zeros(kept[label][1])
                mask[kept[label][0]] = 1.0
                mask = mask.repeat_interleave(width)
                hooks.append(
                    layer.register_forward_pre_hook(lambda _, args, m=mask: (args[0] * m,))
                )
    masked = logits(control.module, tokens)
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(found, masked, rtol=1e-5, atol=1e-5)
    whole = logits(control.module, tokens)
    assert (whole - found).abs().max() > 1e-2, "the control is whole, and pruning shows"


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("family", FAMILIES)
def test_full_probe_without_history_scores_the_batch_itself(family, what):
    control = random_model(family)
    treated = ProbePruning(0.4, what, full_batch=True, spared=1).apply(control, Rng(0))
    tokens = ids()
    block = structure_of(control.module).blocks[1]  # the first one pruned: its input is dense
    piece = block.attention if what != "channels" else None
    name = block.attention.output if piece else block.feed_forward.down
    heard, hook = listen(control.module, name)
    logits(control.module, tokens)
    hook.remove()
    energy = heard[0].square().mean(0).sum(0)
    weight = weight_of(control.module.get_submodule(name))
    scores = ppsp_scores(weight, energy, piece.head_size if piece else 1)
    logits(treated.module, tokens)
    places, _ = kept_units(treated.module)["heads_1" if piece else "channels_1"]
    assert places.tolist() == best(scores, len(places)).tolist()


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gpt2"])
def test_probe_is_a_run_of_the_compacted_text(family):
    """Heads are probed at true positions, under the causal mask of what is kept."""
    control = random_model(family)
    treated = ProbePruning(
        0.4, "heads", spared=0, fusion="none", probe_samples=0.3, multiple=1
    ).apply(control, Rng(0))
    tokens = ids(5, 30)
    block = structure_of(control.module).blocks[0]
    residual, hook = listen(control.module, block.norms[0])
    logits(control.module, tokens)
    hook.remove()
    samples, places = select_probe(residual[0], 0.3, 0.5)
    assert len(samples) == 2
    assert len(places) == 15
    heard, hook = listen(control.module, block.attention.output)
    compact = tokens[samples][:, places]
    logits(control.module, compact, position_ids=places[None].expand(2, -1))
    hook.remove()
    energy = heard[0].square().mean(0).sum(0)
    weight = weight_of(control.module.get_submodule(block.attention.output))
    scores = ppsp_scores(weight, energy, block.attention.head_size)
    logits(treated.module, tokens)
    kept, _ = kept_units(treated.module)["heads_0"]
    assert kept.tolist() == best(scores, len(kept)).tolist()


def test_history_is_what_calibration_saw_and_is_fused():
    control = random_model("llama")
    part = ProbePruning(0.4, **SMALL)
    treated = part.apply(control, Rng(0))
    windows = calibration_batches(
        control, part.calibration, Rng(0).child("calibration"), samples=4, length=24
    )
    block = structure_of(control.module).blocks[1]
    heard, hook = listen(control.module, block.feed_forward.down)
    logits(control.module, torch.cat(windows))
    hook.remove()
    history = heard[0].square().mean(0)
    probed = treated.module.get_submodule(block.feed_forward.name)
    torch.testing.assert_close(probed.history, history)
    # The choice follows from a, V and W by the paper's equations, worked out here.
    tokens = ids(5, 30)  # longer than the calibration
    residual, first = listen(control.module, block.norms[1])
    inner, second = listen(control.module, block.feed_forward.down)
    logits(control.module, tokens)
    first.remove(), second.remove()
    samples, places = select_probe(residual[0], 0.05, 0.5)
    a = inner[0][samples][:, places].square().mean(0)
    b = history[places.clamp(max=23)]
    energy = ((a**2 + b**2) / (a + b)).sum(0)
    weight = weight_of(control.module.get_submodule(block.feed_forward.down))
    logits(treated.module, tokens)
    kept, _ = kept_units(treated.module)["channels_1"]
    assert kept.tolist() == best(ppsp_scores(weight, energy), len(kept)).tolist()


def test_moments_are_those_of_all_windows():
    control = random_model("gpt2")
    name = structure_of(control.module).blocks[2].feed_forward.down
    windows = [row[None] for row in ids(7, 800)[:, :512]]  # more than run at once
    found = moments_of(control.module, [name], windows)[name]
    heard, hook = listen(control.module, name)
    logits(control.module, torch.cat(windows))
    hook.remove()
    torch.testing.assert_close(found.mean, heard[0].mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.variance, heard[0].var(0, correction=0), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found.square, heard[0].square().mean(0), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("what", ["channels", "heads"])
def test_history_moves_at_kept_units_only(what):
    treated = ProbePruning(0.4, what, **SMALL).apply(random_model("llama"), Rng(0))
    probed = next(part for part in treated.module.modules() if isinstance(part, Probed))
    before = probed.history.clone()
    heard, hook = listen(probed.part, probed.piece.output.removeprefix(f"{probed.piece.part}."))
    with batch_stream(treated.module):
        logits(treated.module, ids())
        kept = probed.piece.columns(probed.kept)
        after = probed.recent.clone()
    hook.remove()
    batch = heard[-1].square().mean(0)  # the last is the real pass, the one before the probe
    if what == "heads":
        batch = batch[:, kept]
    expected = before.clone()
    expected[:20, kept] = 0.99 * before[:20, kept] + 0.01 * batch
    torch.testing.assert_close(after, expected)
    gone = [k for k in range(before.shape[1]) if k not in kept.tolist()]
    assert torch.equal(after[:, gone], before[:, gone])
    assert torch.equal(probed.history, before), "what was calibrated stands"
    assert probed.recent is None, "and the next stream begins from it"


def test_history_of_padded_batches_counts_real_tokens():
    treated = ProbePruning(0.4, **SMALL).apply(random_model("llama"), Rng(0))
    probed = next(part for part in treated.module.modules() if isinstance(part, Probed))
    tokens, real = ids(2, 20), torch.ones(2, 20, dtype=torch.bool)
    real[0, 12:] = False
    heard, hook = listen(probed.part, "down_proj")
    with batch_stream(treated.module), token_mask(real):
        logits(treated.module, tokens)
        after = probed.recent.clone()
    hook.remove()
    batch = torch.cat([heard[-1][:, :12].square().mean(0), heard[-1][1, 12:].square()])
    expected = probed.history.clone()
    expected[:20, probed.kept] = 0.99 * expected[:20, probed.kept] + 0.01 * batch
    torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("what", WHAT)
def test_padding_changes_nothing(what):
    treated = ProbePruning(0.4, what, probe_samples=1.0, **SMALL).apply(
        random_model("llama"), Rng(0)
    )
    tokens, real = ids(2, 30), torch.ones(2, 30, dtype=torch.bool)
    real[0, 14:] = False
    found = []
    for junk in (0, 200):
        tokens[0, 14:] = junk
        with token_mask(real):
            found.append(logits(treated.module, tokens)[real])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_nothing_left_out_is_the_model_itself():
    control = random_model("qwen3")
    tokens = ids()
    same = ProbePruning(0.0).apply(random_model("qwen3", num_hidden_layers=5), Rng(0))
    assert not kept_units(same.module)
    treated = ProbePruning.null().apply(control, Rng(0))
    assert torch.equal(logits(treated.module, tokens), logits(control.module, tokens))


# As a subject


def test_company_and_order_change_nothing():
    treated = ProbePruning(0.4, "both", **SMALL).apply(random_model("llama"), Rng(0))
    pairs = [("the quick brown fox", " jumps"), ("red", " green"), ("a river of words", " ran dry")]
    together = treated.log_likelihood(pairs)
    turned = treated.log_likelihood(pairs[::-1])[::-1]
    for pair, one, two in zip(pairs, together, turned, strict=True):
        (alone,) = treated.log_likelihood([pair])
        np.testing.assert_allclose(one.log_probs, alone.log_probs, atol=1e-5)
        np.testing.assert_allclose(two.log_probs, alone.log_probs, atol=1e-5)
    requests = [Request(prompt, max_tokens=6) for prompt, _ in pairs]
    texts = [each.text for each in treated.generate(requests)]
    assert texts == [treated.generate([each])[0].text for each in requests]


def test_a_batch_is_pruned_together():
    treated = ProbePruning(0.4, probe_samples=1.0, **SMALL).apply(random_model("llama"), Rng(0))
    tokens = ids(2, 30)
    both = logits(treated.module, tokens)
    alone = logits(treated.module, tokens[:1])
    assert (both[:1] - alone).abs().max() > 1e-3


@pytest.mark.parametrize("what", WHAT)
def test_decoding_keeps_the_units_of_the_prompt(what):
    control = random_model("llama")
    treated = ProbePruning(0.4, what, **SMALL).apply(control, Rng(0))
    forward, prompt, more = Forward(treated.module), ids(1, 12), ids(1, 3, seed=9)
    cache = forward.new_cache()
    forward.states(prompt, cache=cache)
    kept = {name: places.clone() for name, (places, _) in kept_units(treated.module).items()}
    steps = [forward.logits(forward.states(more[:, i : i + 1], cache=cache)) for i in range(3)]
    after = kept_units(treated.module)
    assert all(torch.equal(kept[name], after[name][0]) for name in kept)
    # The same units for the whole text at once give the same logits.
    for part in treated.module.modules():
        if isinstance(part, Probed):
            part._choose = lambda *_, part=part: kept[part.piece.label]
    whole = logits(treated.module, torch.cat([prompt, more], dim=1))
    torch.testing.assert_close(torch.cat(steps, dim=1), whole[:, 12:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("part", [
    ProbePruning(0.4, "both", **SMALL),
    ProbePruning(0.4, full_batch=True, spared=1),
    ProbePruning(0.4, "heads", fusion="fixed", probe_weight=0.25, **SMALL),
], ids=repr)  # fmt: skip
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_skeleton_filled_from_a_folder_is_the_treated_subject(part, family, tmp_path):
    control = random_model(family)
    treated = part.apply(control, Rng(0))
    treated.save(tmp_path)
    again = part.skeleton(control).fill(tmp_path)
    assert again.batch_size == 1
    assert torch.equal(logits(again.module, ids()), logits(treated.module, ids()))


def test_fixed_fusion_weighs_the_probe():
    control = random_model("llama")
    tokens = ids()

    def kept(**settings):
        treated = ProbePruning(0.4, **SMALL, **settings).apply(control, Rng(0))
        logits(treated.module, tokens)
        return kept_units(treated.module)["channels_1"][0].tolist()

    assert kept(fusion="fixed", probe_weight=1.0) == kept(fusion="none")
    assert kept(fusion="fixed", probe_weight=0.0) != kept(fusion="none")


def test_a_copy_has_a_history_of_its_own():
    one = ProbePruning(0.4, "both", **SMALL).apply(random_model("llama"), Rng(0)).module
    two = copy_module(one)
    with batch_stream(two):
        before = logits(two, ids())
        parts = [[part for part in m.modules() if isinstance(part, Probed)] for m in (one, two)]
        assert all(part.recent is None for part in parts[0])
        assert all(part.recent is not None for part in parts[1])
    assert torch.equal(logits(one, ids()), before)


def test_there_is_no_plain_form():
    treated = ProbePruning(0.4, **SMALL).apply(random_model("llama"), Rng(0))
    with pytest.raises(NotPlain, match="what is pruned is chosen for each batch"):
        plain_module(treated.module)


def test_behind_a_rewritten_prompt_sequences_run_alone_too():
    from equipoise.kit.language.wrap import rewritten

    wrapped = rewritten(random_model("llama"), _same)
    treated = ProbePruning(0.4, **SMALL).apply(wrapped, Rng(0))
    assert treated.subject.batch_size == 1
    assert wrapped.subject.batch_size is None


def _same(request):
    return request


def test_slices_run_faster_than_the_whole():
    """In operations, which no busy machine moves: 40 % fewer channels, less what probing costs."""
    from torch.utils.flop_counter import FlopCounterMode

    control = random_model("llama", hidden_size=64, intermediate_size=1024)
    treated = ProbePruning(0.4, spared=0, samples=2, length=16, multiple=1).apply(control, Rng(0))
    counts = []
    for module in (control.module, treated.module):
        layer = module.model.layers[0]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer.mlp(layer.post_attention_layernorm(torch.randn(20, 16, 64)))
        counts.append(counter.get_total_flops())
    kept = kept_count(1024, 0.4) / 1024
    probe = 2 / 3 * 1 / 20 * 8 / 16  # gate and up, for one sample and half its tokens
    assert counts[1] / counts[0] == pytest.approx(kept + probe, rel=1e-6)


# Bad input


def test_wrong_use_is_one_sentence():
    control = tiny_model()
    before = {name: tensor.clone() for name, tensor in control.module.state_dict().items()}
    with pytest.raises(UsageError, match="Of 2 blocks 3 are spared, which leaves none to prune"):
        ProbePruning().apply(control, Rng(0))
    with pytest.raises(UsageError, match="would take everything from the 1 that are not spared"):
        ProbePruning(0.5, spared=1).apply(control, Rng(0))
    with pytest.raises(UsageError, match=r"ratio must be a number from 0 to 0\.99, got 1"):
        ProbePruning(1.0)
    with pytest.raises(UsageError, match="too few to calibrate on"):
        ProbePruning(0.4, spared=0, length=900_000).apply(control, Rng(0))
    treated = ProbePruning(0.4, spared=0, samples=2, length=16).apply(control, Rng(0))
    with pytest.raises(UsageError):
        ProbePruning(0.4, spared=0).apply(treated, Rng(0))
    for name, tensor in control.module.state_dict().items():
        assert torch.equal(tensor, before[name])
