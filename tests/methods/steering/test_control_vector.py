import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from equipoise.core import Outcome, Request, Rng, ScoreSpec, Task, Unit, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.states import last_states
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.plain import NotPlain, plain_module
from equipoise.kit.torch.subjects import ModuleSubject
from equipoise.methods.quantization.round_to_nearest import RoundToNearest
from equipoise.methods.reasoning.ioi import IndirectObject
from equipoise.methods.steering.control_vector import (
    ResidualControlVector,
    add_vectors,
    control_direction,
    read_vectors,
    vectors_of,
    write_vectors,
)

TEXTS = ["a", "some text", "other text, and more of it", "b c"]
PAIRS = (("up and away", "down"), ("over the top", "under it all"), ("yes", "no, not at all"))


def drawn(width, seed=0):
    return np.random.default_rng(seed).normal(size=width)


def logits(live, text="the quick brown fox"):
    ids = torch.tensor([live.tokenize(text)])
    with torch.no_grad():
        return live.module(ids).logits[0]


# Directions.


def test_two_points_give_the_direction_between_their_differences():
    high = np.array([[3.0, 1.0, 0.0], [0.0, 5.0, 2.0]])
    low = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    d = high - low
    wanted = (d[0] - d[1]) / np.linalg.norm(d[0] - d[1])
    found = control_direction("pca_contrast", high, low)
    assert min(abs(found - wanted).max(), abs(found + wanted).max()) < 1e-12
    assert found @ d.mean(0) >= 0


def test_centring_takes_the_mean_off_so_pca_and_mean_can_be_orthogonal():
    rng = np.random.default_rng(0)
    u, w = np.eye(8)[0], np.eye(8)[1]
    d = 10 * u + rng.normal(size=(400, 1)) * 3 * w + 0.01 * rng.normal(size=(400, 8))
    d -= (d.mean(0) @ w) * w  # the mean lies along u alone
    low = rng.normal(size=(400, 8))
    mean = control_direction("reading_contrast", low + d, low)
    first = control_direction("pca_contrast", low + d, low)
    assert mean @ u / np.linalg.norm(mean) > 0.9999
    assert abs(first @ w) > 0.999
    assert abs(first @ u) < 0.01


def test_principal_directions_agree_with_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    rng = np.random.default_rng(1)
    high, low = rng.normal(size=(30, 12)) * np.arange(1, 13), rng.normal(size=(30, 12))
    for kind, rows in (("pca_contrast", high - low), ("pca_reading", high)):
        wanted = decomposition.PCA(1).fit(rows).components_[0]
        found = control_direction(kind, high, low)
        assert abs(abs(found @ wanted) - 1) < 1e-9
        assert found @ rows.mean(0) > 0
        long = control_direction(kind, high, low, standardize=True)
        assert np.allclose(long, found * np.linalg.norm(rows.mean(0)))


def test_reading_is_the_mean_and_needs_no_negatives():
    rows = drawn((5, 4))
    assert np.allclose(control_direction("reading", rows), rows.mean(0))


@pytest.mark.parametrize(
    ("kind", "high", "low"),
    [
        ("reading_contrast", np.ones((2, 3)), None),
        ("pca_contrast", np.ones((2, 3)), np.ones((3, 3))),
        ("pca_contrast", np.ones((2, 3)), np.zeros((2, 3))),
        ("pca_reading", np.ones((1, 3)), None),
        ("reading", np.full((2, 3), np.nan), None),
        ("reading", np.ones((0, 3)), None),
        ("other", np.ones((2, 3)), None),
    ],
)
def test_states_that_give_no_direction_are_refused(kind, high, low):
    with pytest.raises(UsageError, match=r"^control_direction: "):
        control_direction(kind, high, low)


# States.


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_the_blocks_own_outputs_at_the_last_token(family):
    live = random_model(family)
    found = last_states(live, TEXTS, [0, 2, 3])
    for line, text in enumerate(TEXTS):
        with torch.no_grad():
            listed = live.module(
                torch.tensor([live.tokenize(text)]), output_hidden_states=True
            ).hidden_states
        # The list begins with the embedding, and ends after the final norm.
        for column, block in enumerate((0, 2)):
            assert np.allclose(found[line, column], listed[block + 1][0, -1], atol=1e-4)
        assert not np.allclose(found[line, 2], listed[4][0, -1], atol=1e-2)


def test_states_do_not_depend_on_the_batch_and_leave_no_hooks():
    live = random_model("gpt2")
    together = last_states(live, TEXTS, [1])
    alone = np.concatenate([last_states(live, [text], [1]) for text in TEXTS])
    assert np.allclose(together, alone, atol=1e-5)
    assert not any(part._forward_hooks for part in live.module.modules())


# Injection.


@pytest.mark.parametrize("family", FAMILIES)
def test_the_hooked_output_moves_by_alpha_times_the_vector(family):
    live, vector = random_model(family), drawn(32).astype(np.float32)
    before = last_states(live, TEXTS, [1, 2])
    once, twice = (
        last_states(live.with_module(add_vectors(live.module, {1: vector}, a)), TEXTS, [1, 2])
        for a in (0.5, 1.0)
    )
    assert np.allclose(once[:, 0] - before[:, 0], 0.5 * vector, atol=1e-5)
    assert np.allclose(twice[:, 0] - before[:, 0], vector, atol=1e-5)
    assert not np.allclose(once[:, 1], before[:, 1], atol=1e-2)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_strength_zero_is_the_model_bit_for_bit(family, normalize):
    live = random_model(family)
    same = live.with_module(add_vectors(live.module, {2: drawn(32)}, 0.0, normalize))
    assert torch.equal(logits(live), logits(same))


def test_null_setting_gives_the_subject_back():
    live = tiny_model()
    assert ResidualControlVector.null().apply(live, Rng(0)) is live


@pytest.mark.parametrize("family", FAMILIES)
def test_normalising_keeps_the_length_of_every_token(family):
    live = random_model(family)
    steered = live.with_module(add_vectors(live.module, {1: 20 * drawn(32)}, 1.0, True))
    before, after = (last_states(each, TEXTS, [1])[:, 0] for each in (live, steered))
    lengths = np.linalg.norm(after, axis=1) / np.linalg.norm(before, axis=1)
    assert abs(lengths - 1).max() < 1e-5
    assert not np.allclose(before, after, atol=0.1)


def test_normalising_in_half_precision_and_at_zero_length():
    hook = add_vectors(tiny_model().module, {0: np.ones(32)}, 3.0, True)
    hook = hook.model.layers[0].control_vector
    states = torch.randn(5, 32, generator=Rng(0).torch()).to(torch.bfloat16)
    ratio = hook.added(states).float().norm(dim=-1) / states.float().norm(dim=-1)
    assert float((ratio - 1).abs().max()) < 0.01
    assert hook.added(states).dtype is torch.bfloat16
    assert torch.equal(hook.added(torch.zeros(2, 32)), torch.zeros(2, 32))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("normalize", [False, True])
def test_generation_with_a_cache_is_what_whole_passes_give(family, normalize):
    live = random_model(family)
    steered = live.with_module(add_vectors(live.module, {1: 3 * drawn(32)}, 1.0, normalize))
    prompts = ["abc", "a longer prompt"]  # padded together
    texts = [g.text for g in steered.generate([Request(p, max_tokens=6) for p in prompts])]
    for prompt, text in zip(prompts, texts, strict=True):
        ids = steered.tokenize(prompt)
        wanted = []
        for _ in range(6):
            with torch.no_grad():
                scores = steered.module(torch.tensor([ids + wanted]), use_cache=False).logits[0, -1]
            if int(scores.argmax()) == 258:
                break
            wanted.append(int(scores.argmax()))
        assert text == steered.tokenizer.decode(wanted, skip_special_tokens=True)


def test_blocks_that_give_a_tuple_are_steered_too():
    live = tiny_model()
    hook = add_vectors(live.module, {0: np.ones(32)}, 2.0).model.layers[0].control_vector
    states = torch.zeros(1, 3, 32)
    first, rest = hook(None, (), (states, "cache"))
    assert rest == "cache"
    assert torch.equal(first, states + 2)


def test_the_control_stays_as_it_was():
    live = random_model("llama")
    before, state = logits(live), {k: v.clone() for k, v in live.module.state_dict().items()}
    steered = add_vectors(live.module, {1: drawn(32)}, 5.0)
    logits(live.with_module(steered))
    assert torch.equal(logits(live), before)
    assert state.keys() == live.module.state_dict().keys()
    assert not any(part._forward_hooks for part in live.module.modules())


def test_vectors_of_several_treatments_add_up():
    live, one, two = random_model("qwen2"), drawn(32), drawn(32, 1)
    both = add_vectors(add_vectors(live.module, {1: one}, 2.0), {1: two}, -1.0)
    together = add_vectors(live.module, {1: 2 * one - two}, 1.0)
    assert torch.allclose(
        logits(live.with_module(both)), logits(live.with_module(together)), atol=1e-4
    )
    assert np.allclose(vectors_of(both)[1], 2 * one - two, atol=1e-6)


# Ordinary layers.


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gpt2"])
def test_without_normalising_it_is_a_bias_of_the_last_layer(family):
    live = random_model(family)
    steered = add_vectors(live.module, {0: drawn(32), 2: drawn(32, 1)}, 0.7)
    plain = plain_module(steered)
    assert torch.allclose(
        logits(live.with_module(plain)), logits(live.with_module(steered)), atol=2e-4
    )
    assert not any(part._forward_hooks for part in plain.modules())
    assert not vectors_of(plain)
    assert vectors_of(steered)  # the steered model is left as it was


@pytest.mark.parametrize(
    ("family", "normalize", "why"),
    [("qwen2", False, "knows no biases"), ("llama", True, "gets back its length")],
)
def test_where_there_is_no_such_bias_it_says_why(family, normalize, why):
    steered = add_vectors(random_model(family).module, {0: drawn(32)}, 1.0, normalize)
    with pytest.raises(NotPlain, match=why):
        plain_module(steered)


# Keeping and composing.


def test_a_saved_model_fills_the_skeleton(tmp_path):
    live = random_model("mistral")
    part = ResidualControlVector(pairs=PAIRS, blocks=(1, 3), kind="pca_contrast", normalize=True)
    steered = part.apply(live, Rng(0))
    steered.save(tmp_path / "kept")
    again = part.skeleton(live).fill(tmp_path / "kept")
    assert torch.equal(logits(again), logits(steered))
    assert not torch.equal(logits(again), logits(live))


def test_it_goes_before_and_after_quantisation():
    live = random_model("llama")
    part, rounded = ResidualControlVector(pairs=PAIRS, strength=3.0), RoundToNearest(weights=4)
    first = rounded.apply(part.apply(live, Rng(0)), Rng(0))
    last = part.apply(rounded.apply(live, Rng(0)), Rng(0))
    assert vectors_of(first.module).keys() == vectors_of(last.module).keys() == {2}
    for each in (first, last):
        assert not torch.equal(logits(each), logits(rounded.apply(live, Rng(0))))
    other = ResidualControlVector(pairs=PAIRS, strength=3.0).apply(live, Rng(0))
    assert part.edits == frozenset({"residual stream"})
    assert not part.replaces
    assert torch.equal(logits(other), logits(part.apply(live, Rng(0))))


def test_files_go_round_and_a_gguf_is_read(tmp_path):
    gguf = pytest.importorskip("gguf")
    vectors = {1: drawn(32).astype(np.float32), 3: drawn(32, 1).astype(np.float32)}
    for name in ("v.safetensors", "deep/v.npz"):
        write_vectors(tmp_path / name, vectors)
        found = read_vectors(tmp_path / name)
        assert found.keys() == vectors.keys()
        assert all(np.array_equal(found[k], vectors[k]) for k in vectors)
    writer = gguf.GGUFWriter(str(tmp_path / "v.gguf"), "controlvector")
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_uint32("controlvector.layer_count", 2)
    for block, vector in vectors.items():
        writer.add_tensor(f"direction.{block}", vector)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    live = random_model("llama")
    wanted = logits(live.with_module(add_vectors(live.module, vectors, 0.5)))
    for name in ("v.safetensors", "deep/v.npz", "v.gguf"):
        part = ResidualControlVector(file=str(tmp_path / name), strength=0.5)
        assert torch.equal(logits(part.apply(live, Rng(0))), wanted)
        assert part.skeleton(live).module.state_dict().keys() == (
            part.apply(live, Rng(0)).module.state_dict().keys()
        )


def test_what_is_learned_can_be_written_and_used_again(tmp_path):
    live, place = random_model("qwen3"), tmp_path / "kind.safetensors"
    part = ResidualControlVector(pairs=PAIRS, strength=2.0, save=str(place))
    with pytest.raises(UsageError, match="still to be written"):
        part.skeleton(live)
    steered = part.apply(live, Rng(0))
    again = ResidualControlVector(file=str(place), strength=2.0).apply(live, Rng(0))
    assert torch.equal(logits(steered), logits(again))
    part.skeleton(live)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda p: {3: np.ones(16)}, "of another model"),
        (lambda p: {9: np.ones(32)}, "blocks must be from 0 to 3"),
        (lambda p: {1: np.full(32, np.inf)}, "is not finite"),
    ],
)
def test_vectors_of_another_model_are_refused(tmp_path, make, fault):
    live = random_model("llama")
    before = logits(live)
    write_vectors(tmp_path / "v.npz", make(tmp_path))
    with pytest.raises(UsageError, match=fault):
        ResidualControlVector(file=str(tmp_path / "v.npz")).apply(live, Rng(0))
    assert torch.equal(logits(live), before)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("v.safetensors", b"rubbish", "cannot be read as safetensors"),
        ("v.npz", b"rubbish", "cannot be read as npz"),
        ("v.gguf", b"rubbish, and more of it", "cannot be read as GGUF"),
        ("v.bin", b"", "must end in"),
        ("none.npz", None, "there is no such file"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, name, content, fault):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=fault):
        read_vectors(tmp_path / name)


def test_a_file_without_vectors_and_a_block_it_lacks(tmp_path):
    np.savez(tmp_path / "v.npz", other=np.ones(3))
    with pytest.raises(UsageError, match="holds no control vectors"):
        read_vectors(tmp_path / "v.npz")
    write_vectors(tmp_path / "w.npz", {1: np.ones(32)})
    with pytest.raises(UsageError, match="has no vector for block 2; it has 1"):
        ResidualControlVector(file=str(tmp_path / "w.npz"), blocks=(2,)).apply(
            random_model("llama"), Rng(0)
        )
    with pytest.raises(UsageError, match=r"must end in \.safetensors or \.npz"):
        write_vectors(tmp_path / "w.bin", {1: np.ones(32)})


# The treatment.


def test_the_vector_is_what_the_texts_give():
    live = random_model("llama")
    high, low = (last_states(live, [pair[side] for pair in PAIRS], [2])[:, 0] for side in (0, 1))
    for kind in ("reading", "reading_contrast", "pca_contrast", "pca_reading"):
        part = ResidualControlVector(pairs=PAIRS, kind=kind, strength=0.5)
        wanted = 0.5 * control_direction(kind, high, low)
        assert np.allclose(vectors_of(part.apply(live, Rng(0)).module)[2], wanted, atol=1e-5)


def test_controls_have_the_learned_length_and_another_direction():
    live = random_model("llama")
    task = IndirectObject(train=12, names=("Ann", "Bob", "Cid", "Dora"))
    base = ResidualControlVector(data=task, only_right=False, samples=12)
    learned = base.vectors(live, Rng(0))[2]
    seen = [learned]
    for other in (
        replace(base, direction="random"),
        replace(base, direction="random", draw=1),
        replace(base, direction="shuffled"),
    ):
        vector = other.vectors(live, Rng(0))[2]
        assert np.isclose(np.linalg.norm(vector), np.linalg.norm(learned))
        assert all(not np.allclose(vector, before) for before in seen)
        assert np.array_equal(vector, other.vectors(live, Rng(0))[2])
        seen.append(vector)


def test_arms_of_other_strength_share_one_vector():
    live = random_model("gpt2")
    task = IndirectObject(train=6, names=("Ann", "Bob", "Cid", "Dora"))
    plus, minus = (
        ResidualControlVector(data=task, only_right=False, strength=a).apply(
            live, Rng(5).child("arm", a)
        )
        for a in (1.0, -2.0)
    )
    assert np.allclose(vectors_of(minus.module)[2], -2 * vectors_of(plus.module)[2], atol=1e-6)


def test_task_negatives_are_the_tasks_own():
    live = random_model("llama")
    task = IndirectObject(train=4, names=("Ann", "Bob", "Cid", "Dora"))
    part = ResidualControlVector(data=task, only_right=False, negatives="task")
    for high, low in part.texts(live, Rng(0)):
        assert high.rpartition(" ")[0] == low.rpartition(" ")[0]
        assert high.rpartition(" ")[2] != low.rpartition(" ")[2]
    strings = ResidualControlVector(data=task, only_right=False).texts(live, Rng(0))
    assert all(0 < len(low) <= 64 for _, low in strings)
    assert len({low for _, low in strings}) == 4


@dataclass(frozen=True)
class Echo(Task):
    """Units the subject of the test answers right when their number is even."""

    scores = (ScoreSpec("correct", True, 0, 1),)

    def units(self, rng):
        for n in range(8):
            yield Unit(str(n), f"question {n}", n, split="train")
        yield Unit("test", "secret", 0)

    def example(self, unit):
        return unit.content, f"answer {unit.target}"

    def perform(self, subject, units, rng):
        return [
            Outcome(u.id, {"correct": float(u.target % 2 == 0)}, output=f"said {u.target}")
            for u in units
        ]


def test_only_units_answered_right_are_read():
    live = tiny_model()
    part = ResidualControlVector(data=Echo())
    assert [high for high, _ in part.texts(live, Rng(0))] == [
        f"question {n} answer {n}" for n in (0, 2, 4, 6)
    ]
    everything = replace(part, only_right=False)
    assert len(everything.texts(live, Rng(0))) == 8
    assert len(replace(everything, samples=3).texts(live, Rng(0))) == 3


@dataclass(frozen=True)
class Poisoned(Echo):
    """The same train units, and other test units."""

    def units(self, rng):
        yield from (unit for unit in super().units(rng) if unit.split == "train")
        yield Unit("test", "poison", -2)


def test_test_units_are_never_read():
    live = random_model("llama")
    clean, dirty = (
        ResidualControlVector(data=task).apply(live, Rng(0)) for task in (Echo(), Poisoned())
    )
    assert torch.equal(logits(clean), logits(dirty))
    assert not any(
        "secret" in text
        for pair in ResidualControlVector(data=Echo(), only_right=False).texts(live, Rng(0))
        for text in pair
    )


def test_own_answers_pair_right_with_wrong_ones():
    part = ResidualControlVector(data=Echo(), negatives="answers")
    assert part.texts(tiny_model(), Rng(0))[0] == ("question 0 said 0", "question 1 said 1")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "give one of data"),
        ({"pairs": PAIRS, "file": "v.npz"}, "give one of data"),
        ({"pairs": PAIRS, "standardize": True}, "standardize is for pca"),
        ({"pairs": PAIRS, "kind": "reading", "direction": "shuffled"}, "shuffled needs"),
        ({"pairs": PAIRS, "blocks": (1, 1)}, "names a block twice"),
        ({"pairs": PAIRS, "blocks": (-1,)}, "blocks must be"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, fault):
    with pytest.raises(UsageError, match=fault):
        ResidualControlVector(**given)


def test_tasks_that_do_not_serve_are_one_sentence():
    live = random_model("llama")
    before = logits(live)
    for part, fault in (
        (ResidualControlVector(pairs=PAIRS, blocks=(4,)), "blocks must be from 0 to 3"),
        (ResidualControlVector(data=Echo(), negatives="task"), "no negative texts of its own"),
        (ResidualControlVector(data=Echo(), samples=1), "has 1 train units that"),
        (ResidualControlVector(data=Echo(), samples=3, negatives="answers"), "got 2 and 1"),
    ):
        with pytest.raises(UsageError, match=fault):
            part.apply(live, Rng(0))
    assert torch.equal(logits(live), before)


def test_a_module_that_is_no_language_model_is_one_sentence():
    with pytest.raises(UsageError, match="is not a decoder-only language model"):
        ResidualControlVector(pairs=PAIRS).apply(ModuleSubject(torch.nn.Linear(2, 2)), Rng(0))


def test_it_survives_pickling():
    part = ResidualControlVector(pairs=PAIRS)
    assert pickle.loads(pickle.dumps(part)) == part
