"""The training loop against hand computations, transformers' schedules, kills and faults."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.progress import listening
from equipoise.kit.torch.checkpoints import Checkpoint, run_key
from equipoise.kit.torch.training import (
    History,
    Recipe,
    finished,
    fit,
    recomputing,
    trainable_copy,
)

X = torch.randn(12, 3, generator=Rng(1).torch())
Y = torch.randn(12, 2, generator=Rng(2).torch())


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path))


def squared(module, batch):
    return (module(batch[0]) - batch[1]).square().sum()


def linear():
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(6.0).view(2, 3) / 5)
        layer.bias.copy_(torch.tensor([0.5, -1.0]))
    return layer


def trained(recipe, batches=None, control=None, chosen=("weight", "bias"), **how):
    control = control or linear()
    learner = trainable_copy(control, chosen)
    batches = batches or (lambda step: [(X, Y)])
    history = fit(learner, batches, squared, recipe=recipe, rng=Rng(0), **how)
    return finished(learner, control), history


def by_hand(recipe, steps):
    """Do the updates in NumPy, in float64."""
    control = linear()
    weights = [each.detach().double().numpy() for each in (control.weight, control.bias)]
    x, y = X.double().numpy(), Y.double().numpy()
    first, second = [0.0, 0.0], [0.0, 0.0]
    for t in range(1, steps + 1):
        error = x @ weights[0].T + weights[1] - y
        gradients = [2 * error.T @ x, 2 * error.sum(0)]
        norm = math.sqrt(sum((g**2).sum() for g in gradients))
        if recipe.clip and norm > recipe.clip:
            gradients = [g * recipe.clip / norm for g in gradients]
        rate = recipe.rate_at(t - 1)
        for i, (w, g) in enumerate(zip(weights, gradients, strict=True)):
            decay = recipe.weight_decay if w.ndim > 1 else 0.0
            if recipe.optimizer == "sgd":
                weights[i] = w - rate * (g + decay * w)
                continue
            one, two = recipe.betas
            first[i] = one * first[i] + (1 - one) * g
            second[i] = two * second[i] + (1 - two) * g**2
            move = first[i] / (1 - one**t) / (np.sqrt(second[i] / (1 - two**t)) + recipe.epsilon)
            weights[i] = w - rate * (decay * w + move)
    return weights


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_steps_equal_those_by_hand(optimizer, clip):
    recipe = Recipe(
        steps=3, rate=0.01, weight_decay=0.1, clip=clip, optimizer=optimizer, schedule="linear"
    )
    made, _ = trained(recipe)
    weight, bias = by_hand(recipe, 3)
    assert np.allclose(made.weight.numpy(), weight, atol=2e-6)
    assert np.allclose(made.bias.numpy(), bias, atol=2e-6)


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [("constant", "constant_with_warmup"), ("linear", "linear"), ("cosine", "cosine")],
)
@pytest.mark.parametrize(("steps", "warmup"), [(20, 0.0), (23, 0.3), (7, 0.15), (5, 1.0)])
def test_schedules_are_those_of_transformers(schedule, theirs, steps, warmup):
    from transformers import get_scheduler

    recipe = Recipe(steps=steps, rate=0.5, schedule=schedule, warmup=warmup)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    rise = math.ceil(steps * warmup)
    peer = get_scheduler(theirs, optimizer, num_warmup_steps=rise, num_training_steps=steps)
    for step in range(steps):
        assert recipe.rate_at(step) == pytest.approx(peer.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        peer.step()


def test_several_batches_are_one_large_one():
    recipe = Recipe(steps=4, rate=0.05, clip=0.5)
    large, one = trained(recipe, lambda step: [(X, Y)], size=lambda batch: len(batch[0]))
    pieces = [(X[a:b], Y[a:b]) for a, b in ((0, 5), (5, 6), (6, 12))]
    small, two = trained(recipe, lambda step: pieces, size=lambda batch: len(batch[0]))
    assert torch.allclose(large.weight, small.weight, atol=1e-6)
    assert one.losses == pytest.approx(two.losses, rel=1e-5)


def test_no_steps_are_no_change():
    control = linear()
    made, history = trained(Recipe(steps=0), control=control)
    assert torch.equal(made.weight, control.weight)
    assert history.losses == []


def test_only_what_was_chosen_is_copied_and_trained():
    control = linear()
    before = control.weight.clone()
    made, _ = trained(Recipe(steps=2, rate=0.1), control=control, chosen={"bias"})
    assert made.weight.data_ptr() == control.weight.data_ptr()
    assert torch.equal(made.weight, before)
    assert not torch.equal(made.bias, control.bias)
    assert not any(each.requires_grad for each in made.parameters())
    assert all(each.requires_grad for each in control.parameters())
    assert all(each.grad is None for each in (*made.parameters(), *control.parameters()))


def test_tied_parameters_stay_one():
    control = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    control[1].weight = control[0].weight
    learner = trainable_copy(control, {"1.weight"})
    assert learner[0].weight is learner[1].weight
    assert learner[0].weight.requires_grad
    whole = finished(learner, control)
    assert whole[0].weight is whole[1].weight
    assert whole[0].weight is not control[0].weight


def test_half_precision_is_trained_in_single_and_given_back():
    control = linear().bfloat16()
    learner = trainable_copy(control, {"weight"}, torch.float32)
    assert (learner.weight.dtype, learner.bias.dtype) == (torch.float32, torch.bfloat16)
    assert finished(learner, control).weight.dtype == torch.bfloat16


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_with_the_weights_before(bad):
    calls = []

    def loss(module, batch):
        calls.append(1)
        return squared(module, batch) * (bad if len(calls) == 4 else 1.0)

    learner = trainable_copy(linear(), {"weight", "bias"})
    history = fit(learner, lambda s: [(X, Y)], loss, recipe=Recipe(steps=9, rate=0.01), rng=Rng(0))
    three, _ = trained(Recipe(steps=3, rate=0.01))
    assert torch.equal(learner.weight, three.weight)
    assert "loss was not finite at step 4 of 9" in history.note
    assert len(history.losses) == 3


def test_a_gradient_that_is_not_finite_stops_too():
    def loss(module, batch):
        return (module.weight - module.weight).abs().sqrt().sum()  # 0, with a gradient of 0 / 0

    learner = trainable_copy(linear(), {"weight"})
    history = fit(learner, lambda s: [None], loss, recipe=Recipe(steps=2), rng=Rng(0))
    assert torch.equal(learner.weight, linear().weight)
    assert "gradient was not finite at step 1 of 2" in history.note


def test_nothing_to_train_is_one_sentence():
    with pytest.raises(UsageError, match=r"Linear has no parameters to train\.$"):
        trained(Recipe(steps=1), chosen=())
    whole = nn.Module()
    whole.register_parameter("codes", nn.Parameter(torch.ones(2, dtype=torch.int8), False))
    with pytest.raises(UsageError, match=r"codes holds torch\.int8, which cannot be trained"):
        trainable_copy(whole, {"codes"})


def test_ratios_out_of_range_are_one_sentence():
    with pytest.raises(UsageError, match=r"Recipe: warmup must be a number from 0 to 1, got 1.5"):
        Recipe(warmup=1.5)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = linear()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.inner(self.drop(x))


def test_dropout_has_a_stream_of_its_own():
    control = Dropping()  # layers draw when they are made

    def run(seed):
        learner = trainable_copy(control, {"inner.weight"})
        fit(learner, lambda s: [(X, Y)], squared, recipe=Recipe(steps=3, rate=0.1), rng=Rng(seed))
        return learner.inner.weight.detach()

    torch.manual_seed(5)
    state = torch.get_rng_state()
    one = run(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert torch.equal(run(0), one)
    assert not torch.equal(run(1), one)


def test_recomputing_changes_nothing():
    def run(names):
        control = nn.Sequential(Dropping(), nn.Tanh(), nn.Linear(2, 2))
        control[2].load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
        learner = trainable_copy(control, {"0.inner.weight"})
        with recomputing(learner, names):
            fit(learner, lambda s: [(X, Y)], squared, recipe=Recipe(steps=3, rate=0.1), rng=Rng(0))
        assert "forward" not in vars(learner[0])
        return learner[0].inner.weight

    assert torch.equal(run([]), run(["0", "2"]))


def stopped(steps, at, checkpoint, watch=None):
    """Train until ``at`` and fall over, then again to the end."""

    def batches(step):
        if step == at and not fallen:
            fallen.append(step)
            raise KeyboardInterrupt
        return [(X, Y)]

    fallen = [] if at is not None else [0]
    found = []
    for _ in range(2 if at is not None else 1):
        learner = trainable_copy(Dropping(), {"inner.weight", "inner.bias"})
        recipe = Recipe(steps=steps, rate=0.1, schedule="cosine", warmup=0.2)
        try:
            found = [learner, fit(
                learner, batches, squared, recipe=recipe, rng=Rng(0), watch=watch, watch_every=2,
                checkpoint=checkpoint,
            )]  # fmt: skip
        except KeyboardInterrupt:
            assert checkpoint.path.exists()
    return found


def watched(module):
    return {"size": float(module.inner.weight.norm())}


@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(at):
    whole, history = stopped(8, None, None, watched)
    checkpoint = Checkpoint("key", seconds=0)
    again, resumed = stopped(8, at, checkpoint, watched)
    assert torch.equal(again.inner.weight, whole.inner.weight)
    assert torch.equal(again.inner.bias, whole.inner.bias)
    assert resumed == history
    assert [int(step) for step, _ in history.watched["size"]] == [0, 2, 4, 6, 8]
    assert list(checkpoint.path.parent.iterdir()) == []


def test_a_damaged_checkpoint_is_as_good_as_none():
    whole, _ = stopped(4, None, None)
    checkpoint = Checkpoint("key", seconds=0)
    checkpoint.path.parent.mkdir(parents=True)
    checkpoint.path.write_bytes(b"\x10" * 100)
    again, _ = stopped(4, None, checkpoint)
    assert torch.equal(again.inner.weight, whole.inner.weight)


def test_a_checkpoint_is_written_no_oftener_than_asked():
    checkpoint = Checkpoint("key", seconds=1e6)
    seen = []

    def batches(step):
        seen.append(checkpoint.path.exists())
        return [(X, Y)]

    trained(Recipe(steps=3), batches, checkpoint=checkpoint)
    assert seen == [False] * 3


def test_a_run_is_named_by_all_that_decides_it():
    layer = linear()
    keys = {
        run_key(Rng(0), ["a"], layer),
        run_key(Rng(1), ["a"], layer),
        run_key(Rng(0).child("x"), ["a"], layer),
        run_key(Rng(0), ["b"], layer),
        run_key(Rng(0), ["a"], layer.bfloat16()),
    }
    assert len(keys) == 5
    assert run_key(Rng(0), ["a"], linear()) in keys


def test_progress_is_told():
    heard = []
    with listening(lambda *said: heard.append(said)):
        trained(Recipe(steps=2), what="fine-tuning")
    assert [(done, total) for _, done, total in heard] == [(1, 2), (2, 2)]
    assert heard[0][0].startswith("fine-tuning, loss ")


def test_long_curves_become_means():
    curve = History(losses=[float(n) for n in range(1000)]).curves(10)["loss"]
    assert len(curve) == 10
    assert curve[0] == [50.5, 49.5]
