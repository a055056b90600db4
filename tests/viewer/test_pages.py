"""Every page of a hostile store answers, and nothing in it becomes markup."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from tests.viewer.conftest import HOSTILE

TASK = quote(f"sums {HOSTILE[0]}")
UNIT = quote(f"u04 {HOSTILE[4]}")

PAGES = (
    "/",
    "/?q=script&verdict=supported&sort=name",
    "/?status=running",
    "/runs/1",
    "/runs/2",
    "/runs/3",
    "/runs/1/samples",
    "/runs/1/units",
    f"/runs/1/units?task={TASK}&show=disagree&sort=spread",
    f"/runs/1/units?stratum={quote(HOSTILE[1])}",
    f"/runs/1/units?kind={quote('kind ' + HOSTILE[0])}",
    "/runs/1/units?q=script",
    "/runs/1/units?q=answer1&show=failed",
    "/runs/1/units?low=0.5&high=1&arm=control&sort=control&order=down",
    f"/runs/1/unit?id={UNIT}",
    f"/runs/1/unit?task={TASK}&id={quote(f'u05 {HOSTILE[5]}')}",
    "/runs/2/units",
    "/catalogue",
    "/catalogue?q=conformal&kind=treatment",
    "/catalogue/rotated_runtime_smooth",
)
SAID_NO = (
    ("/runs/99", 404, "No run"),
    ("/runs/x", 400, "number"),
    ("/nowhere", 404, "no page"),
    ("/?page=0", 400, "page"),
    ("/?sort=worst", 400, "sort"),
    ("/runs/1/units?task=none", 404, "No task"),
    ("/runs/1/units?score=none", 404, "No score"),
    ("/runs/1/units?show=none", 404, "No choice"),
    ("/runs/1/units?sort=none", 404, "No arm"),
    ("/runs/1/units?score=%3Cb%3E%22len&show=wrong", 404, "no best value"),
    ("/runs/1/units?low=abc", 400, "low"),
    ("/runs/1/unit?id=none", 404, "no unit"),
    ("/runs/1/unit", 400, "id"),
    ("/runs/2/samples", 404, "no result"),
    ("/runs/2/download/html", 404, "no result"),
    ("/runs/3/download/yaml", 404, "trial file"),
    ("/runs/1/download/exe", 400, "kind"),
    ("/catalogue/none", 404, "No part"),
    ("/papers/none", 404, "No replication"),
    ("/static/../app.py", 404, "no page"),
    ("/static/%2e%2e/app.py", 404, "no page"),
    ("/static/vendor/../../app.py", 404, "no page"),
    ("/runs/1/artifact?arm=none&task=x&id=y&name=z", 404, "none"),
)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("address", PAGES)
def test_nothing_that_data_says_becomes_an_element(client: TestClient, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text[:500]
    parser = _Elements()
    parser.feed(answer.text)
    for tag, attributes in parser.found:
        assert tag not in ("iframe", "object", "embed", "base"), tag
        assert not [name for name in attributes if name.startswith("on")], attributes
        assert "style" not in attributes, "the policy forbids styles in elements"
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/static/"), attributes
        for name in ("href", "src", "action", "hx-get"):
            value = attributes.get(name) or "/"
            assert re.match(r"/(?!/)|#|data:image/(png|jpeg|gif|webp);base64,", value), value
    assert "\u202e" not in answer.text


@pytest.mark.parametrize(("address", "status", "word"), SAID_NO)
def test_what_is_not_there_is_one_sentence(
    client: TestClient, address: str, status: int, word: str
) -> None:
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:300]
    said = re.search(r'role="alert"[^>]*>([^<]*)<', answer.text)
    assert said is not None
    assert word in html.unescape(said[1])


def test_a_hostile_text_is_shown_as_it_is(client: TestClient) -> None:
    text = client.get(f"/runs/1/unit?id={UNIT}").text
    assert html.escape(HOSTILE[4], quote=False) in text or HOSTILE[4] in html.unescape(text)
    assert "u04" in text


def test_htmx_gets_the_part_that_changes_alone(client: TestClient) -> None:
    whole = client.get("/runs/1/units").text
    part = client.get("/runs/1/units", headers={"hx-request": "true"}).text
    assert "<html" in whole
    assert "<html" not in part
    assert "60 of 60 units" in part


def test_a_page_beyond_the_last_is_the_last(client: TestClient) -> None:
    assert "<h1>Trials" in (text := client.get("/?page=9").text)
    assert "No run is like that" not in text
    assert client.get("/compare/board.json?runs=1,1").json() == (
        client.get("/compare/board.json?runs=1").json()
    )


def test_filters_choose_and_sort(client: TestClient) -> None:
    def rows(query: str) -> list[str]:
        text = client.get(f"/runs/1/units?{query}", headers={"hx-request": "true"}).text
        return re.findall(r"<bdi>(u\d\d)", text)

    assert rows("q=answer7") == ["u07"]
    assert rows("id=u1") == [f"u{i}" for i in range(10, 20)]
    failed = rows("show=failed")
    assert failed == [f"u{i:02d}" for i in range(60) if i % 13 == 5]
    disagree = {int(each[1:]) for each in rows("show=disagree") + rows("show=disagree&page=2")}
    expected = set()
    for i in range(60):
        control, other = i % 3 == 0, (i + 1) % 3 == 0 and i % 13 != 5
        if control != other:
            expected.add(i)
    assert disagree == expected
    top = rows("sort=control&order=down")[:20]
    assert all(int(each[1:]) % 3 == 0 for each in top)


def test_artifacts_are_pictures_or_files(client: TestClient) -> None:
    where = f"arm=control&task={TASK}&id={UNIT}"
    shot = client.get(f"/runs/1/artifact?{where}&name={quote(f'shot {HOSTILE[1]}')}")
    assert shot.headers["content-type"] == "image/png"
    page = client.get(f"/runs/1/artifact?{where}&name=page")
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"] == "attachment"
    assert "sandbox" in page.headers["content-security-policy"]
    assert client.get(f"/runs/1/artifact?{where}&name=curve").content[:6] == b"\x93NUMPY"


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "html", "yaml", "json"])
def test_downloads(client: TestClient, kind: str, tmp_path) -> None:
    answer = client.get(f"/runs/1/download/{kind}")
    assert answer.status_code == 200
    name = answer.headers["content-disposition"]
    assert re.fullmatch(rf'attachment; filename="[\w.-]+-1\.{kind}"', name)
    if kind in ("parquet", "jsonl", "csv"):
        import polars as pl

        file = tmp_path / f"x.{kind}"
        file.write_bytes(answer.content)
        read = {"parquet": pl.read_parquet, "jsonl": pl.read_ndjson, "csv": pl.read_csv}[kind]
        assert len(read(file)) == 120
