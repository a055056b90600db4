"""The reasoner learns what it is shown, and nothing hangs on batches, order or globals."""

import random

import numpy as np
import pytest
import torch

from equipoise.core import Generates, HasModule, Request, Rng, UsageError
from equipoise.kit.worlds.small_language_model import answer
from equipoise.kit.worlds.words import Words
from equipoise.methods.reasoning.mathgap import MathGap, MathGapFile
from equipoise.methods.reasoning.small_reasoner import Reasoner, SmallReasoner, TrainReasoner

TASK = MathGap(depth=1, problems=1, train=12, instruction="")
BARE = SmallReasoner(width=48, layers=2, heads=2, tokens=256)
TEACH = TrainReasoner(TASK, steps=150, batch_tokens=700, rate=5e-3)


@pytest.fixture(scope="module")
def taught():
    torch.set_num_threads(1)
    return TEACH.apply(BARE.load(Rng(0)), Rng(1))


def requests(pairs, limit=60):
    return [Request([{"role": "user", "content": q}], max_tokens=limit) for q, _ in pairs]


def test_it_learns_by_heart_what_it_is_taught(taught):
    pairs = TEACH.pairs(Rng(1))
    answers = taught.generate(requests(pairs))
    assert sum(a.text == right for a, (_, right) in zip(answers, pairs, strict=True)) >= 11
    assert {a.finish for a in answers} == {("stop",)}
    assert all(a.usage.input_tokens > 10 and a.usage.output_tokens > 10 for a in answers)


def test_before_that_it_says_nothing():
    assert BARE.load(Rng(0)).generate([Request("Ann has 2 pears.")])[0].text == ""


def test_one_at_a_time_equals_batched_in_any_order(taught):
    pairs = TEACH.pairs(Rng(1))
    mixed = [*pairs, ("Ada has 3.", ""), ("Ada has 3 keys. How many keys does Ada have?", "")]
    batched = taught.generate(requests(mixed, 30))
    assert [taught.generate([r])[0].text for r in requests(mixed, 30)] == [b.text for b in batched]
    assert [b.text for b in taught.generate(requests(mixed[::-1], 30))][::-1] == [
        b.text for b in batched
    ]
    assert taught.generate([]) == []


def test_the_cache_gives_what_a_whole_pass_gives(taught):
    """Token by token with the cache against the plain forward pass."""
    (question, _), *_ = TEACH.pairs(Rng(1))
    words = taught.tokenizer
    text = taught.generate([Request(question, max_tokens=40)])[0].text
    ids = torch.tensor([[1, *words.encode(question), 2, *words.encode(text)]])
    with torch.inference_mode():
        best = taught.module.logits(taught.module(ids)).argmax(-1)[0]
    start = 1 + len(words.encode(question))
    written = words.encode(text)
    assert best[start : start + len(written)].tolist() == written


def test_the_same_stream_teaches_the_same_whatever_the_global_generators(taught):
    torch.manual_seed(123)
    np.random.seed(5)  # noqa: NPY002 - the point is that it makes no difference
    random.seed(9)
    before = torch.get_rng_state()
    quick = TrainReasoner(TASK, steps=3, batch_tokens=300)
    one = quick.apply(BARE.load(Rng(0)), Rng(1))
    assert torch.equal(before, torch.get_rng_state())
    two = quick.apply(BARE.load(Rng(0)), Rng(1))
    for name, tensor in one.module.state_dict().items():
        assert torch.equal(tensor, two.module.state_dict()[name]), name
    other = quick.apply(BARE.load(Rng(0)), Rng(2))
    assert not torch.equal(one.module.embed.weight, other.module.embed.weight)


def test_the_untaught_subject_stays_as_it_was():
    bare = BARE.load(Rng(0))
    before = {name: tensor.clone() for name, tensor in bare.module.state_dict().items()}
    TrainReasoner(TASK, steps=2, batch_tokens=300).apply(bare, Rng(0))
    for name, tensor in bare.module.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_all_that_was_learnt_is_in_the_tensors(taught, tmp_path):
    taught.save(tmp_path)
    filled = TEACH.skeleton(BARE.load(Rng(7))).fill(tmp_path)
    pairs = TEACH.pairs(Rng(1))
    assert [a.text for a in filled.generate(requests(pairs))] == [
        a.text for a in taught.generate(requests(pairs))
    ]


def test_damaged_or_foreign_tensors_are_refused(taught, tmp_path):
    with pytest.raises(UsageError, match="holds no tensors that fit"):
        taught.fill(tmp_path)
    SmallReasoner.tiny().load(Rng(0)).save(tmp_path / "other")
    with pytest.raises(UsageError, match="holds no tensors that fit"):
        taught.fill(tmp_path / "other")
    taught.save(tmp_path / "cut")
    path = tmp_path / "cut" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageError, match="holds no tensors that fit"):
        taught.fill(tmp_path / "cut")


def test_it_has_the_capabilities_it_declares(taught):
    assert isinstance(taught, Reasoner)
    for capability in SmallReasoner.provides:
        assert isinstance(taught, capability)
    assert SmallReasoner.provides == {Generates, HasModule}
    assert taught.with_module(taught.module).generate([]) == []


def test_limits_and_stops_are_kept(taught):
    (question, _), *_ = TEACH.pairs(Rng(1))
    short = taught.generate([Request(question, max_tokens=3, n=2)])[0]
    assert short.finish == ("length", "length")
    assert len(Words.split(short.text)) == 3
    stopped = taught.generate([Request(question, max_tokens=60, stop=(".",))])[0]
    assert "." not in stopped.text
    assert stopped.finish == ("stop",)


def test_unequal_limits_in_one_batch(taught):
    pairs = TEACH.pairs(Rng(1))[:3]
    found = answer(taught.module, [q for q, _ in pairs], [2, 50, 5])
    assert [each[3] for each in found][0::2] == [2, 5]
    assert found[1][1]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: SmallReasoner(width=100, heads=8), "width must be a multiple of twice the heads"),
        (lambda: TrainReasoner(TASK).apply(object(), Rng(0)), "must be a small_reasoner"),
        (lambda: TrainReasoner(MathGap(train=0)).pairs(Rng(0)), "data has no train units"),
        (lambda: TrainReasoner(MathGapFile.tiny()).pairs(Rng(0)), "has no worked solutions"),
    ],
)
def test_mistakes_are_one_sentence(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
