import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from equipoise.catalog import identity
from equipoise.core import Rng, Subject, UsageError
from equipoise.kit.about import about
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.language.hf import HuggingFace
from equipoise.methods.merging.averaging import ModelSoup, RewardedSoup, WeightAverage
from equipoise.methods.merging.digit_domains import (
    DigitDomains,
    DigitNetwork,
    FineTuneDigits,
)
from equipoise.methods.merging.lines import LayerScaledUpdate, WiseFT, select_scale
from equipoise.methods.merging.task_vectors import Consensus, TaskArithmetic, Ties


def state(subject):
    return {name: p.detach().clone() for name, p in subject.module.named_parameters()}


def gap(one, other):
    return max(
        float((one[k].detach().double() - other[k].detach().double()).abs().max()) for k in one
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base and two models made from it, the second in shards under other names for ties."""
    root = tmp_path_factory.mktemp("models")
    base = tiny_model(seed=0)
    base.save(root / "base")
    own, made = state(base), []
    for seed in (1, 2):
        draw = Rng(seed).torch()
        tensors = {k: v + 0.05 * torch.randn(v.shape, generator=draw) for k, v in own.items()}
        base.save(root / f"m{seed}")
        (root / f"m{seed}" / "model.safetensors").unlink()
        made.append(tensors)
    save_file(made[0], root / "m1" / "model.safetensors", metadata={"format": "pt"})
    names = list(made[1])
    for part in (0, 1):
        save_file(
            {n: made[1][n] for n in names[part::2]}, root / "m2" / f"model-{part}.safetensors"
        )
    places = {n: f"model-{k % 2}.safetensors" for k, n in enumerate(names)}
    (root / "m2" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return root, own, made


def parts(folders):
    return tuple(HuggingFace(str(folders[0] / name)) for name in ("m1", "m2"))


def reference(own, made, how):
    return {k: own[k].double() + how(torch.stack([m[k].double() - own[k].double() for m in made]))
            for k in own}  # fmt: skip


def test_merges_of_folders_are_what_the_formulas_say(folders):
    _, own, made = folders
    base, models = tiny_model(seed=0), parts(folders)
    cases = [
        (WeightAverage(models), lambda t: t.mean(0)),
        (TaskArithmetic(models, alpha=0.3), lambda t: 0.3 * t.sum(0)),
        (TaskArithmetic(models, alpha=1.0, match_norm=True), lambda t: t.mean(0)),
        (RewardedSoup(models, weights=(0.2, 0.8)), lambda t: 0.2 * t[0] + 0.8 * t[1]),
    ]
    for part, how in cases:
        found = part.apply(base, Rng(0))
        assert gap(state(found), reference(own, made, how)) < 1e-6
        assert found.module.lm_head.weight is found.module.model.embed_tokens.weight
        assert len(found.log_likelihood([("a", " b")])[0].log_probs) == 2
    assert gap(state(base), own) == 0


def test_a_whole_update_and_none_are_model_and_base(folders):
    root, own, made = folders
    base, tuned = tiny_model(seed=0), HuggingFace(str(folders[0] / "m1")).load(Rng(0))
    bare = HuggingFace(str(root / "base"))
    assert gap(state(LayerScaledUpdate(bare, 1.0, beta=0.0).apply(tuned, Rng(0))), made[0]) < 1e-6
    assert gap(state(LayerScaledUpdate(bare, 0.0, beta=0.0).apply(tuned, Rng(0))), own) == 0
    for scale in (0.3, 0.5):
        one = LayerScaledUpdate(bare, scale, beta=0.0).apply(tuned, Rng(0))
        two = WiseFT(bare, scale).apply(tuned, Rng(0))
        three = TaskArithmetic(parts(folders)[:1], alpha=scale).apply(base, Rng(0))
        assert gap(state(one), state(two)) == 0
        assert gap(state(two), state(three)) < 1e-6


def test_layers_are_scaled_by_their_depth_and_tied_weights_once(folders):
    root, own, made = folders
    tuned = HuggingFace(str(root / "m1")).load(Rng(0))
    found = state(LayerScaledUpdate(HuggingFace(str(root / "base")), 0.1).apply(tuned, Rng(0)))
    for name, tensor in found.items():
        factor = 1.0 if name.startswith("model.layers.1.") else 0.1
        wanted = own[name] + factor * (made[0][name] - own[name])
        assert float((tensor - wanted).abs().max()) < 1e-6, name
    back = LayerScaledUpdate(HuggingFace(str(root / "base")), 0.1, from_last=True)
    found = state(back.apply(tuned, Rng(0)))
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.allclose(found[name], made[0][name], atol=1e-6)


@dataclass(frozen=True)
class Given(Subject):
    family: str
    seed: int

    def load(self, rng):
        return random_model(self.family, self.seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family):
    base, given = random_model(family, 0), Given(family, 1)
    own, their = state(base), state(given.load(Rng(0)))
    for part in (WeightAverage((given,)), Ties((given, given), density=1.0)):
        treated = part.apply(base, Rng(0))
        assert gap(state(treated), their) < 1e-5
        hollow = part.skeleton(base)
        hollow.module.load_state_dict(treated.module.state_dict(), assign=True)
        one, two = (s.log_likelihood([("ab", "c")])[0].log_probs for s in (treated, hollow))
        assert np.array_equal(one, two)
    scaled = LayerScaledUpdate(given, 0.0).apply(base, Rng(0))
    changed = {k for k, v in state(scaled).items() if not torch.equal(v, their[k])}
    assert changed
    assert all(".0." not in k.partition("layers")[2][:3] for k in changed)
    assert gap(state(base), own) == 0


def test_models_that_do_not_belong_together_are_refused(folders, tmp_path):
    base = tiny_model(seed=0)

    def refused(subject, part, match):
        before = state(subject)
        with pytest.raises(UsageError, match=match) as caught:
            part.apply(subject, Rng(0))
        assert "\n" not in str(caught.value)
        assert gap(state(subject), before) == 0

    wide = random_model("llama", num_hidden_layers=2, intermediate_size=96)
    wide.save(tmp_path / "wide")
    refused(base, WeightAverage((HuggingFace(str(tmp_path / "wide")),)),
            r"model 1 has model.layers.0.mlp.gate_proj.weight of shape \(96, 32\)")  # fmt: skip
    random_model("llama").save(tmp_path / "deep")
    refused(base, WeightAverage((HuggingFace(str(tmp_path / "deep")),)),
            "model 1 has model.layers.2.* which the subject has not")  # fmt: skip
    random_model("qwen2").save(tmp_path / "other")
    refused(base, WeightAverage((HuggingFace(str(tmp_path / "other")),)),
            "model 1 is a qwen2 and the subject a llama; only models of one arch")  # fmt: skip
    refused(DigitNetwork.tiny().load(Rng(0)), WeightAverage(parts(folders)),
            "is a llama and the subject a module without a configuration")  # fmt: skip
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    save_file({"lora": torch.ones(1)}, tmp_path / "adapter" / "adapter_model.safetensors")
    refused(base, WeightAverage((HuggingFace(str(tmp_path / "adapter")),)),
            "is an adapter, not a whole model")  # fmt: skip

    words = tmp_path / "words"
    base.save(words)
    text = json.loads((words / "tokenizer.json").read_text())
    vocab = text["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (words / "tokenizer.json").write_text(json.dumps(text))
    refused(base, WeightAverage((HuggingFace(str(words)),)),
            "model 1 has another vocabulary than the subject .259 tokens and 259, first diff"
            "erent at 97")  # fmt: skip

    untied = tmp_path / "untied"
    base.save(untied)
    tensors = state(base)
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1},
              untied / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    refused(base, WeightAverage((HuggingFace(str(untied)),)), "apart, which are one tensor in")

    spoilt = tmp_path / "spoilt"
    base.save(spoilt)
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, spoilt / "model.safetensors", metadata={"format": "pt"})
    for cls in (WeightAverage, TaskArithmetic, Ties, Consensus):
        refused(base, cls((*parts(folders), HuggingFace(str(spoilt)))),
                "model.norm.weight has entries that are not finite in model 3")  # fmt: skip


@pytest.mark.parametrize("cls", [WeightAverage, ModelSoup, TaskArithmetic, Ties, Consensus])
def test_no_models_are_refused(cls):
    with pytest.raises(UsageError, match=f"{cls.__name__}: models must be one or more subjects"):
        cls()


def test_wrong_weights_are_refused(folders):
    models = parts(folders)
    with pytest.raises(UsageError, match="weights must be one a model, 2, got 3"):
        RewardedSoup(models, weights=(0.2, 0.3, 0.5))
    with pytest.raises(UsageError, match=r"weights must sum to 1, got 0\.8"):
        RewardedSoup(models, weights=(0.2, 0.6))
    with pytest.raises(UsageError, match="RewardedSoup: weights must be"):
        RewardedSoup(models, weights=(-0.2, 1.2))


def test_a_model_is_known_by_its_content(folders, tmp_path):
    one = WeightAverage(parts(folders))
    assert identity(one) == identity(WeightAverage(parts(folders)))
    assert identity(one) != identity(WeightAverage(parts(folders)[::-1]))


def test_merging_is_random_only_where_an_update_is(folders):
    assert not WeightAverage(parts(folders)).random
    assert WeightAverage(updates=(FineTuneDigits.tiny(),)).random
    assert not WeightAverage.random


DIGITS = DigitNetwork(width=16, blocks=3, images=40, steps=150)


@pytest.fixture(scope="module")
def tuned():
    control = DIGITS.load(Rng(0))
    return control, FineTuneDigits("rotated", steps=150).apply(control, Rng(0))


def test_updates_made_in_the_trial_are_merged(tuned):
    control, _ = tuned
    steps = [FineTuneDigits(domain, steps=20) for domain in ("rotated", "inverted")]
    part = TaskArithmetic(updates=tuple(steps), alpha=0.5)
    made = [state(s.apply(control, Rng(3).child("update", k))) for k, s in enumerate(steps)]
    found = state(part.apply(control, Rng(3)))
    assert gap(found, reference(state(control), made, lambda t: 0.5 * t.sum(0))) < 1e-6
    assert torch.equal(found["head.weight"], control.module.head.weight)


def test_alpha_is_chosen_by_the_papers_rule(tuned):
    _, live = tuned
    target, other = DigitDomains(("rotated",)), DigitDomains(("upright",))
    for kind, keep in ((LayerScaledUpdate, 0.0), (WiseFT, 0.0), (LayerScaledUpdate, 0.97)):
        found = kind(DIGITS, target=target, control=(other,), keep=keep).apply(live, Rng(0))
        said = about(found)
        grid = [x for x, _ in said["curves"]["target share by alpha"]]
        assert grid == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
        a = np.array([y for _, y in said["curves"]["target share by alpha"]])
        b = np.array([y for _, y in said["curves"]["control share by alpha"]])
        assert a[0] == pytest.approx(1.0)
        best = max(range(11), key=lambda k: (a[k] >= keep, 2 * a[k] + b[k]))
        by_hand = kind(DIGITS, alpha=grid[best]).apply(live, Rng(0))
        assert gap(state(found), state(by_hand)) == 0
        assert f"alpha = {grid[best]:g} was chosen on calibration units" in said["notes"][0]


def test_nothing_is_chosen_on_test_units(tuned, monkeypatch):
    asked, perform = [], DigitDomains.perform

    def watched(self, subject, units, rng):
        asked.extend(unit.split for unit in units)
        return perform(self, subject, units, rng)

    monkeypatch.setattr(DigitDomains, "perform", watched)
    control, live = tuned
    spy = DigitDomains(("rotated",))
    LayerScaledUpdate(DIGITS, target=spy, control=(spy,)).apply(live, Rng(0))
    steps = (FineTuneDigits("rotated", steps=2), FineTuneDigits("inverted", steps=2))
    ModelSoup(updates=steps, by=spy).apply(control, Rng(0))
    TaskArithmetic(updates=steps, search="beta", tasks=(spy, spy)).apply(control, Rng(0))
    assert set(asked) == {"calibration"}


def test_beta_is_chosen_by_normalised_accuracy(tuned):
    control, _ = tuned
    steps = tuple(FineTuneDigits(domain, steps=60) for domain in ("rotated", "inverted"))
    tasks = tuple(DigitDomains((step.domain,)) for step in steps)
    part = TaskArithmetic(updates=steps, alpha=1.0, match_norm=True, search="beta", tasks=tasks)
    found = part.apply(control, Rng(0))
    (name, curve), *_ = about(found)["curves"].items()
    assert name == "normalised accuracy by beta"
    best = max(curve, key=lambda point: point[1])[0]
    by_hand = TaskArithmetic(updates=steps, alpha=0.5, beta=best).apply(control, Rng(0))
    assert gap(state(found), state(by_hand)) < 1e-6


def test_a_greedy_soup_leaves_out_what_hurts(tuned):
    control, _ = tuned
    good, bad = FineTuneDigits("rotated", steps=100), FineTuneDigits("inverted", steps=100)
    soup = ModelSoup(updates=(bad, good), by=DigitDomains(("rotated",)))
    found = soup.apply(control, Rng(0))
    assert about(found)["notes"] == ["Of 2 models the soup holds 2."]
    alone = good.apply(control, Rng(0).child("update", 1))
    assert gap(state(found), state(alone)) < 1e-6
    two = ModelSoup(updates=(good, good), by=DigitDomains(("rotated",))).apply(control, Rng(0))
    assert "Of 2 models the soup holds" in about(two)["notes"][0]


def test_tasks_for_a_choice_are_asked_for():
    steps = (FineTuneDigits.tiny(),)
    with pytest.raises(UsageError, match="Ties: tasks must be one a model, 1, to choose beta by"):
        Ties(updates=steps, search="beta")
    with pytest.raises(UsageError, match="ModelSoup: by must be a task"):
        ModelSoup(updates=steps)
    with pytest.raises(UsageError, match="LayerScaledUpdate: alpha must be a number, or target"):
        LayerScaledUpdate(DIGITS, target=DigitDomains())


def test_selection_follows_weight_and_floor():
    target, control = [1.0, 0.99, 0.9], [[0.5], [0.6], [1.0]]
    assert select_scale(target, control) == 2  # 2.5, 2.58, 2.8
    assert select_scale(target, control, weight=5) == 1  # 5.5, 5.55, 5.5
    assert select_scale(target, control, keep=0.95) == 1
    assert select_scale(target, control, keep=1.01) == 0
    for bad in ([[0.5]], [0.5, 0.6, 1.0], [[], [], []]):
        with pytest.raises(UsageError, match="control must be"):
            select_scale(target, bad)
    with pytest.raises(UsageError, match="shares must be finite"):
        select_scale([float("nan"), 1, 1], control)


def test_batch_norm_statistics_are_the_bases():
    from torch import nn

    from equipoise.kit.torch.subjects import ModuleSubject
    from equipoise.methods.merging._sources import from_live

    def net(shift):
        made = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        made[1].running_mean += shift
        made[1].num_batches_tracked += int(shift)
        return ModuleSubject(made.eval())

    base, other = net(1.0), net(5.0)
    part = WeightAverage(updates=(FineTuneDigits.tiny(),))
    found = part.merge(base, [from_live(other, base, "model 1")], Rng(0)).module
    assert gap(dict(found.named_parameters()), dict(other.module.named_parameters())) < 1e-6
    assert torch.equal(found[1].running_mean, base.module[1].running_mean)
    assert int(found[1].num_batches_tracked) == 1
    assert found[1].running_mean.data_ptr() != base.module[1].running_mean.data_ptr()


def test_plain_functions_come_from_the_package():
    import equipoise.methods.merging as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        _ = package.nothing


TRIAL = """
trial: merge
subject: {hf: base}
arms:
  base: []
  merged: [{ties: {models: [{hf: m1}, {hf: {model: m2}}], density: 0.5, beta: 0.5}}]
  edited:
    subject: {hf: m1}
    treatments: [{layer_scaled_update: {base: {hf: base}, alpha: 0.1}}]
tasks: {prose: {perplexity: {windows: 2, length: 16}}}
claims: [{arm: merged, beats: base, on: prose}]
"""


def test_models_are_named_in_a_trial_file(folders):
    from equipoise.trial.file import load
    from equipoise.trial.subjects import treated

    root, own, made = folders
    (root / "merge.yaml").write_text(TRIAL)
    trial = load(root / "merge.yaml")
    assert [part.model for part in trial.arms["merged"].treatments[0].models] == [
        str(root / "m1"), str(root / "m2"),
    ]  # fmt: skip
    for label in ("merged", "edited"):
        live = treated(trial.arms[label], trial.rng, 0)
        (part,) = trial.arms[label].treatments
        control = own if label == "merged" else made[0]
        assert gap(state(live), control) > 0.01
        again = part.apply(trial.arms[label].subject.load(Rng(0)), Rng(9))
        assert gap(state(live), state(again)) == 0


def test_a_merged_model_is_an_ordinary_one(folders, tmp_path):
    from equipoise.kit.torch.plain import plain_module

    made = WeightAverage(parts(folders)).apply(tiny_model(seed=0), Rng(0))
    plain_module(made.module)
    made.save(tmp_path / "out")
    opened = HuggingFace(str(tmp_path / "out")).load(Rng(0))
    assert gap(state(opened), state(made)) == 0
