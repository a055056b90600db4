import numpy as np
import pytest
import torch

from equipoise.core import Rng, UnitError, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.states import cut, last_states, next_token_log_probs, prompt_ids
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.language.prompting import FewShot, SystemPrompt

PROMPTS = ["a", "a longer prompt", "and another, the longest of them"]


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_those_of_each_prompt_alone(family):
    live = random_model(family)
    found = next_token_log_probs(live, PROMPTS)
    for line, prompt in zip(found, PROMPTS, strict=True):
        with torch.no_grad():
            logits = live.module(torch.tensor([live.tokenize(prompt)])).logits[0, -1]
        assert np.allclose(line, logits.log_softmax(-1), atol=1e-4)
    scores = live.log_likelihood([(prompt, [97]) for prompt in PROMPTS])
    assert np.allclose(found[:, 97], [each.total for each in scores], atol=1e-4)


def test_messages_and_ids_are_prompts_too():
    live = tiny_model()
    chat = [{"role": "user", "content": "Why?"}]
    found = next_token_log_probs(live, [chat, prompt_ids(live, chat)])
    assert np.allclose(found[0], found[1])


def test_a_subject_behind_a_rewriting_is_asked_what_it_would_be_asked():
    live = tiny_model()
    shown = FewShot(examples=(("1+1?", "2"),)).apply(live, Rng(0))
    told = SystemPrompt("Be brief.").apply(shown, Rng(0))
    assert live.tokenizer.decode(prompt_ids(told, "2+2?")) == "1+1? 2\n\nBe brief.\n\n2+2?"
    assert live.tokenizer.decode(cut(shown, "2+2?", [" 4"])[0]) == "1+1? 2\n\n2+2?"
    wanted = told.log_likelihood([("2+2?", " 4")])[0].log_probs[0]
    assert np.isclose(next_token_log_probs(told, ["2+2?"])[0, ord(" ")], wanted, atol=1e-4)


def test_no_prompts_and_prompts_too_long():
    live = tiny_model()
    assert next_token_log_probs(live, []).size == 0
    with pytest.raises(UnitError, match="does not fit the model's 512"):
        next_token_log_probs(live, ["x" * 600])


def test_bad_blocks_and_subjects_without_words_are_one_sentence():
    live = tiny_model()
    with pytest.raises(UsageError, match="blocks must be from 0 to 1"):
        last_states(live, ["a"], [2])
    live.tokenizer = None
    with pytest.raises(UsageError, match="has no tokenizer"):
        last_states(live, ["a"], [1])
