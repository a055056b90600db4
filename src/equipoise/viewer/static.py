"""Scripts, styles and fonts, from the package alone."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from equipoise.viewer.pages import HERE, style

router = APIRouter()

_FOR_EVER = "public, max-age=31536000, immutable"
_FOLDER = HERE / "static"


@router.get("/static/{name:path}")
def static(request: Request, name: str) -> Response:
    """Return a file of the folder ``static``, packed where it lies packed beside it."""
    headers = {"cache-control": _FOR_EVER if "v" in request.query_params else "no-cache"}
    if name == "style.css":
        return Response(style(), media_type="text/css", headers=headers)
    file = (_FOLDER / name).resolve()
    if not file.is_relative_to(_FOLDER) or not file.is_file() or file.suffix not in _KINDS:
        raise HTTPException(404)
    kind = mimetypes.types_map.get(file.suffix, "application/octet-stream")
    packed = file.with_name(file.name + ".gz")
    if packed.is_file() and "gzip" in request.headers.get("accept-encoding", ""):
        headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        return Response(packed.read_bytes(), media_type=kind, headers=headers)
    return Response(Path(file).read_bytes(), media_type=kind, headers=headers)


_KINDS = (".js", ".css", ".svg", ".woff2", ".txt")
