import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from equipoise.core import Rng, UsageError
from equipoise.kit.about import about
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.structure import structure_of
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.copies import copy_module
from equipoise.kit.torch.plain import NotPlain, plain_module
from equipoise.kit.torch.quantizers import fake_quantize, relative_error
from equipoise.kit.torch.rotations import random_orthogonal
from equipoise.kit.torch.subjects import ModuleSubject
from equipoise.kit.torch.transforms import fuse_norms
from equipoise.kit.worlds.small_llama import with_outliers
from equipoise.methods.quantization import _ostquant_learning as learning
from equipoise.methods.quantization._ostquant_learning import LearnedTransforms, learn
from equipoise.methods.quantization._ostquant_student import Student, straight_through
from equipoise.methods.quantization.ostquant import OrthogonalScalingQuantization

IDS = torch.arange(80).view(2, 40) * 3 % 256
TEXT = "".join(
    f"{number} and {number * number} are a number and its square. " for number in range(80)
)
WINDOWS = list(torch.tensor(list(TEXT.encode()))[: 4 * 32].view(4, 1, 32))


@pytest.fixture(scope="module", autouse=True)
def text(tmp_path_factory):
    place = tmp_path_factory.mktemp("calibration") / "text.txt"
    place.write_text(TEXT)
    return str(place)


@pytest.fixture
def ost(text):
    """Return a maker of small parts: a text of 4,000 bytes, and no steps unless asked for."""

    def make(**settings):
        short = {"samples": 2, "length": 32, "batch": 1, "steps": 0, "calibration": text}
        return OrthogonalScalingQuantization(**{**short, **settings})

    return make


def logits(subject, ids=IDS):
    with torch.no_grad():
        return getattr(subject, "module", subject)(ids).logits


def fused(subject):
    made, structure = copy_module(subject.module), structure_of(subject.module)
    fuse_norms(made, structure)
    return made, structure


@pytest.fixture
def shaken(monkeypatch):
    """Let scales start away from one, so that forgetting one of them shows."""
    start = LearnedTransforms.__init__

    def shake(self, module, structure, plan, rng):
        start(self, module, structure, plan, rng)
        generator = rng.torch()
        with torch.no_grad():
            for name in ("norms", "value_scale", "query_key", "channels"):
                if getattr(self, name) is not None:
                    getattr(self, name).normal_(0.0, 0.4, generator=generator)

    monkeypatch.setattr(LearnedTransforms, "__init__", shake)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_rounding_every_family_computes_the_same(ost, family, shaken):
    control = random_model(family)
    before = logits(control)
    treated = ost(weights=16, activations=16, keys_values=16).apply(control, Rng(1))
    assert (logits(treated) - before).abs().max() < 1e-4
    assert torch.equal(logits(control), before)
    moved = treated.module.state_dict()
    assert not any(
        torch.equal(moved[f"{name}.weight"], control.module.get_submodule(name).weight)
        for name in structure_of(control.module).linear_layers()
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_learned_from_is_what_is_given_back(ost, family, shaken):
    """The student rounds in another basis, and must equal the model that is rounded in the end."""
    control = random_model(family)
    part = ost(weights=16, keys_values=4)
    treated = logits(part.apply(control, Rng(1)))
    made, structure = fused(control)
    stream = Rng(1).child("learning").child("start")
    with torch.no_grad():
        transforms = LearnedTransforms(made, structure, part.plan(), stream)
        student = Student(made, structure, part.plan())
        found = student.logits(IDS, transforms.transforms(torch.float32))
    # A number on the edge of two levels may fall either way.
    assert relative_error(found, treated) < 0.1 * relative_error(treated, logits(control))


def test_rounded_weights_are_learned_from_where_they_are_alone(ost, shaken):
    control = random_model("gpt2")
    part = ost(activations=16)
    treated = logits(part.apply(control, Rng(1)))
    made, structure = fused(control)
    with torch.no_grad():
        stream = Rng(1).child("learning").child("start")
        transforms = LearnedTransforms(made, structure, part.plan(), stream)
        found = Student(made, structure, part.plan()).logits(
            IDS, transforms.transforms(torch.float32)
        )
    assert relative_error(found, treated) < 0.1 * relative_error(treated, logits(control))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_rotations_stay_orthogonal_and_scales_positive(ost, family):
    made, structure = fused(random_model(family))
    plan = ost(keys_values=4, steps=4, rotation_rate=2.0, scale_rate=0.3).plan()
    found, history = learn(made, made, structure, plan, WINDOWS, Rng(0))
    assert len(history.losses) == 4
    start, _ = learn(made, made, structure, replace(plan, steps=0), WINDOWS, Rng(0))
    assert (found.residual - start.residual).abs().max() > 1e-2  # it has moved
    eye = torch.eye(32, dtype=torch.float64)
    assert torch.linalg.matrix_norm(found.residual.T @ found.residual - eye) < 1e-5
    for block in found.blocks:
        gram = block.values.mT @ block.values - torch.eye(8, dtype=torch.float64)
        assert torch.linalg.matrix_norm(gram).max() < 1e-5
        for scale in (block.attention, block.feed_forward, block.value_scale, block.query_key):
            assert (scale > 0).all()
            assert (scale != 1).any()
    if structure.centred:
        assert torch.allclose(found.residual.sum(1), torch.ones(32, dtype=torch.float64))


def test_rates_are_what_the_docstring_says(ost):
    made, structure = fused(tiny_model())
    plan = ost(steps=1, rotation_rate=0.01, scale_rate=0.05).plan()
    found, _ = learn(made, made, structure, plan, WINDOWS, Rng(0))
    start, _ = learn(made, made, structure, replace(plan, steps=0), WINDOWS, Rng(0))
    moved = torch.linalg.matrix_norm(found.residual - start.residual)
    assert moved == pytest.approx(0.01 * 8**0.5, rel=0.01)
    steps = found.blocks[0].attention.log().abs()
    assert steps[steps > 0].max() == pytest.approx(0.05, rel=0.01)


def test_learned_scales_undo_known_outliers(ost):
    plain = tiny_model()
    loud = with_outliers(plain.module, 1, 30.0, Rng(2))
    made, structure = fused(plain.with_module(loud))
    settings = {"weights": 16, "learn": "scaling", "scale_rate": 0.1, "top": 50, "batch": 4}
    found, history = learn(
        plain.module, made, structure, ost(steps=20, **settings).plan(), WINDOWS, Rng(0)
    )
    assert history.losses[-1] < 0.7 * history.losses[0]  # every step reads the same four windows
    for block, each in zip(structure.blocks, found.blocks, strict=True):
        quiet, louder = (
            module.get_submodule(block.attention.value).weight.norm(dim=1)
            for module in (plain.module, loud)
        )
        scales, chosen = each.value_scale.flatten(), int((louder / quiet).argmax())
        assert scales.argmin() == chosen
        assert scales[chosen] < 0.5 * scales.median()


def test_womi_lowers_the_weights_largest_entries():
    control = random_model("llama", hidden_size=128, intermediate_size=128)
    # Trained weights are far from isotropic; these are made so.
    for name in structure_of(control.module).linear_layers():
        layer = control.module.get_submodule(name)
        spread = torch.linspace(-3, 3, layer.in_features).exp()
        layer.weight = torch.nn.Parameter(layer.weight.detach() * spread)
    made, structure = fused(control)
    weights = [made.get_submodule(block.feed_forward.up).weight.double() for block in
               structure.blocks]  # fmt: skip

    def crest(turn):
        turned = [weight @ turn for weight in weights]
        return np.mean([float(w.abs().max() / w.square().mean().sqrt()) for w in turned])

    womi = learning.start_of_residual(made, structure, "womi", Rng(0))
    others = [random_orthogonal(128, Rng(seed)) for seed in range(5)]
    assert crest(womi) < min(map(crest, others))
    assert crest(womi) < crest(torch.eye(128, dtype=torch.float64))


def test_norms_on_queries_and_keys_take_the_scale_into_their_gains(ost):
    for family, rows in {"qwen3": 1, "llama": 2, "gpt2": 4}.items():
        made, structure = fused(random_model(family))
        learned = LearnedTransforms(made, structure, ost(keys_values=4).plan(), Rng(0))
        assert learned.query_key.shape[:2] == (4, rows), family
    learned = LearnedTransforms(*fused(random_model("llama")), ost().plan(), Rng(0))
    assert learned.query_key is None  # nothing depends on it


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_rounded_weights_alone_give_a_folder_that_transformers_opens(ost, family, tmp_path):
    from transformers import AutoModelForCausalLM

    control = random_model(family)
    treated = ost(activations=16, steps=1).apply(control, Rng(0))
    kinds = {type(part).__module__.split(".")[0] for part in treated.module.modules()}
    assert kinds <= {"torch", "transformers"}
    plain_module(treated.module)  # refuses what acts while it runs
    treated.module.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(again), logits(treated))
    assert not again.config.tie_word_embeddings
    name = structure_of(again).linear_layers()[0]
    weight = again.get_submodule(name).weight
    rows = weight.T if family == "gpt2" else weight
    assert max(len(row.unique()) for row in rows) <= 16
    with pytest.raises(NotPlain, match="inputs of linear layers are rounded to 4 bits"):
        plain_module(ost().apply(control, Rng(0)).module)


@pytest.mark.parametrize("settings", [{"keys_values": 4}, {"activations": 16}, {"learn": "scaling"},
                                      {"weight_method": "gptq"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_skeleton_filled_is_the_treated_subject(ost, family, settings):
    control, part = random_model(family), ost(**settings)
    treated = part.apply(control, Rng(0))
    state = {name: tensor.clone() for name, tensor in treated.module.state_dict().items()}
    hollow = part.skeleton(control)
    hollow.module.load_state_dict(state, assign=True)
    assert torch.equal(logits(hollow), logits(treated))
    assert hollow.module.config.tie_word_embeddings is False


def test_gptq_keeps_outputs_nearer_than_rounding(ost):
    control = random_model("llama")
    settings = {"weights": 6, "activations": 16, "samples": 16, "length": 64}
    rtn, gptq = (
        relative_error(logits(ost(weight_method=way, **settings).apply(control, Rng(0)),
                              WINDOWS[0]), logits(control, WINDOWS[0]))
        for way in ("rtn", "gptq")
    )  # fmt: skip
    assert gptq < 0.9 * rtn


def test_a_loss_that_is_not_finite_stops_learning(ost, monkeypatch):
    control = tiny_model()
    real, seen = Student.loss, []

    def loss(self, *given):
        seen.append(given[-1].residual.detach().clone())
        return real(self, *given) * (float("nan") if len(seen) == 3 else 1.0)

    monkeypatch.setattr(Student, "loss", loss)
    treated = ost(steps=5).apply(control, Rng(0))
    (note,) = about(treated)["notes"]
    assert note.startswith("The loss or its gradient was not finite after 2 of 5 steps;")
    assert len(about(treated)["curves"]["loss"]) == 2
    assert len(seen) == 3
    assert torch.isfinite(logits(treated)).all()
    # What is kept is what the second step saw, the last whose loss was finite.
    made, structure = fused(control)
    seen.clear()
    plan = ost(steps=5).plan()
    found, _ = learn(control.module, made, structure, plan, WINDOWS, Rng(0))
    assert torch.allclose(found.residual.float(), seen[1])
    assert not torch.allclose(found.residual.float(), seen[2], atol=1e-7)


def test_same_stream_same_model_whatever_the_threads(ost):
    control, part = tiny_model(), ost(steps=2)
    one = part.apply(control, Rng(0)).module.state_dict()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        two = part.apply(control, Rng(0)).module.state_dict()
        other = part.apply(control, Rng(1)).module.state_dict()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_half_precision_stays_what_it_was(ost):
    control = tiny_model()
    control = control.with_module(copy_module(control.module).to(torch.bfloat16))
    treated = ost(activations=16, steps=1).apply(control, Rng(0))
    assert {each.dtype for each in treated.module.parameters()} == {torch.bfloat16}
    assert {each.dtype for each in control.module.parameters()} == {torch.bfloat16}
    assert torch.isfinite(logits(treated)).all()


def test_rounding_error_is_a_twelfth_of_the_step_squared():
    x = Rng(0).numpy().uniform(-1, 1, 400_000)
    x[0] = 1.0
    for bits in (3, 4, 8):
        step = 2 / (2**bits - 2)  # symmetric levels: one of the 2^b is not used
        found = fake_quantize(torch.from_numpy(x)[None], bits)[0].numpy()
        assert np.mean((found - x) ** 2) == pytest.approx(step**2 / 12, rel=0.02)


def test_straight_through_rounds_as_the_quantiser_does():
    x = torch.randn(5, 40, generator=Rng(0).torch(), dtype=torch.float64)
    x[2] = 0.0
    for bits in (2, 4, 8):
        assert torch.allclose(straight_through(x, bits), fake_quantize(x, bits), atol=1e-12)
    # Between two edges its gradient is that of x + d e with a constant error e.
    x = torch.tensor([[1.0, 0.33, -0.61]], dtype=torch.float64, requires_grad=True)
    straight_through(x, 4).sum().backward()
    error = (torch.round(x.detach() * 7) - x.detach() * 7).sum() / 7
    assert torch.allclose(
        x.grad, torch.tensor([[1.0, 1.0, 1.0]]).double() + error * torch.eye(3)[0]
    )


def test_faults_are_told(ost, tmp_path, monkeypatch):
    control = tiny_model()
    before = logits(control)
    (tmp_path / "short.txt").write_text("few words")
    with pytest.raises(UsageError, match="too few to calibrate on windows of 32"):
        ost(calibration=str(tmp_path / "short.txt")).apply(control, Rng(0))
    with pytest.raises(UsageError, match="length must be at most the 512 positions of the model"):
        ost(length=1000).apply(control, Rng(0))
    with pytest.raises(UsageError, match="has no tokenizer"):
        ost().apply(ModuleSubject(torch.nn.Linear(4, 4)), Rng(0))
    monkeypatch.setitem(sys.modules, "geoopt", None)
    with pytest.raises(UsageError, match=r"pip install 'equipoise\[quantization\]'"):
        ost().apply(control, Rng(0))
    assert torch.equal(logits(control), before)


def test_a_model_that_computes_otherwise_is_refused(ost):
    from transformers import GemmaConfig, GemmaForCausalLM

    stock = tiny_model()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    config = GemmaConfig(vocab_size=259, num_attention_heads=4, num_key_value_heads=2,
                         pad_token_id=0, **sizes)  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        strange = stock.with_module(GemmaForCausalLM(config))  # its gains are 1 + weight
    with pytest.raises(UsageError, match="GemmaForCausalLM computes something else"):
        ost().apply(strange, Rng(0))
