"""What can be taken along: outcomes, the report, the file to run again."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from equipoise.core import UsageError
from equipoise.report import html
from equipoise.store.exporting import export
from equipoise.viewer.app import library
from equipoise.viewer.pages import AS_IT_IS

if TYPE_CHECKING:
    from equipoise.store import Store

router = APIRouter()

Kind = Literal["parquet", "jsonl", "csv", "html", "yaml", "json"]
_TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "html": "text/html",
    "yaml": "application/yaml",
    "json": "application/json",
}
_STEP = 1 << 18


@router.get("/runs/{number}/download/{kind}")
def download(request: Request, number: int, kind: Kind) -> Response:
    """Give a run as a file, made as it is asked for."""
    store = library(request)
    run = store.run(number)
    name = re.sub(r"[^\w.-]+", "-", run["trial"], flags=re.ASCII).strip("-.") or "run"
    headers = {"content-disposition": f'attachment; filename="{name}-{number}.{kind}"', **AS_IT_IS}
    if kind == "yaml":
        if not run["file"]:
            raise UsageError(f"Run {number} was not made from a trial file.")
        return Response(run["file"], media_type=_TYPES[kind], headers=headers)
    if kind in ("html", "json"):
        if run["result"] is None:
            raise UsageError(f"Run {number} has no result yet.")
        row = {**run["result"], "run": number}
        if kind == "html":
            return Response(
                html.render(row, cast("Store", store)), media_type=_TYPES[kind], headers=headers
            )
        import json

        return Response(json.dumps(row, indent=2), media_type=_TYPES[kind], headers=headers)
    # The file goes when nothing refers to it any more: also when nobody waited for its first byte.
    made = tempfile.NamedTemporaryFile(prefix="equipoise-", suffix=f".{kind}")  # noqa: SIM115
    export(store, number, Path(made.name), f".{kind}")
    return StreamingResponse(_sent(made), media_type=_TYPES[kind], headers=headers)


def _sent(made: Any) -> Iterator[bytes]:
    with made, Path(made.name).open("rb") as file:
        while part := file.read(_STEP):
            yield part
