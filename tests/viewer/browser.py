"""A real server in its own process and a real Chromium, for the tests of pages as people see them.

Whatever a test looks at, its end checks that nothing from the data ran: no script, no dialog, no
request to another place, no breach of the policy, no error in the console.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WHERE = ("chromium", "chromium-browser", "google-chrome")
TOKEN = "right-token"

_SERVE = """
import sys
from equipoise.viewer import serve
serve(sys.argv[1], port=int(sys.argv[2]), token=sys.argv[3], ready=lambda a: print(a, flush=True))
"""

# Runs before any script of a page.
_WATCH = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


@dataclass
class Server:
    """`equipoise.viewer.serve` of a store, in a process that can be ended and started again."""

    place: Path
    port: int = 0
    process: subprocess.Popen[str] | None = None

    def start(self) -> Server:
        """Start it, at the same port when it is started again."""
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        command = [sys.executable, "-c", _SERVE, str(self.place), str(self.port), TOKEN]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(self.base), "the server did not start"
        return self

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(20)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    @property
    def base(self) -> str:
        """Its address without a path."""
        return f"http://127.0.0.1:{self.port}"


@dataclass
class Visitor:
    """One tab that has been let in, and what went wrong in it."""

    page: Any
    base: str
    faults: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note everything that must not happen."""
        self.page.add_init_script(_WATCH)
        self.page.on("dialog", self._dialog)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("download", lambda each: self.faults.append(f"download: {each.url}"))
        self.page.on("popup", lambda each: self.faults.append(f"popup: {each.url}"))

    def go(self, address: str) -> None:
        """Open a page of the server."""
        self.page.goto(f"{self.base}{address}")

    def check(self) -> None:
        """Fail if anything from the data ran or left."""
        away = [each for each in self.asked if not each.startswith((self.base, "data:image/"))]
        assert not away, away
        assert not self.faults, self.faults
        assert self.page.evaluate("window.hacked") is None

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")


def _executable() -> str:
    pytest.importorskip("playwright", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, WHERE)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(WHERE)} is installed")
    return found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One headless Chromium for a module."""
    executable = _executable()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its own sandbox needs rights that containers seldom give.
        found = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def site(chromium: Any, place: Path) -> Iterator[Server]:
    """The hostile store's server; after the browser, so that nothing starts without one."""
    server = Server(place).start()
    yield server
    server.stop()


@pytest.fixture
def visitor(chromium: Any, site: Server) -> Iterator[Visitor]:
    """A fresh tab of 1200 by 900 in the light theme."""
    with visiting(chromium, site) as found:
        yield found


@contextlib.contextmanager
def visiting(chromium: Any, server: Server, **settings: Any) -> Iterator[Visitor]:
    """Give a tab that has been let in, and check it at the end."""
    settings = {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light", **settings}
    context = chromium.new_context(**settings)
    context.set_default_timeout(15_000)
    found = Visitor(context.new_page(), server.base)
    found.watch()
    try:
        found.go(f"/?token={TOKEN}")
        yield found
        found.check()
    finally:
        context.close()
