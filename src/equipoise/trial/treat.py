"""Treating a subject once and keeping it as a folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.core import Rng, RunError, Subject, Treatment, UsageError
from equipoise.kit.language.saved import save_treated
from equipoise.trial.subjects import bare, steps, treated
from equipoise.trial.trial import Arm

PROBE = "The trial was over, and what had been a question on Monday was a sentence by Friday."
TOLERANCE = 1e-3
"""Nats by which a token's log-probability may differ once read back; rounding is less."""


@dataclass(frozen=True)
class Treated:
    """What `treat` wrote.

    Parameters
    ----------
    folder
        Where it is.
    plain
        Whether plain transformers opens it, or only equipoise.
    reason
        Why only equipoise does.
    difference
        Most nats by which a token's log-probability differs between the
        treated model and the folder read back.
    """

    folder: Path
    plain: bool
    reason: str
    difference: float


def treat(
    subject: Subject,
    treatments: Sequence[Treatment],
    folder: Path,
    *,
    seed: int = 0,
    build: int = 0,
    replace: bool = False,
    describe: Callable[[Path, bool, str], None] | None = None,
) -> Treated:
    """Treat a language model and write the result into a folder; the subject stays as it is.

    Parameters
    ----------
    subject, treatments
        As in an arm.
    folder
        Made; it must not be there yet, or be empty.
    seed, build
        As in a trial, which with the same ones has the same model.
    replace
        Put the folder in the place of one that is there.
    describe
        Called with the unfinished folder, whether it is plain, and the reason,
        to add a model card.

    Raises
    ------
    UsageError
        If the folder is taken, or the treatments do not go together or with
        the subject.
    RunError
        If what was written does not give the same log-probabilities.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        raise UsageError(f"{folder} is there already; name another folder, or add --force.")
    arm = Arm(subject, tuple(treatments))
    arm.capabilities()
    rng = Rng(seed)
    control = bare(subject, rng)
    live = treated(arm, rng, build)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        made = [(treatment, stream) for treatment, stream, _ in steps(arm, rng, build)]
        saved = save_treated(control, live, made, draft)
        difference = _difference(live, draft)
        if not difference <= TOLERANCE:
            raise RunError(
                f"The folder read back differs by {difference:.2g} nats in a token's"
                " log-probability from the treated model, so it was not kept."
            )
        if describe is not None:
            describe(draft, saved.plain, saved.reason)
        draft.chmod(0o755)  # temporary folders and tensors are written for their owner alone
        for path in draft.iterdir():
            path.chmod(0o644)
        if folder.is_dir():
            shutil.rmtree(folder)
        draft.rename(folder)
    except OSError as error:
        raise RunError(f"{folder} could not be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Treated(folder, saved.plain, saved.reason, difference)


def _difference(live: Any, folder: Path) -> float:
    """Return how far log-probabilities read back are from those of the treated model."""
    from equipoise.kit.language.local import LanguageModel

    first = next(live.module.parameters())
    dtype = str(first.dtype).removeprefix("torch.")
    again = LanguageModel.load(folder, dtype=dtype, device=str(live.device))
    one, two = (np.array(each.log_likelihood([("", PROBE)])[0].log_probs) for each in (live, again))
    return float(np.abs(one - two).max())
