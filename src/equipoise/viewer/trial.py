"""One trial: its question, its verdicts, and what they rest on."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from equipoise.core import Figure, UsageError
from equipoise.report import _page, _units
from equipoise.report._edits import without_edits
from equipoise.viewer import live, vega
from equipoise.viewer.app import library
from equipoise.viewer.pages import page, refusal

router = APIRouter()

_SAID = {
    "running": "This run is going on.",
    "interrupted": "This run was interrupted; the same command goes on from here.",
    "failed": "This run ended with a fault; what had finished is kept.",
    "finished": "These outcomes were imported: there is no trial file, and no claim.",
}

DOWNLOADS = (("html", "Report"), ("parquet", "Parquet"), ("jsonl", "JSONL"), ("yaml", "Trial file"))


@router.get("/runs/{number}")
def trial(request: Request, number: int) -> Response:
    """Show a run's result, or how far it is."""
    store = library(request)
    run = store.run(number)
    if run["result"] is None:
        so_far = Markup(live.render(store, run, None))  # noqa: S704 - a template of ours
        said = _SAID[run["status"]]
        return page(request, "unfinished.html.j2", run=run, said=said, live=so_far)
    store.read_ahead(run)  # most go on to its units
    row = {**run["result"], "run": number}
    found = _units.Found(file=run["file"])
    downloads = [each for each in DOWNLOADS if each[0] != "yaml" or run["file"]]
    shown = _page.page(row)
    return page(
        request,
        "trial.html.j2",
        number=number,
        found=found,
        downloads=downloads,
        figures_at=f"/runs/{number}/figures",
        **shown,
    )


@router.get("/runs/{number}/figures/{place}")
def figure(request: Request, number: int, place: int) -> dict[str, Any]:
    """Return a figure of the run's measures as a Vega-Lite chart."""
    result = library(request).run(number)["result"] or {}
    drawn = result.get("figures") or []
    if not 0 <= place < len(drawn):
        raise UsageError(f"Run {number} has {len(drawn)} figures.")
    return vega.dressed(vega.figure(Figure.from_json(drawn[place]["figure"])))


@router.get("/runs/{number}/samples")
def samples(request: Request, number: int) -> Response:
    """Show distributions, disagreements and errors, which are read from the outcomes."""
    store: Any = library(request)
    run = store.run(number)
    result = run["result"]
    if result is None:
        return refusal(request, 404, f"Run {number} has no result yet.")
    row = {**result, "run": number}
    shown = _page.page(row)
    key = ("samples", number, run["status"])
    found = store.once(key, lambda: _units.gather(without_edits(row), store))
    return page(request, "samples.html.j2", number=number, found=found, **shown)
