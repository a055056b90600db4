import copy

import numpy as np
import pytest
import torch

from equipoise.core import Rng, UsageError
from equipoise.kit.torch.subjects import ModuleSubject
from equipoise.kit.worlds.digit_domains import (
    DOMAINS,
    ResidualNetwork,
    digits,
    examples,
    fine_tuned,
    pretrained,
    view,
)
from equipoise.methods.merging.digit_domains import DigitDomains, FineTuneDigits


def test_views_by_hand():
    images, _, _ = digits()
    one = images[:3]
    assert np.array_equal(view(one, "rotated")[:, 0, 0], one[:, 0, 7])
    assert np.array_equal(view(one, "inverted"), 1 - one)
    assert np.allclose(view(one, "mirrored")[:, 0, 1], 0.6 * one[:, 0, 6])
    assert np.allclose(view(one, "mirrored")[:, 0, 0], 0.6 * one[:, 0, 7] + 0.4)
    for domain in DOMAINS:
        assert 0 <= view(images, domain).min() <= view(images, domain).max() <= 1


def test_an_image_is_in_one_split_in_every_domain():
    splits: dict[str, set[str]] = {}
    for unit in DigitDomains().units(Rng(0)):
        splits.setdefault(unit.cluster, set()).add(unit.split)
    assert all(len(each) == 1 for each in splits.values())
    rows, labels = examples(["rotated", "inverted"], "train", 10)
    assert rows.shape == (20, 64)
    assert torch.equal(labels[:10], labels[10:])


def test_training_is_the_same_every_time_and_learns():
    base = pretrained(16, 2, 60, 120, 0)
    before = copy.deepcopy(base.state_dict())
    tuned, losses = fine_tuned(base, "rotated", 60, 4e-3, 1)
    fine_tuned.cache_clear()
    again, _ = fine_tuned(base, "rotated", 60, 4e-3, 1)
    assert all(torch.equal(a, b) for a, b in zip(tuned.parameters(), again.parameters(),
                                                 strict=True))  # fmt: skip
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert all(torch.equal(v, before[k]) for k, v in base.state_dict().items())
    assert torch.equal(tuned.head.weight, base.head.weight)
    rows, labels = examples(["rotated"], "calibration")
    right = [float((m(rows).argmax(1) == labels).float().mean()) for m in (base, tuned)]
    assert right[1] > right[0]


def test_the_task_scores_what_the_network_says():
    subject = ModuleSubject(pretrained(16, 2, 60, 120, 0))
    units = [u for u in DigitDomains(("inverted",)).units(Rng(0)) if u.split == "calibration"]
    found = DigitDomains(("inverted",)).perform(subject, units, Rng(0))
    rows, labels = examples(["inverted"], "calibration")
    right = (subject.module(rows).argmax(1) == labels).tolist()
    assert [outcome.scores["correct"] for outcome in found] == list(map(float, right))


def test_what_does_not_belong_is_refused():
    with pytest.raises(UsageError, match="domains must be some of upright, rotated"):
        DigitDomains(("sideways",))
    with pytest.raises(UsageError, match="FineTuneDigits: the subject must be a digit_network"):
        FineTuneDigits("rotated").apply(ModuleSubject(torch.nn.Linear(2, 2)), Rng(0))
    assert isinstance(pretrained(8, 2, 10, 5, 0), ResidualNetwork)
