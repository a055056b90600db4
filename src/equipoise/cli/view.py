"""`equipoise view`: the store as pages in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from equipoise.cli._shared import StoreOption


def command(
    run: Annotated[
        str | None,
        typer.Argument(help="Open this run: its number, a trial's name, or `last`."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to bind to.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="Port.", show_default="8642, or the next that is free", min=0, max=65535),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    store: StoreOption = None,
) -> None:
    """Look at trials, their units and their verdicts in a browser.

    The pages are served from this machine to this machine; the address that is
    printed carries a token, and without it nothing is shown. The store is read
    and never written, so a trial that runs can be watched. Ctrl+C ends it.
    """
    from importlib.util import find_spec

    from equipoise.core.errors import UsageError
    from equipoise.store import Store, default_store, is_there

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UsageError("The viewer needs more packages: pip install 'equipoise[viewer]'.")
    place = store or default_store()
    if not is_there(place):
        raise UsageError(f"No store at {place}; `equipoise run FILE` makes one.")
    path = ""
    if run is not None:
        with Store.open(place, readonly=True) as opened:
            path = f"runs/{opened.run(run)['id']}"

    from equipoise.viewer import serve

    def ready(address: str) -> None:
        address = address.replace("/?", f"/{path}?")
        typer.echo(f"equipoise shows {place} at\n\n    {address}\n\nCtrl+C ends it.")
        if browser:
            import webbrowser

            webbrowser.open(address)

    serve(place, host=host, port=port, ready=ready)
