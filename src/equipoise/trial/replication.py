"""Replications: the trial on a paper's card, and the ledger of what came of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from equipoise.catalog import Card, catalog
from equipoise.core import UsageError
from equipoise.trial.file import Mistake, TrialFileError, from_raw
from equipoise.trial.result import Result
from equipoise.trial.trial import Trial

WORDS = {
    "supported": "replicated",
    "refuted": "not replicated",
    "inconclusive": "inconclusive",
    None: "no claims",
}


def replications() -> list[Card]:
    """Return every card with a replication, in order of the paper's slug."""
    cards = [card for card in catalog().cards if card.replicates]
    return sorted(cards, key=lambda card: card.paper or card.title)


def replication(slug: str, *, quick: bool = False) -> Trial:
    """Return the trial on a paper's card.

    Parameters
    ----------
    slug
        The paper's slug, or the id of a part on its card.
    quick
        The size that runs in seconds.
    """
    card = catalog().paper(slug)
    raw: dict[str, Any] = copy.deepcopy(dict(card.replication or {}))
    raw.setdefault("trial", f"replicate {card.paper or slug}")
    raw.setdefault("paper", card.paper)
    try:
        return from_raw(raw, name=str(card.path), quick=quick, folder=card.path.parent)
    except TrialFileError as error:
        # Lines are those of a file of its own, which a card's trial is not.
        faults = [Mistake(1, each.message) for each in error.mistakes]
        raise UsageError(
            f"{card.path}: replication: " + " ".join(fault.message for fault in faults)
        ) from error


def record(result: Result, card: Card, folder: Path) -> Path:
    """Write a result to the ledger, one small file a paper, and return its path."""
    row = result.as_json()
    for bulky in ("sequences", "run", "arms", "tasks"):
        row.pop(bulky, None)
    row |= {
        "paper": card.paper,
        "title": card.title,
        "reference": card.reference,
        "outcome": WORDS[result.verdict],
        "card_version": card.version,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{card.paper or card.title.lower().replace(' ', '-')}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(row, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)
    return path
