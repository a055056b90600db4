from dataclasses import dataclass

import numpy as np
import pytest
import torch

from equipoise.core import Rng, Task, UsageError
from equipoise.kit.language.divergence import kl_divergence
from equipoise.kit.language.families import random_model
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.language.hf import HuggingFace
from equipoise.methods.language.next_token_shift import NextTokenShift
from equipoise.methods.language.prompting import FewShot
from equipoise.methods.reasoning.gsm8k import GSM8K
from equipoise.methods.reasoning.ioi import IndirectObject
from equipoise.methods.steering.control_vector import add_vectors

DATA = IndirectObject(problems=5, train=3, names=("Ann", "Bob", "Cid", "Dora"))


@dataclass(frozen=True)
class Silent(Task):
    """Does not say how its units are shown."""

    def units(self, rng):
        return []


def shift(subject, reference):
    task = NextTokenShift(DATA, HuggingFace.tiny())
    units = list(task.units(Rng(0)))
    return [o.scores for o in task.contrast(subject, reference, units, Rng(0))], units


def test_scores_are_those_of_plain_forward_passes():
    live = random_model("llama")
    steered = live.with_module(add_vectors(live.module, {1: np.ones(32)}, 0.5))
    found, units = shift(steered, live)
    for scores, unit in zip(found, units, strict=True):
        ids = torch.tensor([live.tokenize(unit.content["prompt"])])
        with torch.no_grad():
            before, after = (each.module(ids).logits[0, -1:] for each in (live, steered))
        assert abs(scores["kl"] - float(kl_divergence(before, after))) < 1e-4
        p, q = (each.double().log_softmax(-1) for each in (before, after))
        unsure = [float(-(each.exp() * each).sum()) for each in (p, q)]
        assert abs(scores["entropy"] - unsure[1]) < 1e-4
        assert abs(scores["entropy_change"] - (unsure[1] - unsure[0])) < 1e-4
        assert scores["agreement"] == float(before.argmax() == after.argmax())


def test_the_same_model_has_no_shift():
    live = random_model("gpt2")
    for scores in shift(live, live)[0]:
        assert (scores["kl"], scores["entropy_change"], scores["agreement"]) == (0, 0, 1)


def test_only_test_questions_are_asked_and_in_the_subjects_own_words():
    live = tiny_model()
    assert len(shift(live, live)[1]) == 5
    shown = FewShot(examples=(("1+1?", "2"),)).apply(live, Rng(0))
    with pytest.raises(UsageError, match="read text by one tokenizer"):
        shift(shown, live)
    assert all(scores["kl"] == 0 for scores in shift(shown, shown)[0])


def test_a_task_without_examples_is_refused():
    with pytest.raises(UsageError, match="does not say how its units are shown"):
        list(NextTokenShift(Silent(), HuggingFace.tiny()).units(Rng(0)))
    assert len(list(NextTokenShift(GSM8K.tiny(), HuggingFace.tiny()).units(Rng(0)))) == 2
