"""The server itself: ports, names, and how it ends."""

from __future__ import annotations

import errno
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.viewer.made import outcome, serving, write

from equipoise.core import UsageError
from equipoise.viewer import pages, server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write(tmp_path / "x.sqlite", lambda i, k: outcome(1.0), units=3)


@pytest.fixture
def taken():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_port_that_is_given_and_taken(taken: int) -> None:
    with pytest.raises(UsageError, match=f"Port {taken} is in use; say --port"):
        server._listen("127.0.0.1", taken)


def test_the_next_port_is_taken_where_none_is_given(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PORT", taken)
    with server._listen("127.0.0.1", None) as found:
        assert found.getsockname()[1] != taken
        # Nobody else gets it from now on, though nothing has been accepted yet.
        with pytest.raises(UsageError, match="is in use"):
            server._listen("127.0.0.1", found.getsockname()[1])


def test_a_port_that_is_not_for_everyone() -> None:
    said = server._why("127.0.0.1", 80, PermissionError(errno.EACCES, "Permission denied"))
    assert said.startswith("Port 80 may not be used; say --port")


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.name.invalid", "not a name"])
def test_an_address_of_another_machine(host: str) -> None:
    with pytest.raises(UsageError, match="cannot listen at"):
        server._listen(host, 0)


def test_scripts_that_are_not_installed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "VENDORED", tmp_path)
    with pytest.raises(UsageError, match="scripts are not installed"):
        server.serve(place)


def test_it_answers_whom_it_told_and_ends_quietly(place: Path) -> None:
    with serving(place) as (address, process):
        assert address.startswith("http://127.0.0.1:")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=10) as answer:
            assert answer.status == 200
            assert b"made" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address.partition("?")[0], timeout=10)
        process.send_signal(2)
        _, said = process.communicate(timeout=10)
        assert said == ""


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_the_other_loopback(place: Path) -> None:
    try:
        server._listen("::1", 0).close()
    except UsageError:
        pytest.skip("no IPv6 loopback")
    with serving(place, "--port", "0", "--host", "::1") as (address, _):
        assert address.startswith("http://[::1]:")
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(
            address, timeout=10
        ) as answer:
            assert answer.status == 200
