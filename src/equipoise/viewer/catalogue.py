"""Every part and every paper: what it does, its parameters, its latest replication."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from equipoise.catalog import KINDS, Card, Entry, catalog
from equipoise.core import UsageError
from equipoise.report import _page
from equipoise.report.docstrings import Docstring, examples, markdown
from equipoise.report.figures import panels
from equipoise.report.parts import describe, ledger, trial_text
from equipoise.trial.replication import WORDS
from equipoise.viewer.markdown import as_html
from equipoise.viewer.pages import page

router = APIRouter()

_TONES = {"replicated": "good", "not replicated": "bad", "inconclusive": "open"}

Text = Annotated[str, Query(max_length=200)]


@router.get("/catalogue")
def catalogue(
    request: Request,
    q: Text = "",
    kind: Literal["", "subject", "treatment", "task", "measure", "paper"] = "",
    field: Text = "",
) -> Response:
    """List parts by field, those that match."""
    found = [entry for entry in catalog() if _matches(entry, q, kind, field)]
    fields: dict[str, list[dict[str, Any]]] = {}
    for entry in sorted(found, key=lambda each: (each.card.field, each.kind, each.id)):
        fields.setdefault(entry.card.field, []).append(_line(entry))
    return page(
        request,
        "catalogue.html.j2",
        fields=fields,
        total=len(found),
        kinds=[*KINDS, "paper"],
        all_fields=sorted({entry.card.field for entry in catalog()}),
    )


@router.get("/catalogue/{name}")
def part(request: Request, name: str) -> Response:
    """Explain a part, with the other parts on its card."""
    entry = catalog().find(name)
    card = entry.card
    here = [each for each in catalog() if each.card is card]
    row = ledger(card)
    return page(
        request,
        "part.html.j2",
        card=card,
        entries=[_described(each.id) for each in here],
        chosen=name,
        extras=",".join(card.requires),
        replication=_replication(card, row),
        figures=panels(row) if row else [],
    )


@router.get("/papers/{slug}")
def paper(request: Request, slug: str) -> Response:
    """Go to the page of a paper's parts."""
    card = catalog().paper(slug)
    first = next(each.id for each in catalog() if each.card is card)
    return RedirectResponse(f"/catalogue/{first}#replication")


def _matches(entry: Entry, q: str, kind: str, field: str) -> bool:
    card = entry.card
    if kind == "paper" and not card.paper:
        return False
    if kind not in ("", "paper") and entry.kind != kind:
        return False
    if field and card.field != field:
        return False
    said = [entry.id, entry.summary, card.title, card.summary, card.paper, card.reference]
    text = " ".join(each for each in said if each).lower()
    return all(word in text for word in q.lower().split())


def _line(entry: Entry) -> dict[str, Any]:
    outcome = _outcome(entry.id) if entry.card.paper else ""
    return {
        "id": entry.id,
        "kind": entry.kind,
        "summary": entry.summary,
        "paper": entry.card.paper,
        "outcome": outcome,
        "tone": _TONES.get(outcome, ""),
    }


@functools.cache
def _outcome(name: str) -> str:
    row = ledger(catalog().find(name).card)
    return str(row["outcome"]) if row else ""


@functools.cache
def _described(name: str) -> dict[str, Any]:
    entry = catalog().find(name)
    shown: dict[str, Any] = {"id": entry.id, "kind": entry.kind, "summary": entry.summary}
    try:
        found = describe(entry)
    except UsageError as error:  # a package that it needs is missing
        return shown | {"fault": str(error)}
    doc = Docstring.of(found["doc"])
    told = doc.items("Parameters")
    return shown | {
        "fault": "",
        "lead": as_html(markdown(doc.summary)),
        "text": as_html(doc.rest),
        "parameters": [
            {
                "name": each["name"],
                "what": as_html(told.get(each["name"], "")),
                "expected": each["expected"],
                "default": "required"
                if each["required"]
                else json.dumps(each["default"], default=str, ensure_ascii=False),
            }
            for each in found["parameters"]
        ],
        "example": found["example"],
        "session": as_html(examples(doc.sections.get("Examples", ""))),
        "asks": _asks(found),
        "scores": found.get("scores") or [],
        "reference": doc.sections.get("References", ""),
    }


def _asks(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    words = {"needs": "Needs", "provides": "Provides", "adds": "Adds", "removes": "Takes away"}
    return [(word, ", ".join(found[name])) for name, word in words.items() if found.get(name)]


def _replication(card: Card, row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    raw = card.replication
    if raw is None:
        return None
    shown: dict[str, Any] = {
        "name": card.paper or next(iter(card.parts)),
        "question": str(raw.get("question", "")),
        "differs": " ".join(str(raw.get("differs", "")).split()),
        "trial": trial_text(card),
        "row": None,
    }
    if row is None:
        return shown
    return shown | {
        "row": row,
        "outcome": row["outcome"],
        "tone": _TONES.get(row["outcome"], "open"),
        "date": row["provenance"]["date"][:10],
        "stale": row.get("card_version") != card.version,
        "claims": [
            _page.claim_panel(each, {}) | {"word": WORDS[each["verdict"]]} for each in row["claims"]
        ],
    }
