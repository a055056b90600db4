import numpy as np
import pytest
import torch

from equipoise.core import UnitError
from equipoise.kit.language import scoring
from equipoise.kit.language.local import LanguageModel
from equipoise.kit.torch.tokens import current_mask

CONTEXTS = ["The cat", "A much longer context, with more to say,", "x", "The dog eats the bone"]
OPTIONS = [" sat", " ran far away", " m", " meat", "!", " meats"]
PAIRS = [(context, option) for context in CONTEXTS for option in OPTIONS]


def alone(model: LanguageModel, prompt: list[int], rest: list[int]) -> np.ndarray:
    """Score by one plain forward pass of transformers, nothing of ours."""
    ids = torch.tensor([prompt + rest])
    with torch.no_grad():
        log_probs = model.module(ids).logits[0].float().log_softmax(-1)
    return np.array([log_probs[len(prompt) - 1 + i, token].item() for i, token in enumerate(rest)])


def test_scores_equal_a_plain_forward_pass_of_each_sequence(each: LanguageModel) -> None:
    found = each.log_likelihood(PAIRS)
    for (context, option), scores in zip(PAIRS, found, strict=True):
        expected = alone(each, each.tokenize(context), each.tokenize(option))
        np.testing.assert_allclose(scores.log_probs, expected, atol=1e-4)


def test_contexts_of_one_length_and_sharing_switched_off_agree(each: LanguageModel) -> None:
    pairs = [(context[:7].ljust(7, "."), option) for context, option in PAIRS]
    shared = each.log_likelihood(pairs)
    whole = [each.log_likelihood([pair])[0] for pair in pairs]
    for a, b in zip(shared, whole, strict=True):
        np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_order_and_batch_size_change_nothing(tiny: LanguageModel, size: int) -> None:
    expected = tiny.log_likelihood(PAIRS)
    order = np.random.default_rng(size).permutation(len(PAIRS))
    other = LanguageModel(tiny.module, tiny.tokenizer, batch_size=size)
    found = other.log_likelihood([PAIRS[place] for place in order])
    for place, scores in zip(order, found, strict=True):
        np.testing.assert_allclose(scores.log_probs, expected[place].log_probs, atol=1e-4)
        assert scores.greedy == expected[place].greedy


def test_a_context_goes_through_the_model_once(tiny: LanguageModel) -> None:
    seen = 0

    def count(module: torch.nn.Module, args: tuple[torch.Tensor], output: object) -> None:
        nonlocal seen
        seen += args[0].numel()

    context = "c" * 100
    tiny.log_likelihood([("a", "bc")])  # the comparison of output layers runs once
    handle = tiny.module.model.embed_tokens.register_forward_hook(count)
    try:
        tiny.log_likelihood([(context, option) for option in (" a", " bc", " de", "f")])
    finally:
        handle.remove()
    # Inputs: the context; " ", " b", " d" (the last token of an option is never fed)
    assert seen == 100 + 1 + 2 + 2 + 1  # one token of padding


def test_the_output_layer_sees_wanted_positions_only(tiny: LanguageModel) -> None:
    rows = 0

    def count(module: torch.nn.Module, args: tuple[torch.Tensor], output: object) -> None:
        nonlocal rows
        rows += args[0].reshape(-1, args[0].shape[-1]).shape[0]

    tiny.log_likelihood([("a", "bc")])
    handle = tiny.module.lm_head.register_forward_hook(count)
    try:
        tiny.log_likelihood([("c" * 50, " abc")])
    finally:
        handle.remove()
    assert rows == 4


def test_long_windows_come_in_blocks_of_logits(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.random.default_rng(0).integers(0, 256, size=400).tolist()
    whole = tiny.log_likelihood([(ids[:1], ids[1:])])[0]
    largest = 0
    logits = scoring.Forward.logits

    def spy(self: scoring.Forward, states: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, states.shape[0])
        return logits(self, states)

    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", 259 * 64)
    monkeypatch.setattr(scoring.Forward, "logits", spy)
    blocks = tiny.log_likelihood([(ids[:1], ids[1:]), (ids[:1], ids[1:200])])
    assert largest == 64
    np.testing.assert_allclose(blocks[0].log_probs, whole.log_probs, atol=1e-5)
    np.testing.assert_allclose(blocks[0].log_probs, alone(tiny, ids[:1], ids[1:]), atol=1e-4)
    np.testing.assert_allclose(blocks[1].log_probs, whole.log_probs[:199], atol=1e-5)


def test_probabilities_of_all_next_tokens_sum_to_one(tiny: LanguageModel) -> None:
    found = tiny.log_likelihood([("Some text", [token]) for token in range(259)])
    assert sum(np.exp(each.total) for each in found) == pytest.approx(1, abs=1e-5)
    assert sum(each.greedy for each in found) == 1


def test_greedy_marks_what_greedy_decoding_gives(tiny: LanguageModel) -> None:
    prompt = tiny.tokenize("Begin")
    rest = tiny.module.generate(
        torch.tensor([prompt]), max_new_tokens=5, do_sample=False, eos_token_id=None
    )[0, len(prompt) :].tolist()
    wrong = [*rest[:-1], (rest[-1] + 1) % 256]
    right, other = tiny.log_likelihood([(prompt, rest), (prompt, wrong)])
    assert right.greedy
    assert not other.greedy


def test_empty_continuation_prompt_and_list(tiny: LanguageModel) -> None:
    assert tiny.log_likelihood([]) == []
    nothing = tiny.log_likelihood([("a", "")])[0]
    assert nothing.total == 0
    assert nothing.greedy
    begun = tiny.log_likelihood([("", "hi")])[0]
    np.testing.assert_allclose(begun.log_probs, alone(tiny, [257], tiny.tokenize("hi")), atol=1e-4)


def test_white_space_at_the_end_of_a_prompt_belongs_to_the_continuation(
    tiny: LanguageModel,
) -> None:
    one, other = tiny.log_likelihood([("The cat ", "sat"), ("The cat", " sat")])
    np.testing.assert_array_equal(one.log_probs, other.log_probs)


def test_messages_are_scored_after_the_template(tiny: LanguageModel) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    text = "<|start|>user\nHi<|end|>\n<|start|>assistant\n"
    one, other = tiny.log_likelihood([(messages, "Yo"), (tiny.tokenize(text), "Yo")])
    np.testing.assert_array_equal(one.log_probs, other.log_probs)


def test_too_long_is_one_sentence(tiny: LanguageModel) -> None:
    with pytest.raises(UnitError, match=r"^tiny: a context of 500 tokens and a continuation of 14"):
        tiny.log_likelihood([("a" * 500, "b" * 14)])
    assert len(tiny.log_likelihood([("a" * 500, "b" * 13)])[0].log_probs) == 13


class _Pooled(torch.nn.Module):
    """Divides by the largest value among the sequence's real tokens."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = current_mask()
        size = x.abs()
        if mask is not None:
            assert mask.shape == x.shape[:2]
            size = size.masked_fill(~mask[..., None], 0)
        return self.inner(x / size.amax(dim=(1, 2), keepdim=True))


def test_modules_that_pool_over_tokens_do_not_see_padding(tiny: LanguageModel) -> None:
    from equipoise.kit.language.tiny import tiny_model

    module = tiny_model().module
    for layer in module.model.layers:
        layer.mlp.down_proj = _Pooled(layer.mlp.down_proj)
    module.equipoise_whole_sequence = True
    model = tiny.with_module(module)
    found = model.log_likelihood(PAIRS)
    for (context, option), scores in zip(PAIRS, found, strict=True):
        ids = tiny.tokenize(context + option)
        with torch.no_grad():
            log_probs = module(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        start = len(tiny.tokenize(context))
        expected = [log_probs[i - 1, ids[i]].item() for i in range(start, len(ids))]
        np.testing.assert_allclose(scores.log_probs, expected, atol=1e-4)
