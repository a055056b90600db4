"""Fine-tuning of every family: what changes, what does not, and who else gets the same."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch

from equipoise.core import HasModule, Rng, Task, Unit, UsageError
from equipoise.kit.about import about
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.likelihood import NextToken
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.progress import listening
from equipoise.kit.torch.plain import plain_module
from equipoise.kit.torch.quantized import Scheme, quantize_module
from equipoise.methods.training.fine_tune import FineTune

QUICK = {"steps": 3, "batch": 2, "length": 32, "rate": 3e-3, "schedule": "constant", "warmup": 0.0}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def prose(tmp_path):
    path = tmp_path / "prose.txt"
    path.write_text("The quick brown fox jumps over the lazy dog, and on it goes. " * 12)
    return str(path)


def state(subject):
    return {name: each.clone() for name, each in subject.module.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@dataclass(frozen=True)
class Sums(Task):
    rubbish: str = ""

    def units(self, rng):
        for n in range(12):
            test = n % 3 == 2
            ask = self.rubbish if test and self.rubbish else f"{n} + {n}?"
            yield Unit(str(n), {"ask": ask}, 2 * n, split="test" if test else "train")

    @staticmethod
    def example(unit):
        return unit.content["ask"], str(unit.target)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_and_the_control_does_not(family, method, prose):
    control = random_model(family)
    before = state(control)
    flags = [each.requires_grad for each in control.module.parameters()]
    part = FineTune(prose, method=method, rank=4, **QUICK | {"steps": 6, "rate": 2e-2})
    treated = part.apply(control, Rng(0))
    losses = [loss for _, loss in about(treated)["curves"]["loss"]]
    assert len(losses) == 6
    assert losses[-1] < 0.8 * losses[0]
    assert same(state(control), before)
    assert [each.requires_grad for each in control.module.parameters()] == flags
    assert not any(each.requires_grad for each in treated.module.parameters())
    assert not treated.module.training
    assert isinstance(treated, HasModule)
    plain_module(treated.module)  # made of ordinary layers
    assert not any(part._forward_hooks for part in treated.module.modules())


@pytest.mark.parametrize(
    ("method", "layers", "moved"),
    [
        ("full", "all", lambda name: True),
        ("full", "linear", lambda name: "proj" in name),
        ("full", "attention", lambda name: "self_attn" in name and "norm" not in name),
        ("full", "feed_forward", lambda name: "mlp" in name),
        ("lora", "all", lambda name: "proj.weight" in name),
        ("lora", "attention", lambda name: "self_attn" in name and "proj.weight" in name),
        ("lora", "feed_forward", lambda name: "mlp" in name and "proj.weight" in name),
    ],
)
def test_what_is_not_chosen_is_shared(method, layers, moved, prose):
    control = random_model("qwen2")
    treated = FineTune(prose, method=method, layers=layers, rank=4, **QUICK).apply(control, Rng(0))
    pairs = zip(control.module.named_parameters(), treated.module.named_parameters(), strict=True)
    for (name, one), (also, two) in pairs:
        assert name == also
        assert torch.equal(one, two) != moved(name), name
        assert (one.data_ptr() == two.data_ptr()) != moved(name), name
    assert treated.module.lm_head.weight is treated.module.model.embed_tokens.weight


@pytest.mark.parametrize("method", ["full", "lora"])
def test_no_steps_are_the_control_bit_for_bit(method, prose):
    control = tiny_model()
    treated = FineTune(prose, method=method, **QUICK | {"steps": 0}).apply(control, Rng(0))
    assert same(state(treated), state(control))


def test_the_same_seed_gives_the_same_bits(prose):
    part = FineTune(prose, method="lora", rank=4, dropout=0.3, **QUICK)
    one = state(part.apply(tiny_model(), Rng(1)))
    torch.manual_seed(99)
    assert same(state(part.apply(tiny_model(), Rng(1))), one)
    assert not same(state(part.apply(tiny_model(), Rng(2))), one)


def test_recomputing_activations_changes_no_bit(prose):
    for method in ("full", "lora"):
        part = FineTune(prose, method=method, rank=4, gradient_checkpointing=True, **QUICK)
        one, two = (
            part.apply(random_model("gpt2"), Rng(0)),
            replace(part, gradient_checkpointing=False).apply(random_model("gpt2"), Rng(0)),
        )
        assert same(state(one), state(two))


@pytest.mark.parametrize(
    ("family", "method"),
    [("llama", "full"), ("gpt_neox", "full"), ("gpt2", "full"), ("gpt2", "lora")],
)
def test_bfloat16_stays_so_and_learns(family, method, prose):
    control = random_model(family)
    control = control.with_module(control.module.bfloat16())
    part = FineTune(prose, method=method, rank=4, **QUICK | {"steps": 6, "rate": 2e-2})
    treated = part.apply(control, Rng(0))
    assert {each.dtype for each in treated.module.parameters()} == {torch.bfloat16}
    losses = [loss for _, loss in about(treated)["curves"]["loss"]]
    assert losses[-1] < 0.8 * losses[0]
    assert len(treated.generate([])) == 0


def test_an_adapter_may_stay_beside_its_layers(prose):
    part = FineTune(prose, method="lora", rank=4, **QUICK)
    kept = replace(part, keep_adapter=True)
    control = tiny_model()
    merged, apart = part.apply(control, Rng(0)), kept.apply(control, Rng(0))
    pair = ("the quick brown fox", " jumps over")
    one, two = (s.log_likelihood([pair])[0].log_probs for s in (merged, apart))
    assert list(one) == pytest.approx(list(two), abs=1e-5)
    assert any("lora_A" in name for name in state(apart))
    assert same(state(merged), plain_module(apart.module).state_dict())
    assert part.replaces == frozenset()
    assert kept.replaces == {"linear layers"}


@pytest.mark.parametrize("keep", [False, True])
def test_a_filled_skeleton_is_the_treated_subject(keep, prose, tmp_path):
    part = FineTune(prose, method="lora", rank=4, keep_adapter=keep, **QUICK)
    control = tiny_model()
    before = state(control)
    treated = part.apply(control, Rng(0))
    treated.save(tmp_path / "kept")
    hollow = replace(part, data=str(tmp_path / "gone.txt")).skeleton(control)  # reads no data
    found = hollow.fill(tmp_path / "kept")
    pair = ("the quick brown fox", " jumps over")
    one, two = (s.log_likelihood([pair])[0].log_probs for s in (treated, found))
    assert list(one) == list(two)
    assert same(state(control), before)


def trainer(part, control, batches, folder):
    """Return the weights that transformers' Trainer ends with on the same batches."""
    from transformers import Trainer, TrainingArguments

    rows = []
    for step in range(part.steps):
        for batch in batches(step):
            for ids, learned, real in zip(batch.ids, batch.learned, batch.real, strict=True):
                labels = torch.where(learned, ids, -100)
                rows.append({"input_ids": ids, "labels": labels, "attention_mask": real.long()})

    class InOrder(Trainer):
        def _get_train_sampler(self, *given):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=part.steps, per_device_train_batch_size=part.batch,
        gradient_accumulation_steps=part.accumulation, learning_rate=part.rate,
        lr_scheduler_type=part.schedule, warmup_steps=part.warmup,
        weight_decay=part.weight_decay, max_grad_norm=part.clip, report_to=[], use_cpu=True,
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    peer = InOrder(control.module, arguments, train_dataset=rows)
    with torch.random.fork_rng(devices=[]):
        peer.train()
    return dict(peer.model.named_parameters())


@pytest.mark.parametrize(("accumulation", "schedule"), [(1, "linear"), (3, "cosine")])
def test_weights_are_those_of_transformers_trainer(accumulation, schedule, prose, tmp_path):
    part = FineTune(
        prose, steps=6, batch=2, accumulation=accumulation, length=24, rate=1e-2, clip=0.5,
        schedule=schedule, warmup=0.3, weight_decay=0.1,
    )  # fmt: skip
    control = random_model("llama")
    treated = part.apply(control, Rng(0))
    lessons, _ = part._lessons(control, Rng(0))
    _, shown = part._split(lessons, Rng(0))
    batches = part._batches(shown, "cpu", Rng(0))
    theirs = trainer(part, control, batches, tmp_path / "peer")  # writes into its module
    ours = dict(treated.module.named_parameters())
    before = random_model("llama").module.named_parameters()
    assert max((ours[name] - each).abs().max() for name, each in before) > 1e-2
    assert max((ours[name] - each).abs().max() for name, each in theirs.items()) < 1e-5


KILLED = """
import sys, time
from equipoise.core import Rng
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.progress import listening
from equipoise.methods.training.fine_tune import FineTune
part = FineTune(sys.argv[1], method="lora", rank=4, dropout=0.2, steps=14, batch=2, length=32,
                rate=3e-3, checkpoint_seconds=0, held_out=0.1)
def said(what, done, total):
    print(done, flush=True)
    time.sleep(0.05)
with listening(said):
    part.apply(tiny_model(), Rng(4))
"""


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(prose, tmp_path):
    part = FineTune(
        prose, method="lora", rank=4, dropout=0.2, steps=14, batch=2, length=32, rate=3e-3,
        checkpoint_seconds=0, held_out=0.1,
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, prose], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if int(line) == 7:
            process.send_signal(signal.SIGKILL)
            break
    process.wait()
    (kept,) = (tmp_path / "cache" / "checkpoints").glob("*.safetensors")
    resumed, again = [], []
    with listening(lambda what, done, total: resumed.append(done)):
        one = part.apply(tiny_model(), Rng(4))
    assert resumed[0] > 6
    assert not kept.exists()
    with listening(lambda what, done, total: again.append(done)):
        two = part.apply(tiny_model(), Rng(4))
    assert again[0] == 1
    assert same(state(one), state(two))
    assert about(one) == about(two)


def test_a_loss_that_is_not_finite_is_noted(prose, monkeypatch):
    total, calls = NextToken.total, []

    def spoiled(self, module, batch):
        calls.append(1)
        return total(self, module, batch) * (float("nan") if len(calls) == 3 else 1.0)

    short = FineTune(prose, **QUICK | {"steps": 2}).apply(tiny_model(), Rng(0))
    monkeypatch.setattr(NextToken, "total", spoiled)
    treated = FineTune(prose, **QUICK | {"steps": 8}).apply(tiny_model(), Rng(0))
    assert about(treated)["notes"] == [
        "FineTune: The loss was not finite at step 3 of 8; training stopped with the weights"
        " before it."
    ]
    assert same(state(treated), state(short))


def test_held_out_sequences_are_watched_and_not_trained_on(prose):
    part = FineTune(prose, held_out=0.25, **QUICK | {"steps": 20, "rate": 1e-2})
    curves = about(part.apply(tiny_model(), Rng(0)))["curves"]
    steps = [step for step, _ in curves["held-out loss"]]
    assert steps == [float(step) for step in range(0, 21, 2)]
    assert curves["held-out loss"][-1][1] < curves["held-out loss"][0][1]
    lessons, _ = part._lessons(tiny_model(), Rng(0))
    kept, shown = part._split(lessons, Rng(0))
    assert sorted(map(id, (*kept, *shown))) == sorted(map(id, lessons))
    assert len(kept) == -(-len(lessons) // 4)


def test_epochs_see_every_sequence_so_often(prose):
    part = FineTune(prose, epochs=2.0, batch=4, length=32)
    lessons, _ = part._lessons(tiny_model(), Rng(0))
    recipe = part.recipe(len(lessons))
    batches = part._batches(lessons, "cpu", Rng(0))
    seen = [tuple(row[: real.sum()].tolist())
            for step in range(recipe.steps) for batch in batches(step)
            for row, real in zip(batch.ids, batch.real, strict=True)]  # fmt: skip
    wanted = [lesson.ids for lesson in lessons]
    assert sorted(seen) == sorted(wanted * 2)


def test_test_units_of_a_task_do_not_leak():
    part = FineTune(task=Sums(), **QUICK)
    clean = state(part.apply(tiny_model(), Rng(0)))
    assert same(state(replace(part, task=Sums("rubbish")).apply(tiny_model(), Rng(0))), clean)


def test_long_sequences_are_left_out_and_counted(tmp_path):
    rows = [{"prompt": "a", "completion": "b" * (60 if n == 2 else 2)} for n in range(6)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    part = FineTune(str(path), chat=False, **QUICK)
    treated = part.apply(tiny_model(), Rng(0))
    assert about(treated)["notes"] == [
        "FineTune: 1 of 6 sequences are longer than 32 tokens and were left out."
    ]
    with pytest.raises(UsageError, match="all 6 sequences are longer than 2 tokens; raise length"):
        replace(part, length=2).apply(tiny_model(), Rng(0))


def quantised():
    control, scheme = tiny_model(), Scheme(weights=4, activations=4)
    return control.with_module(quantize_module(control.module, scheme, Rng(0)))


def halved():
    control = tiny_model()
    return control.with_module(control.module.half())


@pytest.mark.parametrize(
    ("make", "changes", "says"),
    [
        (tiny_model, {"length": 1024}, "at most the model's 512 positions, got 1024"),
        (tiny_model, {"batch": 64}, "there are 23 sequences to train on, too few for steps of 64"),
        (tiny_model, {"held_out": 0.9, "batch": 4}, "there are 2 sequences .* of 4"),
        (tiny_model, {"method": "lora", "rank": 40}, "A rank of 40 is more than"),
        (quantised, {}, "is a QuantizedLinear, no ordinary linear layer"),
        (halved, {}, "float16 is too narrow"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_one_sentence(make, changes, says, prose):
    control = make()
    before = state(control)
    with pytest.raises(UsageError, match=says) as error:
        FineTune(prose, **QUICK | changes).apply(control, Rng(0))
    assert str(error.value).endswith(".")
    assert same(state(control), before)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give either data"),
        ({"data": "a", "task": Sums()}, "give either data"),
        ({"data": "a", "keep_adapter": True}, "keep_adapter needs method lora"),
        ({"data": "a", "dropout": 0.1}, "dropout is that of LoRA's adapters"),
        ({"data": "a", "warmup": 1.5}, "warmup must be a number from 0 to 1, got 1.5"),
        ({"data": "a", "method": "prefix"}, "method must be one of 'full', 'lora'"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        FineTune(**given)


def test_the_content_of_data_enters_the_identity(tmp_path):
    from equipoise.catalog import identity

    found = set()
    for text in ("one", "two"):
        (tmp_path / "t.txt").write_text(text)
        found.add(identity(FineTune(str(tmp_path / "t.txt"))))
    assert len(found) == 2


def test_plain_functions_come_from_the_package():
    import equipoise.methods.training as package

    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError):
        _ = package.nothing
