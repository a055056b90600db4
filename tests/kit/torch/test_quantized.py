import pytest
import torch
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.copies import shared_tensors
from equipoise.kit.torch.plain import plain_module
from equipoise.kit.torch.quantized import QuantizedLinear, Scheme, quantize_module
from equipoise.kit.torch.quantizers import fake_quantize, relative_error, round_weights
from equipoise.kit.torch.rotations import OrthogonalRotation, random_rotation
from equipoise.kit.torch.tokens import token_mask

SCHEMES = {
    "nearest": Scheme(4, 4),
    "groups": Scheme(3, 8, weight_group=8, activation_group=8, clip=0.9, clip_search=True),
    "smooth": Scheme(4, 4, smooth=1),
    "rotate": Scheme(4, 4, rotation="hadamard"),
    "orthogonal": Scheme(4, 4, rotation="orthogonal", keys_values=4),
    "rrs": Scheme(4, 4, rotation="hadamard", smooth=8),
    "gptq": Scheme(4, 4, rotation="hadamard", smooth=8, compensate=True),
    "smoothquant": Scheme(4, 4, migrate=0.5),
}


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.from_numpy(Rng(seed).numpy().normal(size=shape)).to(dtype)


def linear(inputs=64, outputs=8, bias=True):
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias, dtype=torch.float64)
    layer.weight.data = normal(outputs, inputs, seed=1)
    if bias:
        layer.bias.data = normal(outputs, seed=2)
    return layer.requires_grad_(False)


def mlp():
    return nn.Sequential(linear(64, 32), nn.Tanh(), linear(32, 8))


def calibration(module):
    if hasattr(module, "config"):
        draw = Rng(9).torch()
        return [torch.randint(50, (1, 32), generator=draw) for _ in range(4)]
    return [normal(40, 64, seed=4), normal(40, 64, seed=5)]


def test_a_layer_is_quantise_then_multiply():
    layer = linear()
    treated = quantize_module(layer, Scheme(4, 4), Rng(0))
    x = normal(10, 64)
    expected = fake_quantize(x, 4) @ round_weights(layer.weight, 4).T + layer.bias
    assert torch.allclose(treated(x), expected, atol=1e-12)


def test_order_is_rotate_smooth_round_multiply_back():
    layer = linear(bias=False)
    treated = quantize_module(layer, Scheme(16, 4, rotation="hadamard", smooth=16), Rng(0))
    x = normal(10, 64)
    turned = random_rotation("hadamard", 64, Rng(0).child("rotation", ""))(x)
    s = turned.abs().amax(0)
    order = s.argsort(descending=True)
    for start in range(0, 64, 16):
        group = order[start : start + 16]
        s[group] = s[group].max()
    expected = (fake_quantize(turned / s, 4) * s) @ treated.weight.T
    assert torch.allclose(treated(x), expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["hadamard", "orthogonal"])
@pytest.mark.parametrize("module", [linear(), mlp()], ids=["layer", "mlp"])
def test_rotation_alone_is_the_identity_on_layers(module, kind):
    treated = quantize_module(module, Scheme(rotation=kind, smooth=1), Rng(0))
    x = normal(10, 64)
    assert (treated(x) - module(x)).abs().max() < 1e-10


@pytest.mark.parametrize("smooth", [1, 16, 64])
def test_many_bits_smooth_to_the_identity(smooth):
    layer = linear()
    treated = quantize_module(layer, Scheme(smooth=smooth, rotation="hadamard"), Rng(0))
    treated.bits = 40
    x = normal(10, 64)
    assert (treated(x) - layer(x)).abs().max() < 1e-10


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"tied": False},
        {"bias": True},
        {"heads": 3, "pairs": 3},  # 3 heads have no Hadamard matrix: rotated within only
        {"heads": 3, "pairs": 1, "hidden": 24},
        {"family": "qwen2"},  # biases on queries, keys and values
        {"family": "qwen3"},
        {"family": "mistral"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["hadamard", "orthogonal"])
def test_a_rotated_decoder_is_the_same_function(make_llama, ids, shape, kind):
    module = make_llama(**shape)
    treated = quantize_module(module, Scheme(rotation=kind, smooth=8), Rng(0))
    assert not torch.allclose(treated.model.embed_tokens.weight, module.model.embed_tokens.weight)
    assert (treated(ids).logits - module(ids).logits).abs().max() < 1e-8


def test_rotation_spreads_outliers_of_the_residual_stream(make_llama, ids):
    module = make_llama()
    module.model.embed_tokens.weight[:, 5] += 40.0
    treated = quantize_module(module, Scheme(rotation="hadamard"), Rng(0))

    def crest(model):
        states = model.model(ids).last_hidden_state
        return (states.abs().amax(-1) / states.square().mean(-1).sqrt()).mean()

    assert crest(module) > 1.3 * crest(treated)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("kind", ["mlp", "llama"])
def test_the_control_is_left_alone(llama, ids, scheme, kind):
    if kind == "mlp" and scheme.keys_values < 16:
        pytest.skip("no attention")
    module, x = (llama, ids) if kind == "llama" else (mlp(), normal(10, 64))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    config = str(getattr(module, "config", ""))
    quantize_module(module, scheme, Rng(0), calibration(module))(x)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert str(getattr(module, "config", "")) == config
    assert not hasattr(module, "equipoise_whole_sequence")


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_skeleton_is_filled_to_the_same_module(llama, ids, scheme):
    treated = quantize_module(llama, scheme, Rng(0), calibration(llama))
    saved = {name: tensor.clone() for name, tensor in treated.state_dict().items()}
    hollow = quantize_module(llama, scheme)
    hollow.load_state_dict(saved, assign=True)
    assert torch.equal(hollow(ids).logits, treated(ids).logits)
    whole = getattr(treated, "equipoise_whole_sequence", False)
    assert getattr(hollow, "equipoise_whole_sequence", False) == whole == bool(scheme.smooth)


def test_untouched_tensors_are_shared(llama):
    treated = quantize_module(llama, Scheme(4, 4), Rng(0))
    shared = {name for name, _ in shared_tensors(treated, llama)}
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= shared
    assert not any("proj" in name for name in shared)
    assert treated.lm_head.weight is llama.lm_head.weight


def test_a_tied_head_is_untied_by_a_rotation(llama):
    treated = quantize_module(llama, Scheme(rotation="hadamard"), Rng(0))
    assert llama.lm_head.weight is llama.model.embed_tokens.weight
    assert treated.lm_head.weight is not treated.model.embed_tokens.weight
    assert not treated.config.tie_word_embeddings


def test_queries_keys_and_values_are_not_smoothed(llama):
    treated = quantize_module(llama, Scheme(4, 4, smooth=8), Rng(0))
    smoothed = {
        name.rpartition(".")[2]
        for name, part in treated.named_modules()
        if isinstance(part, QuantizedLinear) and part.smooth
    }
    assert smoothed == {"o_proj", "gate_proj", "up_proj", "down_proj"}
    assert isinstance(treated.lm_head, nn.Linear)


def test_padding_does_not_move_smoothing(llama, ids):
    treated = quantize_module(llama, Scheme(16, 4, smooth=4, rotation="hadamard"), Rng(0))
    alone = treated(ids[:1, :11]).logits
    padded = ids.clone()
    padded[0, 11:] = 49
    mask = torch.ones_like(padded, dtype=torch.bool)
    mask[0, 11:] = False
    with token_mask(mask):
        together = treated(padded, attention_mask=mask.long()).logits[:1, :11]
    assert (together - alone).abs().max() < 1e-9
    # Without the mask padding moves the scales, so the test can fail.
    assert (treated(padded).logits[:1, :11] - alone).abs().max() > 1e-3


def test_left_padding_through_the_language_model():
    from equipoise.kit.language.tiny import tiny_model

    control = tiny_model()
    treated = control.with_module(
        quantize_module(control.module, Scheme(4, 4, smooth=4, rotation="hadamard"), Rng(0))
    )
    pairs = [("a", " cat"), ("the quick brown fox jumps over", " the lazy dog"), ("on", "e")]
    together = treated.log_likelihood(pairs)
    for pair, found in zip(pairs, together, strict=True):
        alone = treated.log_likelihood([pair])[0]
        assert abs(found.log_probs - alone.log_probs).max() < 1e-4


def test_keys_and_values_are_rounded(llama, ids):
    exact = llama(ids).logits
    errors = [
        relative_error(quantize_module(llama, Scheme(keys_values=bits), Rng(0))(ids).logits, exact)
        for bits in (3, 6, 12)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


def test_keys_and_values_from_a_cache_are_the_same(llama, ids):
    treated = quantize_module(llama, Scheme(keys_values=4, rotation="hadamard"), Rng(0))
    whole = treated(ids).logits
    first = treated(ids[:, :9], use_cache=True)
    kept = getattr(first, "past_key_values", None) or first.cache
    second = _with_cache(treated, ids[:, 9:], kept)
    assert (second - whole[:, 9:]).abs().max() < 1e-9


def _with_cache(module, ids, cache):
    import inspect

    names = inspect.signature(module.forward).parameters
    name = "cache" if "cache" in names else "past_key_values"
    return module(ids, **{name: cache}).logits


def test_gptq_beats_rounding_on_a_correlated_layer():
    layer = linear(64, 32, bias=False)
    x = normal(500, 6, seed=6) @ normal(6, 64, seed=7) + 0.1 * normal(500, 64, seed=8)
    seen, fresh = x[:300], x[300:]

    def error(scheme):
        treated = quantize_module(layer, scheme, Rng(0), [seen])
        return relative_error(treated(fresh), layer(fresh))

    assert error(Scheme(4, compensate=True)) < 0.6 * error(Scheme(4))


def test_gptq_beats_rounding_in_a_decoder(make_llama):
    module = make_llama(tied=False)
    # Correlated inputs are what GPTQ lives on: tokens in a space of five dimensions.
    module.model.embed_tokens.weight.data = 20 * normal(50, 5) @ normal(5, 48, seed=1)
    draw = Rng(3).torch()
    batches = [torch.randint(50, (1, 64), generator=draw) for _ in range(8)]
    fresh = torch.randint(50, (4, 64), generator=draw)

    def error(scheme):
        treated = quantize_module(module, scheme, Rng(0), batches)
        return relative_error(treated(fresh).logits, module(fresh).logits)

    assert error(Scheme(5, compensate=True)) < 0.9 * error(Scheme(5))


def test_smoothquant_without_rounding_is_the_identity(llama, ids):
    treated = quantize_module(llama, Scheme(migrate=0.5), Rng(0), calibration(llama))
    assert (treated(ids).logits - llama(ids).logits).abs().max() < 1e-8
    layer = treated.model.layers[0].self_attn
    assert torch.equal(layer.q_proj.divisor, layer.v_proj.divisor)


def test_smoothquant_helps_where_channels_stand_out():
    layer = linear(64, 32, bias=False)
    x = normal(400, 64, seed=3)
    x[:, :3] *= 30
    seen, fresh = x[:200], x[200:]

    def error(scheme):
        treated = quantize_module(layer, scheme, Rng(0), [seen])
        return relative_error(treated(fresh), layer(fresh))

    assert error(Scheme(8, 8, migrate=0.5)) < 0.7 * error(Scheme(8, 8))


def test_inputs_and_gradients_survive():
    treated = quantize_module(linear(), Scheme(4, 4), Rng(0))
    x = normal(10, 64)
    before = x.clone()
    treated(x)
    assert torch.equal(x, before)
    x.requires_grad_()
    treated(x).sum().backward()
    assert x.grad is not None


def test_half_precision_stays_half():
    treated = quantize_module(linear().bfloat16(), SCHEMES["rrs"], Rng(0))
    assert treated(normal(10, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_faults_are_told():
    with pytest.raises(UsageError, match="no linear layers"):
        quantize_module(nn.Tanh(), Scheme(4), Rng(0))
    with pytest.raises(UsageError, match="needs calibration data"):
        quantize_module(linear(), Scheme(4, compensate=True), Rng(0))
    with pytest.raises(UsageError, match="those of a decoder-only language model"):
        quantize_module(linear(), Scheme(keys_values=4), Rng(0))
    with pytest.raises(UsageError, match="takes features"):
        quantize_module(linear(), Scheme(4, compensate=True), Rng(0), [torch.ones(1, 4).long()])
    with pytest.raises(UsageError, match="tokens of a sequence"):
        quantize_module(linear(), Scheme(4, 4, smooth=1), Rng(0))(normal(64))
    twice = quantize_module(linear(), Scheme(4), Rng(0))
    with pytest.raises(UsageError, match="The module is a QuantizedLinear and no ordinary linear"):
        quantize_module(twice, Scheme(4), Rng(0))
    half = nn.Sequential(twice, linear(8))
    with pytest.raises(UsageError, match="0 is a QuantizedLinear and no ordinary linear layer"):
        quantize_module(half, Scheme(4), Rng(0))
    attention = nn.MultiheadAttention(8, 2)
    with pytest.raises(UsageError, match="out_proj is a NonDynamicallyQuantizableLinear and no"):
        quantize_module(attention, Scheme(4), Rng(0))


@pytest.mark.parametrize("size", [9, 14, 92])
def test_a_width_without_a_hadamard_matrix_takes_an_orthogonal_one(size):
    layer = linear(size)
    treated = quantize_module(layer, Scheme(rotation="hadamard"), Rng(0))
    x = normal(10, size)
    assert isinstance(treated.rotation, OrthogonalRotation)
    assert (treated(x) - layer(x)).abs().max() < 1e-10


@pytest.mark.parametrize(
    "scheme",
    [Scheme(4), Scheme(4, rotation="hadamard"), Scheme(4, rotation="orthogonal"),
     Scheme(4, migrate=0.5), Scheme(4, compensate=True)],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("sizes", [(64, 8), (36, 5), (600, 3)], ids=str)
def test_a_layer_whose_weight_alone_is_rounded_is_a_linear_layer(scheme, sizes):
    layer = nn.Sequential(linear(*sizes))
    treated = quantize_module(layer, scheme, Rng(0), [normal(40, sizes[0], seed=4)])
    plain = plain_module(treated)
    x = normal(10, sizes[0])
    assert type(plain[0]) is nn.Linear
    assert isinstance(treated[0], QuantizedLinear)
    assert (plain(x) - treated(x)).abs().max() < 1e-10
    assert (plain(x) - layer(x)).abs().max() > 1e-3


def test_what_a_scheme_touches():
    assert Scheme(4, 4).touches == {"linear layers"}
    assert Scheme(4, rotation="hadamard").touches == {"linear layers", "residual stream"}
    assert Scheme(keys_values=4).touches == {"linear layers", "attention"}
