import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from equipoise.core import Rng, UsageError  # noqa: E402
from equipoise.kit.about import about  # noqa: E402
from equipoise.kit.language.states import next_token_log_probs  # noqa: E402
from equipoise.kit.language.tiny import tiny_model  # noqa: E402
from equipoise.methods.alignment import (  # noqa: E402
    DPOOnFixedPreferences,
    UnseenPreference,
    dpo_loss,
    implied_preference,
)
from equipoise.methods.alignment._preference_questions import (  # noqa: E402
    TAUGHT,
    Tail,
    asked,
    option_tokens,
)

OPTIONS = ("a", "b", "c")


def test_loss_by_hand():
    margin, reference = torch.tensor([1.5, -0.5]), torch.tensor([0.5, 0.5])
    share = torch.tensor([0.8, 0.1])
    by_hand = np.mean(
        [
            0.8 * math.log(1 + math.exp(-2)) + 0.2 * math.log(1 + math.exp(2)),
            0.1 * math.log(1 + math.exp(2)) + 0.9 * math.log(1 + math.exp(-2)),
        ]
    )
    assert float(dpo_loss(margin, reference, share, 2.0)) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(("ab", "bc"), [(0.99, 0.01), (0.9, 0.3), (0.6, 0.5)])
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_a_table_of_logits_learns_what_bradley_terry_implies(ab, bc, beta):
    start = torch.tensor([0.3, -1.0, 0.7], dtype=torch.float64)
    logits = start.clone().requires_grad_()
    share = torch.tensor([ab, bc], dtype=torch.float64)

    def margins(table):
        pi = table.log_softmax(-1)
        return torch.stack([pi[0] - pi[1], pi[1] - pi[2]])

    optimizer = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = dpo_loss(margins(logits), margins(start).detach(), share, beta)
        loss.backward()
        return loss

    optimizer.step(closure)
    far = beta * ((logits[0] - logits[2]) - (start[0] - start[2]))
    assert float(torch.sigmoid(far).detach()) == pytest.approx(
        float(implied_preference(ab, bc)), abs=1e-4
    )


def test_the_tail_is_the_model():
    model = tiny_model()
    tokens, lead = option_tokens(model, OPTIONS)
    assert (tokens, lead) == ([97, 98, 99], [32])
    rows = [asked(model, question, "a", "b", lead) for question in TAUGHT]
    assert len({len(row) for row in rows}) > 1  # padding is put to work
    found = Tail(model, rows, tokens)(model.module).detach().numpy()
    whole = next_token_log_probs(model, rows)[:, tokens]
    assert found - found[:, :1] == pytest.approx(whole - whole[:, :1], abs=1e-4)


def test_taught_preferences_are_learned_and_the_control_is_not_changed():
    control = tiny_model()
    before = {name: each.clone() for name, each in control.module.state_dict().items()}
    part = DPOOnFixedPreferences(OPTIONS, (0.9, 0.3), steps=150, rate=0.01)
    made = part.apply(control, Rng(0))
    losses = [value for _, value in about(made)["curves"]["loss"]]
    floor = -np.mean([p * math.log(p) + (1 - p) * math.log(1 - p) for p in (0.9, 0.3)])
    assert losses[0] == pytest.approx(math.log(2), abs=1e-5)
    assert floor < losses[-1] < floor + 0.01
    changed = set()
    for name, each in control.module.state_dict().items():
        assert torch.equal(each, before[name])
        if not torch.equal(each, made.module.state_dict()[name]):
            changed.add(name)
    assert changed
    assert all(".layers.1." in name for name in changed)
    again = part.apply(control, Rng(1)).module.state_dict()
    assert all(torch.equal(each, again[name]) for name, each in made.module.state_dict().items())


def test_unseen_preference_reads_log_ratios():
    task = UnseenPreference.tiny()
    control = task.constant()
    made = DPOOnFixedPreferences(OPTIONS, (0.9, 0.9), steps=60, rate=0.01).apply(control, Rng(0))
    unit, *_ = task.units(Rng(0))
    (outcome,) = task.perform(made, [unit], Rng(0))
    question, margins = unit.content["question"], []
    for live in (made, control):
        for x, y in (("a", "c"), ("c", "a")):
            log_p = next_token_log_probs(live, [asked(live, question, x, y, [32])])[0]
            margins.append(log_p[97] - log_p[99])
    gap = (margins[0] + margins[1] - margins[2] - margins[3]) / 2
    assert outcome.scores["unseen"] == pytest.approx(1 / (1 + math.exp(-gap)), abs=1e-4)
    assert outcome.scores["unseen"] > 0.5
    implied = outcome.scores["implied"]
    taught = implied_preference(outcome.scores["taught_last"], outcome.scores["taught_first"])
    assert implied == pytest.approx(float(taught), abs=1e-6)
    assert outcome.scores["transitivity"] == pytest.approx(
        gap - math.log(implied / (1 - implied)), abs=1e-3
    )


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: DPOOnFixedPreferences(("a",), ()), "at least two different words"),
        (lambda: DPOOnFixedPreferences(("a", "a"), (0.5,)), "at least two different words"),
        (lambda: DPOOnFixedPreferences(OPTIONS, (0.5,)), "3 options take 2 preferences"),
        (lambda: DPOOnFixedPreferences(OPTIONS, (0.5, 1.5)), "preferences must be"),
        (
            lambda: DPOOnFixedPreferences(("a", "cats"), (0.5,)).apply(tiny_model(), Rng(0)),
            "cats: not one token",
        ),
        (
            lambda: UnseenPreference(("a", "b")),
            "at least three different words",
        ),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(UsageError, match=match):
        call()


def test_a_subject_that_was_not_taught_is_refused():
    task = UnseenPreference.tiny()
    with pytest.raises(UsageError, match="treat it by dpo_on_fixed_preferences"):
        task.perform(tiny_model(), task.units(Rng(0)), Rng(0))


def test_half_precision_is_refused():
    model = tiny_model()
    half = model.with_module(tiny_model().module.to(torch.bfloat16))
    with pytest.raises(UsageError, match="must be in float32"):
        DPOOnFixedPreferences(OPTIONS, (0.9, 0.5), steps=1).apply(half, Rng(0))
