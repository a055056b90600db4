import numpy as np
import pytest
import torch

from equipoise.core import Request, UnitError, UsageError
from equipoise.kit.language import generation
from equipoise.kit.language.generation import draw
from equipoise.kit.language.local import LanguageModel
from equipoise.kit.language.tools import calls_in

TEXTS = ["The cat", "A much longer prompt, with more to say,", "x", "The dog", "The dog", "Zz?"]


def by_transformers(model: LanguageModel, text: str, tokens: int) -> str:
    ids = torch.tensor([model.tokenize(text)])
    made = model.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return model.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)


def test_greedy_equals_transformers(each: LanguageModel) -> None:
    found = each.generate([Request(text, max_tokens=24) for text in TEXTS])
    assert [answer.text for answer in found] == [by_transformers(each, t, 24) for t in TEXTS]


def test_recurrent_models_generate_and_score_one_by_one(recurrent: LanguageModel) -> None:
    found = recurrent.generate([Request(text, max_tokens=8) for text in TEXTS])
    assert [answer.text for answer in found] == [by_transformers(recurrent, t, 8) for t in TEXTS]
    pairs = [(text, rest) for text in TEXTS for rest in (" sat", " ran far")]
    for pair, scores in zip(pairs, recurrent.log_likelihood(pairs), strict=True):
        (alone,) = recurrent.log_likelihood([pair])
        # A state that is carried on adds up in another order; processors differ in how far.
        np.testing.assert_allclose(scores.log_probs, alone.log_probs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_order_and_batch_size_change_nothing(
    each: LanguageModel, size: int, temperature: float
) -> None:
    requests = [
        Request(
            text,
            n=1 + place % 2,
            max_tokens=6 + 5 * place,
            temperature=temperature,
            top_p=0.9,
            seed=place,
            log_probs=True,
        )
        for place, text in enumerate(TEXTS)
    ]
    expected = each.generate(requests)
    order = np.random.default_rng(size).permutation(len(requests))
    other = LanguageModel(each.module, each.tokenizer, batch_size=size)
    found = other.generate([requests[place] for place in order])
    for place, answer in zip(order, found, strict=True):
        assert answer.texts == expected[place].texts
        assert answer.finish == expected[place].finish
        for one, two in zip(answer.log_probs, expected[place].log_probs, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-4)


def test_log_probs_are_those_of_scoring(tiny: LanguageModel) -> None:
    ids = tiny.tokenize("Begin")
    answer = tiny.generate(
        [Request("Begin", max_tokens=12, temperature=1.5, top_p=0.8, seed=3, log_probs=True)]
    )[0]
    # Ids cannot be had from text with broken characters; score step by step instead.
    seen = list(ids)
    with torch.no_grad():
        uniform = np.random.default_rng([3, 0])
        for log_prob in answer.log_probs[0]:
            logits = tiny.module(torch.tensor([seen])).logits[0, -1]
            token = draw(logits, 1.5, 0.8, uniform.random())
            assert log_prob == pytest.approx(logits.log_softmax(-1)[token].item(), abs=1e-4)
            seen.append(token)
    assert tiny.tokenizer.decode(seen[len(ids) :], skip_special_tokens=True) == answer.text
    assert answer.usage.output_tokens == len(answer.log_probs[0])
    assert answer.usage.input_tokens == 5


def test_samples_follow_the_softmax(tiny: LanguageModel) -> None:
    n, temperature = 4000, 2.0
    request = Request("Once", n=n, max_tokens=1, temperature=temperature, seed=11, log_probs=True)
    answer = tiny.generate([request])[0]
    with torch.no_grad():
        logits = tiny.module(torch.tensor([tiny.tokenize("Once")])).logits[0, -1].double()
    expected = (logits / temperature).softmax(-1).numpy()
    # A token is known by its log-probability, which no two tokens share here.
    plain = logits.log_softmax(-1).numpy()
    drawn = np.array([np.abs(plain - each[0]).argmin() for each in answer.log_probs])
    counts = np.bincount(drawn, minlength=len(expected))
    common = expected * n >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum()) * n
    chi_square = float(((observed - wanted) ** 2 / wanted).sum())
    from scipy.stats import chi2

    assert chi2.sf(chi_square, len(wanted) - 1) > 1e-4


def test_draw_inverts_the_distribution_exactly() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))
    mass = (logits.double() / 0.7).softmax(-1)
    grid = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.bincount([draw(logits, 0.7, 1.0, u) for u in grid], minlength=50) / 20_000
    np.testing.assert_allclose(drawn, mass.numpy(), atol=1.1 / 20_000)


@pytest.mark.parametrize("top_p", [0.001, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float) -> None:
    logits = 3 * torch.randn(2000, generator=torch.Generator().manual_seed(1))
    mass = logits.double().softmax(-1).numpy()
    order = np.argsort(-mass, kind="stable")
    size = int(np.searchsorted(np.cumsum(mass[order]), top_p)) + 1
    kept = generation._nucleus(logits.double().softmax(-1), top_p)
    assert set(np.flatnonzero(kept.numpy())) == set(order[:size])
    drawn = {draw(logits, 1.0, top_p, u) for u in np.linspace(0, 1, 500, endpoint=False)}
    assert drawn <= set(order[:size])


def test_top_p_among_equals_takes_the_lower_ids() -> None:
    kept = generation._nucleus(torch.full((10,), 0.1, dtype=torch.float64), 0.35)
    assert kept.nonzero()[:, 0].tolist() == [0, 1, 2, 3]


def test_the_largest_uniform_number_never_draws_a_token_without_mass() -> None:
    logits = torch.tensor([0.0, 1.0, -torch.inf, -torch.inf])
    assert draw(logits, 1.0, 1.0, np.nextafter(1, 0)) == 1


def test_seeds_name_the_samples(tiny: LanguageModel) -> None:
    def texts(seed: int | None, n: int) -> tuple[str, ...]:
        return tiny.generate([Request("Go", n=n, max_tokens=8, temperature=1.0, seed=seed)])[
            0
        ].texts

    assert texts(5, 4) == texts(5, 4)
    assert texts(5, 4)[:2] == texts(5, 2)
    assert texts(5, 4) != texts(6, 4)
    assert len(set(texts(5, 4))) == 4
    assert texts(None, 2) == texts(0, 2)


def test_greedy_samples_are_all_alike(tiny: LanguageModel) -> None:
    one, three = tiny.generate([Request("Go", n=n, max_tokens=6, log_probs=True) for n in (1, 3)])
    assert three.texts == one.texts * 3
    assert three.usage.output_tokens == 3 * one.usage.output_tokens
    assert len(three.log_probs) == len(three.finish) == 3


def test_no_global_generator_is_touched(tiny: LanguageModel) -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    tiny.generate([Request("Go", max_tokens=4, temperature=1.0, seed=1)])
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_stop_string_is_cut_off(tiny: LanguageModel) -> None:
    whole = tiny.generate([Request("abc", max_tokens=30)])[0]
    for start in range(0, 12, 3):
        stop = whole.text[start : start + 3]
        if not stop.strip() or "�" in stop:
            continue
        found = tiny.generate([Request("abc", max_tokens=30, stop=("never", stop))])[0]
        assert found.text == whole.text[: whole.text.find(stop)]
        assert found.finish == ("stop",)
        assert found.usage.output_tokens <= whole.usage.output_tokens


def test_a_stop_string_in_the_prompt_stops_nothing(tiny: LanguageModel) -> None:
    plain = tiny.generate([Request("qqqq", max_tokens=5)])[0]
    assert tiny.generate([Request("qqqq", max_tokens=5, stop=("qq",))])[0].text.startswith(
        plain.text.split("qq")[0]
    )


def test_the_end_of_text_ends_a_sample_and_the_others_go_on(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny.generate([Request(text, max_tokens=20) for text in TEXTS])
    end = tiny.tokenize(whole[1].text[:1])[0]
    monkeypatch.setattr(generation, "_ends", lambda *_: frozenset([end]))
    found = tiny.generate([Request(text, max_tokens=20, log_probs=True) for text in TEXTS])
    assert found[1].text == ""
    assert found[1].finish == ("stop",)
    assert found[1].usage.output_tokens == len(found[1].log_probs[0]) == 1
    letter = chr(end) if end < 128 else "�"
    for one, two in zip(found, whole, strict=True):
        assert two.text.startswith(one.text)
        assert letter not in one.text or letter == "�"


def test_equal_prompts_share_their_prefill(tiny: LanguageModel) -> None:
    seen: list[int] = []

    def count(module: torch.nn.Module, args: tuple[torch.Tensor], output: object) -> None:
        seen.append(args[0].numel())

    tiny.generate([Request("a", max_tokens=1)])
    handle = tiny.module.model.embed_tokens.register_forward_hook(count)
    try:
        tiny.generate(
            [Request("c" * 40, n=5, max_tokens=3, temperature=1.0, seed=s) for s in (1, 2)]
        )
    finally:
        handle.remove()
    assert seen == [40, 10, 10]


def test_messages_follow_the_chat_template(tiny: LanguageModel) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    answers = tiny.generate(
        [
            Request([{"role": "user", "content": "Hi"}], max_tokens=9),
            Request([{"role": "user", "content": parts}], max_tokens=9),
            Request("<|start|>user\nHi<|end|>\n<|start|>assistant\n", max_tokens=9),
        ]
    )
    assert answers[0].text == answers[1].text == answers[2].text
    begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ye"}]
    goes_on = tiny.generate(
        [
            Request(begun, max_tokens=9),
            Request("<|start|>user\nHi<|end|>\n<|start|>assistant\nYe", max_tokens=9),
        ]
    )
    assert goes_on[0].text == goes_on[1].text


def test_without_a_template_messages_are_refused_in_one_sentence(tiny: LanguageModel) -> None:
    import copy

    bare = copy.deepcopy(tiny.tokenizer)
    bare.chat_template = None
    model = LanguageModel(tiny.module, bare, name="base")
    with pytest.raises(UsageError, match=r"^base: the tokenizer has no chat template.*as text"):
        model.generate([Request([{"role": "user", "content": "Hi"}])])
    with pytest.raises(UsageError, match=r"^tiny: the chat template has no place for tools"):
        tiny.generate([Request("Hi", tools=({"type": "function"},))])
    with pytest.raises(UsageError, match=r"takes text only, and a message has image_url"):
        tiny.generate([Request([{"role": "user", "content": [{"type": "image_url"}]}])])


def test_tool_calls_are_read() -> None:
    text = 'Well <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call> <tool_call>{bad'
    calls = calls_in(text)
    assert calls == (
        {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
    )


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
        ({"max_tokens": -1}, "max_tokens must be an integer of at least 0, got -1"),
        ({"temperature": -0.5}, "temperature must be a number of at least 0, got -0.5"),
        ({"temperature": float("nan")}, "temperature must be a number of at least 0, got nan"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"stop": ("",)}, "a stop string must not be empty"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tiny: LanguageModel, fault: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        tiny.generate([Request("Hi", **fault)])  # type: ignore[arg-type]
    assert str(caught.value) == f"tiny: {sentence}."


def test_limits(tiny: LanguageModel) -> None:
    assert tiny.generate([]) == []
    nothing = tiny.generate([Request("Hi", max_tokens=0)])[0]
    assert (nothing.text, nothing.finish, nothing.usage.output_tokens) == ("", ("length",), 0)
    full = tiny.generate([Request("a" * 510, max_tokens=50)])[0]
    assert full.usage.output_tokens <= 2
    with pytest.raises(UnitError, match=r"^tiny: a prompt of 512 tokens leaves no room"):
        tiny.generate([Request("a" * 512, max_tokens=1)])


def test_batches_are_bounded_by_memory(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        generation._Row(place, 0, (1,) * 10, 10, Request("", max_tokens=10)) for place in range(300)
    ]
    assert generation._fit(rows, tiny._forward, None) == 128
    assert generation._fit(rows, tiny._forward, 7) == 7
    monkeypatch.setattr(generation, "_CACHE_BYTES", 5 * 20 * tiny._forward.cache_bytes)
    assert generation._fit(rows, tiny._forward, None) == 5
    monkeypatch.setattr(generation, "_CACHE_BYTES", 1)
    assert generation._fit(rows, tiny._forward, None) == 1


def test_caps_on_logits_are_found_out(each: LanguageModel) -> None:
    assert (each._forward._base is None) == (each.name == "softcap")


def test_the_cache_is_as_large_as_reckoned(each: LanguageModel) -> None:
    cache = each._forward.new_cache()
    each._forward.states(torch.ones(1, 4, dtype=torch.long), cache=cache)
    held = sum(
        tensor.numel() * tensor.element_size()
        for layer in cache.layers
        for tensor in (layer.keys, layer.values)
    )
    assert held == 4 * each._forward.cache_bytes
