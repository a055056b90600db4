"""Live subjects: loaded once, treated in order, kept on disk when making them is slow.

A treatment that gives a `skeleton` has its tensors kept as safetensors under the
hash of everything that made them; the next time they are filled into the skeleton.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from equipoise.catalog import digest, identity
from equipoise.core import Rng, Treatment
from equipoise.trial.trial import Arm

KEEP_ON_DISK_AFTER = 5.0
"""Seconds of work above which a treated subject's tensors are worth a file."""

_bare: OrderedDict[str, Any] = OrderedDict()


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
        while _bare:
            _bare.popitem()
        _bare[key] = arm.subject.load(rng.child("subject", chain))
    return _bare[key]


def _apply(treatment: Treatment, subject: Any, rng: Rng, key: str) -> Any:
    if type(treatment).skeleton is Treatment.skeleton:
        return treatment.apply(subject, rng)
    place = cache_place(key)
    if place.exists():
        found = _fill(treatment.skeleton(subject), place)
        if found is not None:
            return found
    began = time.perf_counter()
    made = treatment.apply(subject, rng)
    if time.perf_counter() - began > KEEP_ON_DISK_AFTER:
        _keep(made, place)
    return made


def cache_place(key: str) -> Path:
    """Return the file that keeps the tensors of a treated subject."""
    from equipoise.kit.cache import cache_folder

    folder: Path = cache_folder()
    return folder / "treated" / f"{key}.safetensors"


def _keep(subject: Any, place: Path) -> None:
    from safetensors.torch import save_file

    state = subject.module.state_dict()
    # Tied tensors are stored once: safetensors refuses shared memory.
    first: dict[tuple[int, tuple[int, ...]], str] = {}
    alias: dict[str, str] = {}
    tensors = {}
    for name, tensor in state.items():
        owner = first.setdefault((tensor.data_ptr(), tuple(tensor.shape)), name)
        if owner == name or tensor.numel() == 0:
            tensors[name] = tensor.contiguous()
        else:
            alias[name] = owner
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=place.parent, suffix=".draft")
    os.close(handle)
    try:
        save_file(tensors, draft, metadata={"alias": json.dumps(alias)})
        os.replace(draft, place)  # a reader sees the whole file or none
    except OSError:
        Path(draft).unlink(missing_ok=True)  # a full disk costs time, not the run


def _fill(skeleton: Any, place: Path) -> Any:
    """Return the skeleton with its tensors, or None when the file is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(place, framework="pt") as file:
            alias = json.loads((file.metadata() or {}).get("alias", "{}"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state |= {name: state[owner] for name, owner in alias.items()}
        skeleton.module.load_state_dict(state, assign=True)
    except (SafetensorError, OSError, KeyError, ValueError, RuntimeError):
        place.unlink(missing_ok=True)
        return None
    return skeleton
