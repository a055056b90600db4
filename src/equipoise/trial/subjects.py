"""Live subjects: loaded once, treated in order, kept on disk when making them is slow.

A treatment that gives a `skeleton` has its tensors kept under the hash of
everything that made them; the next time they are filled into the skeleton.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from equipoise.catalog import digest, identity
from equipoise.core import Rng, Treatment, UsageError
from equipoise.trial.trial import Arm

KEEP_ON_DISK_AFTER = 5.0
"""Seconds of work above which a treated subject's tensors are worth a folder."""

_bare: dict[str, Any] = {}


def treated(arm: Arm, rng: Rng, build: int) -> Any:
    """Return an arm's live subject.

    ``rng`` is the trial's; the subject and each treatment draw from streams
    named by what they are, so two arms that begin alike share their beginning.
    """
    chain = identity(arm.subject)
    subject = _load(arm, chain, rng)
    for treatment in arm.treatments:
        chain = digest([chain, identity(treatment), rng.seed, build if treatment.random else 0])
        subject = _apply(treatment, subject, rng.child("treatment", chain), chain)
    return subject


def _load(arm: Arm, chain: str, rng: Rng) -> Any:
    key = f"{chain}/{rng.seed}"
    if key not in _bare:
        _bare.clear()  # one bare subject at a time; treated ones share its tensors
        _bare[key] = arm.subject.load(rng.child("subject", chain))
    return _bare[key]


def _apply(treatment: Treatment, subject: Any, rng: Rng, key: str) -> Any:
    if type(treatment).skeleton is Treatment.skeleton or not hasattr(subject, "fill"):
        return treatment.apply(subject, rng)
    place = cache_place(key)
    if place.exists():
        try:
            return treatment.skeleton(subject).fill(place)
        except UsageError:
            shutil.rmtree(place, ignore_errors=True)  # damaged, so it is made again
    began = time.perf_counter()
    made = treatment.apply(subject, rng)
    if time.perf_counter() - began > KEEP_ON_DISK_AFTER:
        _keep(made, place)
    return made


def cache_place(key: str) -> Path:
    """Return the folder that keeps the tensors of a treated subject."""
    from equipoise.kit.cache import cache_folder

    folder: Path = cache_folder()
    return folder / "treated" / key


def _keep(subject: Any, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=place.parent, suffix=".draft"))
    try:
        subject.save(draft)
        draft.rename(place)  # a reader sees the whole folder or none
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)  # a full disk costs time, not the run
