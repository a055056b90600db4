"""Live subjects: loaded once, treated in order, kept on disk when making them is slow.

A treatment that gives a `skeleton` has its tensors kept under the hash of
everything that made them; the next time they are filled into the skeleton.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from equipoise.catalog import digest, identity
from equipoise.core import Rng, Subject, Treatment, UsageError
from equipoise.trial.trial import Arm

KEEP_ON_DISK_AFTER = 5.0
"""Seconds of work above which a treated subject's tensors are worth a folder."""

_ABOUT = "about.json"

_BARE = 2
"""Bare subjects kept: an arm's own, whose tensors treated ones share, and a reference."""

_bare: OrderedDict[str, Any] = OrderedDict()


def treated(arm: Arm, rng: Rng, build: int) -> Any:
    """Return an arm's live subject.

    ``rng`` is the trial's; the subject and each treatment draw from streams
    named by what they are, so two arms that begin alike share their beginning.
    """
    subject = bare(arm.subject, rng)
    for treatment, stream, key in steps(arm, rng, build):
        subject = _apply(treatment, subject, stream, key)
    return subject


def steps(arm: Arm, rng: Rng, build: int) -> Iterator[tuple[Treatment, Rng, str]]:
    """Yield an arm's treatments in order, each with its stream and the hash of all before it."""
    chain = identity(arm.subject)
    for treatment in arm.treatments:
        chain = digest([chain, identity(treatment), rng.seed, build if treatment.random else 0])
        yield treatment, rng.child("treatment", chain), chain


def bare(subject: Subject, rng: Rng) -> Any:
    """Return a live subject to which nothing is done; ``rng`` is the trial's."""
    chain = identity(subject)
    key = f"{chain}/{rng.seed}"
    if key in _bare:
        _bare.move_to_end(key)
        return _bare[key]
    while len(_bare) >= _BARE:
        _bare.popitem(last=False)
    _bare[key] = subject.load(rng.child("subject", chain))
    return _bare[key]


def _apply(treatment: Treatment, subject: Any, rng: Rng, key: str) -> Any:
    if type(treatment).skeleton is Treatment.skeleton or not hasattr(subject, "fill"):
        return treatment.apply(subject, rng)
    place = cache_place(key)
    if place.exists():
        try:
            return _said(treatment.skeleton(subject).fill(place), place)
        except UsageError:
            shutil.rmtree(place, ignore_errors=True)  # damaged, so it is made again
    began = time.perf_counter()
    made = treatment.apply(subject, rng)
    if time.perf_counter() - began > KEEP_ON_DISK_AFTER:
        _keep(made, place)
    return made


def _said(subject: Any, place: Path) -> Any:
    """Return a subject with the remarks that were kept beside its tensors."""
    from equipoise.kit.about import annotate

    try:
        said = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return subject
    return annotate(subject, notes=said["notes"], curves=said["curves"])


def cache_place(key: str) -> Path:
    """Return the folder that keeps the tensors of a treated subject."""
    from equipoise.kit.cache import cache_folder

    folder: Path = cache_folder()
    return folder / "treated" / key


def _keep(subject: Any, place: Path) -> None:
    from equipoise.kit.about import about

    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=place.parent, suffix=".draft"))
    try:
        subject.save(draft)
        (draft / _ABOUT).write_text(json.dumps(about(subject)), encoding="utf-8")
        draft.rename(place)  # a reader sees the whole folder or none
    except Exception:  # a full disk, or tensors that no file can hold, cost time and not the run
        shutil.rmtree(draft, ignore_errors=True)
