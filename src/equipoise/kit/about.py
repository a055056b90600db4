"""What is to be said of a live subject: remarks and curves of how it was made."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

Curve = Sequence[Sequence[float]]


def about(subject: Any) -> dict[str, Any]:
    """Return what is said of a live subject: ``notes`` (sentences) and ``curves`` (points).

    Examples
    --------
    >>> about(object())
    {'notes': [], 'curves': {}}
    """
    found = getattr(subject, "equipoise_about", None) or {}
    return {"notes": list(found.get("notes", ())), "curves": dict(found.get("curves", {}))}


def annotate(
    subject: Any, *, notes: Sequence[str] = (), curves: Mapping[str, Curve] | None = None
) -> Any:
    """Return a live subject of which more is said; the one given is left as it was.

    Parameters
    ----------
    subject
        A live subject that can be copied.
    notes
        Sentences a reader of results must see: "The loss was not finite at step 12 ...".
    curves
        By name, points ``[x, y]`` of how making it went, such as the loss by step.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> about(annotate(SimpleNamespace(), notes=["Stopped at step 12."]))["notes"]
    ['Stopped at step 12.']
    """
    said = about(subject)
    said["notes"] += [note for note in notes if note not in said["notes"]]
    said["curves"] |= {
        name: [list(point) for point in line] for name, line in (curves or {}).items()
    }
    found = copy.copy(subject)
    object.__setattr__(found, "equipoise_about", said)  # some live subjects are frozen
    return found
