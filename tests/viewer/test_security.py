"""Who may look: the token, the name of the server, and what headers forbid."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.viewer.conftest import BASE, TOKEN

from equipoise.viewer.app import create_app
from equipoise.viewer.security import POLICY


@pytest.fixture
def stranger(place: Path):
    app = create_app(place, TOKEN, hosts=frozenset({"127.0.0.1:8642"}))
    with TestClient(app, base_url=BASE, follow_redirects=False) as found:
        yield found
    app.state.library.close()


@pytest.mark.parametrize("address", ["/", "/runs/1", "/static/viewer.js", "/runs/1/live"])
@pytest.mark.parametrize("token", [None, "", "wrong", "right-tokeN", "right-token "])
def test_without_the_token_nothing_is_shown(stranger, address: str, token: str | None) -> None:
    answer = stranger.get(address, params={} if token is None else {"token": token})
    assert answer.status_code == 403
    assert "equipoise view" in answer.text
    assert "trial" not in answer.text.lower().replace("trials", "")


def test_the_token_goes_into_a_cookie_and_out_of_the_address(stranger) -> None:
    answer = stranger.get(f"/runs/1/units?show=all&token={TOKEN}&sort=unit")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs/1/units?show=all&sort=unit"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert stranger.get("/runs/1/units").status_code == 200


def test_a_redirection_never_leaves_the_server(stranger) -> None:
    answer = stranger.get(f"//evil.example/?token={TOKEN}")
    assert answer.headers.get("location", "/").startswith("/")
    assert not answer.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:1", "localhost.evil.example:8642", ""])
def test_another_name_is_refused(stranger, host: str) -> None:
    answer = stranger.get(f"/?token={TOKEN}", headers={"host": host})
    assert answer.status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_takes_no_orders(client: TestClient, method: str) -> None:
    assert client.request(method, "/").status_code == 405


@pytest.mark.parametrize("address", ["/", "/runs/99", "/static/viewer.js", "/runs/1/download/json"])
def test_every_answer_binds_the_page(client: TestClient, address: str) -> None:
    headers = client.get(address).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


def test_the_store_is_not_written(client: TestClient, place: Path) -> None:
    before = place.read_bytes()
    for address in ("/", "/runs/1", "/runs/1/samples", "/runs/1/units?show=disagree"):
        client.get(address)
    assert place.read_bytes() == before
