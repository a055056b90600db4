"""Starting the viewer: an address with a token, on this machine alone unless told otherwise."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from equipoise.core import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT = 8642

_TAKEN = (errno.EADDRINUSE, errno.EACCES)


def serve(
    place: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    ready: Callable[[str], None] = print,
) -> None:
    """Show a store until interrupted.

    Parameters
    ----------
    place
        The store's path or address.
    host
        Address to bind to.
    port
        None takes 8642, or the next one that is free.
    token
        What the address must carry; a new one by default.
    ready
        Called with the address once the server listens.

    Raises
    ------
    UsageError
        If there is no store, the port is taken, or the address is not this machine's.
    """
    from equipoise.viewer.app import create_app
    from equipoise.viewer.pages import VENDORED
    from equipoise.viewer.security import new_token

    if not (VENDORED / "htmx.js").exists():
        raise UsageError(
            "The viewer's scripts are not installed: install equipoise again where npm's registry"
            " can be reached, or run hatch_build.py in its checkout."
        )
    token = token or new_token()
    listener = _listen(host, port)
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        hosts = frozenset(f"{_name(each)}:{port}" for each in (*LOOPBACK, host))
        app = create_app(place, token, hosts=hosts if host in LOOPBACK else None)
        server = _server(app, lambda: ready(f"http://{_name(host)}:{port}/?token={token}"))
        try:
            server.run(sockets=[listener])
        finally:
            app.state.library.close()


def _server(app: Any, ready: Callable[[], None]) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for channel in app.state.channels.values():
                channel.close()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    return Server(config)


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = [port] if port is not None else [*range(PORT, PORT + 20), 0]
    for each in tried:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, each))
            listener.listen(128)  # from now on nobody else can take the port
        except OSError as error:
            listener.close()
            if port is None and error.errno in _TAKEN:
                continue
            raise UsageError(_why(host, each, error)) from error
        return listener
    raise UsageError(f"No free port at {host}.")


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return f"Port {port} may not be used; say --port with one above 1023, or leave it out."
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use; say --port with another one, or leave it out."
    return f"The viewer cannot listen at {host}:{port}: {error.strerror}."


def _name(host: str) -> str:
    return f"[{host}]" if ":" in host else host
