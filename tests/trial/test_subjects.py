"""Treated subjects: shared beginnings, the cache on disk, and what a damaged entry does."""

from dataclasses import dataclass

import numpy as np
import pytest

from equipoise.catalog import part
from equipoise.core import HasModule, Rng, ScoresText, Subject
from equipoise.kit.language.tiny import tiny_model
from equipoise.trial import subjects
from equipoise.trial.trial import Arm

loads = []


@dataclass(frozen=True)
class Tiny(Subject):
    """The tiny model, counting how often it is loaded."""

    seed: int = 0
    provides = frozenset({HasModule, ScoresText})

    def load(self, rng):
        loads.append(self.seed)
        return tiny_model(self.seed)


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path))
    monkeypatch.setattr(subjects, "KEEP_ON_DISK_AFTER", 0.0)
    subjects._bare.clear()
    loads.clear()


def answer(live):
    return live.log_likelihood([("the quick", " brown fox")])[0].log_probs


def rotated():
    return Arm(Tiny(), (part("rotate", weights=4, activations=8),))


def kept(folder):
    return list((folder / "treated").iterdir())


def test_a_kept_subject_answers_as_the_one_that_was_made(tmp_path, monkeypatch):
    made = answer(subjects.treated(rotated(), Rng(0), 0))
    assert len(kept(tmp_path)) == 1
    monkeypatch.setattr(type(part("rotate")), "apply", None)  # may not be needed again
    assert np.array_equal(answer(subjects.treated(rotated(), Rng(0), 0)), made)


def test_a_damaged_entry_is_made_again(tmp_path):
    made = answer(subjects.treated(rotated(), Rng(0), 0))
    (tensors,) = kept(tmp_path)[0].glob("*.safetensors")
    for damage in (b"", b"rubbish", tensors.read_bytes()[:-100]):
        tensors.write_bytes(damage)
        assert np.array_equal(answer(subjects.treated(rotated(), Rng(0), 0)), made)
        assert np.array_equal(answer(subjects.treated(rotated(), Rng(0), 0)), made)


def test_builds_and_seeds_have_entries_of_their_own(tmp_path):
    found = [answer(subjects.treated(rotated(), Rng(s), b)) for s, b in ((0, 0), (0, 1), (1, 0))]
    assert len(kept(tmp_path)) == 3
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_arms_share_their_subject_and_leave_it_alone():
    control = answer(subjects.treated(Arm(Tiny()), Rng(0), 0))
    subjects.treated(rotated(), Rng(0), 0)
    assert np.array_equal(answer(subjects.treated(Arm(Tiny()), Rng(0), 0)), control)
    assert loads == [0]
