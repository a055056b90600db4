"""Torch predictors: against the module itself, with weights from files that run no code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from equipoise.core import (
    HasModule,
    Predicts,
    PredictsProba,
    Rng,
    Trains,
    UnitError,
    UsageError,
    learnable,
)
from equipoise.kit.about import about
from equipoise.kit.arrays import Examples
from equipoise.methods.tables import Classification, Regression, TorchModule, Train

LINEAR = "torch.nn:Linear"


def shape(inputs, outputs):
    return {"in_features": inputs, "out_features": outputs}


def test_probabilities_are_the_softmax_of_the_module():
    live = TorchModule(LINEAR, shape(4, 3), classes=("a", "b", "c")).load(Rng(0))
    inputs = np.random.default_rng(0).normal(size=(50, 4))
    logits = live.module(torch.tensor(inputs, dtype=torch.float32))
    expected = torch.softmax(logits, dim=1).detach().numpy()
    np.testing.assert_allclose(live.predict_proba(inputs), expected, atol=1e-6)
    assert live.predict(inputs).tolist() == [("a", "b", "c")[i] for i in expected.argmax(axis=1)]
    assert all(isinstance(live, each) for each in (HasModule, Predicts, PredictsProba))


def test_one_column_is_the_log_odds_of_the_second():
    live = TorchModule(LINEAR, shape(2, 1), classes=("no", "yes")).load(Rng(0))
    inputs = np.random.default_rng(0).normal(size=(20, 2))
    odds = live.module(torch.tensor(inputs, dtype=torch.float32))
    expected = torch.sigmoid(odds).detach().numpy()[:, 0]
    np.testing.assert_allclose(live.predict_proba(inputs)[:, 1], expected, atol=1e-6)
    np.testing.assert_allclose(live.predict_proba(inputs).sum(axis=1), 1)


def test_batches_change_nothing_that_matters():
    part = {"factory": LINEAR, "arguments": shape(5, 4), "classes": 4}
    inputs = np.random.default_rng(0).normal(size=(33, 5))
    whole = TorchModule(**part).load(Rng(0)).predict_proba(inputs)
    pieces = TorchModule(**part, batch_size=2).load(Rng(0)).predict_proba(inputs)
    np.testing.assert_allclose(whole, pieces, atol=1e-6)
    with pytest.raises(UsageError, match="batch_size must be an integer from 1"):
        TorchModule(**part, batch_size=0)


def test_fresh_weights_follow_the_stream_and_leave_torch_alone():
    part = TorchModule(LINEAR, shape(3, 2), classes=2)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (part.load(Rng(seed)).module.weight for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_from_files(tmp_path, suffix):
    source = torch.nn.Linear(10, 1)
    path = tmp_path / f"w{suffix}"
    if suffix == ".pt":
        torch.save(source.state_dict(), path)
    else:
        save_file(source.state_dict(), path)
    part = TorchModule(LINEAR, shape(10, 1), weights=str(path), predicts="values")
    task = Regression("builtin:diabetes")
    units = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    outcomes = task.perform(part.load(Rng(0)), units, Rng(0))
    inputs = torch.tensor([unit.content for unit in units])
    expected = source(inputs).detach().numpy()[:, 0]
    np.testing.assert_allclose([o.scores["predicted"] for o in outcomes], expected, atol=1e-6)
    before = part.content()
    assert part.provides == {HasModule, Predicts}
    assert not isinstance(part.load(Rng(0)), PredictsProba)
    path.write_bytes(path.read_bytes() + b" ")
    assert part.content() != before


def test_weights_that_cannot_be(tmp_path):
    def part(name):
        return TorchModule(LINEAR, shape(2, 2), classes=2, weights=str(tmp_path / name))

    save_file(torch.nn.Linear(3, 2).state_dict(), tmp_path / "other.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "code.pt")  # a whole module: runs code when read
    torch.save(torch.zeros(2), tmp_path / "tensor.pt")
    for name, said in {
        "other.safetensors": "does not fit the module",
        "noise.safetensors": "cannot be read as safetensors or as a .pt file of tensors alone",
        "code.pt": "cannot be read as safetensors or as a .pt file of tensors alone",
        "tensor.pt": "must hold a state dict, got Tensor",
        "othe.safetensors": "there is no such file. Nearest: other.safetensors",
    }.items():
        with pytest.raises(UsageError) as caught:
            part(name).load(Rng(0))
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


def test_faults_of_factories_and_parameters():
    for given, said in [
        ({"factory": "torch.nn:Linea"}, 'has no "Linea". Nearest: Linear'),
        ({"factory": LINEAR}, "failed (TypeError"),
        ({"factory": "math:sqrt"}, "failed (TypeError"),
        ({"factory": "builtins:dict"}, "must return a torch.nn.Module, got dict"),
        ({"factory": LINEAR, "arguments": shape(2, 2), "device": "mars"}, "cannot be used"),
    ]:
        with pytest.raises(UsageError) as caught:
            TorchModule(**given, classes=2).load(Rng(0))
        assert said in str(caught.value)
    for given in ({}, {"classes": 1}, {"classes": ("a", "a")}, {"classes": ("a",)}):
        with pytest.raises(UsageError, match="classes must be two or more different labels"):
            TorchModule(LINEAR, **given)
    with pytest.raises(UsageError, match="classes go with predicts: classes only"):
        TorchModule(LINEAR, predicts="values", classes=2)


def test_wrong_number_of_columns_is_refused():
    live = TorchModule(LINEAR, shape(2, 5), classes=3).load(Rng(0))
    with pytest.raises(UnitError, match=r"scores of shape \(4, 5\) for 4 rows and 3 classes"):
        live.predict(np.zeros((4, 2)))


def test_empty_input_and_with_module():
    live = TorchModule(LINEAR, shape(2, 3), classes=3).load(Rng(0))
    assert live.predict(np.empty((0, 2))).shape == (0,)
    assert live.predict_proba(np.empty((0, 2))).shape == (0, 3)
    other = torch.nn.Linear(2, 3)
    new = live.with_module(other)
    assert new.module is other
    assert live.module is not other
    assert new.classes_.tolist() == [0, 1, 2]
    assert str(live.device) == "cpu"


def test_it_stands_a_real_task():
    torch.manual_seed(0)
    task = Classification("builtin:iris")
    part = TorchModule(LINEAR, shape(4, 3), classes=("setosa", "versicolor", "virginica"))
    live = part.load(Rng(0))
    train = [unit for unit in task.units(Rng(0)) if unit.split == "train"]
    x = torch.tensor([u.content for u in train])
    y = torch.tensor([list(live.classes_).index(u.target) for u in train])
    module = torch.nn.Linear(4, 3)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    units = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    outcomes = task.perform(live.with_module(module), units, Rng(0))
    assert np.mean([o.scores["correct"] for o in outcomes]) > 0.9


def small(**given):
    shape = {"in_features": 4, "out_features": 3}
    return TorchModule("torch.nn:Linear", shape, scale=True, rate=0.05, steps=300, **given)


IRIS = Classification("builtin:iris")
KINDS = ("setosa", "versicolor", "virginica")


def test_a_module_learns_from_a_task_as_logistic_regression_does():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    part = small(classes=KINDS, rows=64)
    assert Trains in part.provides
    bare = part.load(Rng(0))
    before = bare.predict_proba(np.zeros((1, 4)))
    learned = Train(IRIS).apply(bare, Rng(1))
    assert np.array_equal(bare.predict_proba(np.zeros((1, 4))), before), "the control is left alone"
    units = learnable(IRIS, Rng(1))
    x, y = np.array([u.content for u in units]), np.array([u.target for u in units])
    rows = np.array([unit.content for unit in IRIS.units(Rng(0)) if unit.split == "test"])
    scaler = StandardScaler().fit(x)
    peer = LogisticRegression(C=1e6, max_iter=5000).fit(scaler.transform(x), y)
    alike = learned.predict(rows) == peer.predict(scaler.transform(rows))
    assert alike.mean() > 0.93
    assert about(learned)["curves"]["loss"][0][1] > about(learned)["curves"]["loss"][-1][1]
    assert len(learned.learned_from) == len(units)


def test_values_are_learned_in_their_own_unit():
    x = np.random.default_rng(0).normal(size=(200, 2)) * [1, 100]
    y = 1000 + 50 * x[:, 0] + 0.2 * x[:, 1]
    arguments = {"in_features": 2, "out_features": 1}
    part = TorchModule("torch.nn:Linear", arguments, predicts="values", scale=True, rate=0.05)
    learned = part.load(Rng(0)).fit(Examples(x, y), Rng(0))
    assert np.abs(learned.predict(x) - y).max() < 1.0
    again = part.load(Rng(3)).fit(Examples(x, y), Rng(0))
    assert np.array_equal(learned.predict(x), again.predict(x)), "the stream decides alone"
    other = learned.fit(Examples(x, -y), Rng(0))
    assert np.abs(other.predict(x) + y).max() < 1.0, "it learns from the start"


def test_a_column_of_log_odds_learns_two_classes():
    x = np.linspace(-1, 1, 100)[:, None]
    y = np.where(x[:, 0] > 0.2, "high", "low")
    arguments = {"in_features": 1, "out_features": 1}
    part = TorchModule("torch.nn:Linear", arguments, classes=("low", "high"), rate=0.1)
    learned = part.load(Rng(0)).fit(Examples(x, y), Rng(0))
    assert (learned.predict(x) == y).mean() > 0.97


@pytest.mark.parametrize(
    ("given", "data", "said"),
    [
        (
            {"classes": KINDS},
            Examples(np.zeros((2, 4)), np.array(["a", "setosa"])),
            "the class 'a'",
        ),
        ({"classes": KINDS}, Examples(np.zeros((2, 5)), np.array(["setosa"] * 2)), "5 features"),
        ({"predicts": "values"}, Examples(np.zeros((2, 4)), np.array(["a", "b"])), "from numbers"),
    ],
)
def test_what_cannot_be_learned_is_one_sentence(given, data, said):
    with pytest.raises(UsageError, match=said) as caught:
        small(**given).load(Rng(0)).fit(data, Rng(0))
    assert str(caught.value).count("\n") == 0


def test_constant_features_are_no_trouble():
    data = Examples(np.ones((30, 4)), np.array(KINDS * 10))
    learned = small(classes=KINDS).load(Rng(0)).fit(data, Rng(0))
    assert np.allclose(learned.predict_proba(np.ones((1, 4))), 1 / 3, atol=0.02)


def test_parameters_are_changed_by_training():
    changed = Train(IRIS, parameters={"steps": 1}).apply(small(classes=KINDS).load(Rng(0)), Rng(0))
    assert changed.part.steps == 1
    with pytest.raises(UsageError, match='no parameter "step"'):
        Train(IRIS, parameters={"step": 1}).apply(small(classes=KINDS).load(Rng(0)), Rng(0))
