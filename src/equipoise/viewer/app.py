"""The viewer as an ASGI application."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from equipoise.core import EquipoiseError, RunError
from equipoise.viewer.library import Library
from equipoise.viewer.pages import refusal
from equipoise.viewer.security import HEADERS, Guard

ROOMS = ("static", "trials", "trial", "units", "unit", "catalogue", "compare", "live", "downloads")
"""Modules with a router each."""


def create_app(place: str | Path, token: str, *, hosts: frozenset[str] | None = None) -> FastAPI:
    """Return the viewer of one store.

    Parameters
    ----------
    place
        The store's path or address; it is opened for reading and never written.
    token
        What a request must carry, see `equipoise.viewer.security.Guard`.
    hosts
        Names, with the port, that requests may call the server by; None for any.

    Raises
    ------
    UsageError
        If there is no store, or it cannot be read.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.library = Library(place)
    app.state.channels = {}
    for room in ROOMS:
        app.include_router(import_module(f"equipoise.viewer.{room}").router)
    app.add_exception_handler(EquipoiseError, _said)
    app.add_exception_handler(HTTPException, _not_here)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(Exception, _broken)
    app.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=4)
    app.add_middleware(Guard, token=token, hosts=hosts, refuse=refusal)
    return app


def library(request: Request) -> Library:
    """Return the store that the application shows."""
    found: Library = request.app.state.library
    found.refresh()
    return found


def _said(request: Request, error: Any) -> Response:
    # What the user asked for is not there; or the store cannot give it now.
    status = 503 if isinstance(error, RunError) else 404
    return refusal(request, status, str(error))


def _not_here(request: Request, error: Any) -> Response:
    sentence = "There is no page at this address." if error.status_code == 404 else error.detail
    return refusal(request, error.status_code, str(sentence))


def _misread(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    said = f"The address says {first['loc'][-1]}={first['input']!r:.60}: {first['msg'].lower()}."
    return refusal(request, 400, said)


def _broken(request: Request, error: Exception) -> Response:
    # This answer is made outside of the guard, which binds all others.
    answer = refusal(request, 500, f"The page could not be made: {type(error).__name__}.")
    answer.raw_headers.extend(HEADERS.items())
    return answer
