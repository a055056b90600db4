"""What models and tools said, laid out; nothing of it becomes markup, nothing is endless."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from equipoise.store._blobs import Large
from equipoise.viewer import sayings
from equipoise.viewer.sayings import conversation, exhibits, picture_type, rich, shaded


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def read(markup: str) -> _Text:
    found = _Text()
    found.feed(str(markup))
    return found


@pytest.mark.parametrize(
    ("text", "blocks", "shown"),
    [
        ("plain <b>text</b>", 0, "plain <b>text</b>"),
        ("a\n```python\nx < 1\n```\nb", 1, "a\nx < 1\n\nb"),
        ("```\none\n```\n```js extra\ntwo\n```", 2, "one\ntwo\n"),
        ("```\nnever closed <i>", 1, "never closed <i>"),
        ("a ``` b ``` c", 0, "a ``` b ``` c"),
        ('```"><script>\nx\n```', 1, "x\n"),
        ("", 0, ""),
    ],
)
def test_code_between_fences(text: str, blocks: int, shown: str) -> None:
    found = read(rich(text))
    assert found.tags.count("pre") == blocks
    assert found.text.replace("\n", "") == shown.replace("\n", "")
    assert set(found.tags) <= {"span", "pre", "code"}


def test_long_text_is_cut_and_says_so() -> None:
    found = read(rich("x" * 70_000))
    assert found.text.count("x") == sayings.MOST
    assert "10,000 characters more" in found.text
    assert "60 characters more" in rich("x" * 100, 40)


@pytest.mark.parametrize(
    "message",
    [
        None, 5, "text", [], {}, {"role": None}, {"content": 7}, {"content": [None, 1, {"a": 1}]},
        {"role": "assistant", "tool_calls": 5}, {"tool_calls": [None, 1, "x", {}, {"function": 3}]},
        {"tool_calls": [{"function": {"name": None, "arguments": {"a": [1]}}}]},
        {"tool_calls": [{"name": "f", "arguments": "{not json"}]},
        {"content": [{"type": "image_url"}, {"type": "image_url", "image_url": 5}]},
        {"logprobs": 5}, {"logprobs": {"content": 5}}, {"logprobs": {"content": [None, {}]}},
        {"content": {"deep": {"er": [1, 2]}}},
    ],
)  # fmt: skip
def test_a_message_may_be_anything(message: Any) -> None:
    (turn,) = conversation([message])
    assert isinstance(turn["role"], str)
    assert isinstance(turn["said"], str)


def test_calls_of_tools() -> None:
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": [
        {"function": {"name": "find", "arguments": '{"q": "<b>"}'}},
        {"name": "raw", "arguments": "not json"},
        {"function": {"name": "given", "arguments": {"n": 1}}}]}  # fmt: skip
    (turn,) = conversation([message])
    assert [each["name"] for each in turn["calls"]] == ["find", "raw", "given"]
    assert turn["calls"][0]["given"] == '{\n "q": "<b>"\n}'
    assert turn["calls"][1]["given"] == "not json"
    assert turn["calls"][2]["given"] == '{\n "n": 1\n}'


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", True),
        ("data:image/svg+xml;base64,PHN2Zz4=", False),
        ("data:image/png;base64,x\"onerror='y'", False),
        ("data:image/png,abc", False),
        ("https://example.org/x.png", False),
        ("javascript:alert(1)", False),
        ("data:image/png;base64," + "A" * 3_000_000, False),
    ],
)
def test_pictures_are_those_that_came_along(address: str, shown: bool) -> None:
    part = {"type": "image_url", "image_url": {"url": address}}
    (turn,) = conversation([{"role": "user", "content": [part, {"type": "text", "text": "see"}]}])
    assert turn["pictures"] == ([address] if shown else [])
    assert ("[picture" in turn["said"]) is not shown
    assert len(turn["said"]) < 1_000


def test_a_long_conversation_ends_with_a_count() -> None:
    turns = conversation([{"role": "user", "content": "x" * 1_000}] * 50, room=10_000)
    assert len(turns) < 15
    left = 50 - (len(turns) - 1)
    assert f"{left} more messages are in the store" in turns[-1]["said"]
    assert len(conversation([{"role": "user", "content": "x"}] * 50, room=10_000)) == 50


@pytest.mark.parametrize("log_prob", [0.0, -0.05, -0.1, -0.5, -1.0, -2.0, -4.0, -9.0, -math.inf])
def test_tokens_are_shaded_by_what_was_to_be_expected(log_prob: float) -> None:
    text = shaded({"logprobs": {"content": [{"token": "<i>", "logprob": log_prob}]}})
    assert text is not None
    depth = sum(-log_prob > edge for edge in (0.1, 0.7, 1.6, 3.0, 5.0))
    assert f'class="p{depth}"' in text
    assert f'title="{math.exp(log_prob):.1%}' in text
    assert read(text).text == "<i>"


def test_tokens_left_out_are_counted() -> None:
    tokens = [{"token": "a", "logprob": -1}] * (sayings.TOKENS + 7)
    text = shaded({"logprobs": {"content": tokens}})
    assert text is not None
    assert text.count("<span") == sayings.TOKENS
    assert "7 tokens more" in text


def test_artifacts() -> None:
    things = {
        "picture": b"\x89PNG\r\n\x1a\nrest",
        "fake": b"<svg onload=alert(1)>",
        "text": "é".encode() * 200_000,
        "noise": b"\xff\xfe\x00",
        "curve": np.array([0.0, 1.0, np.nan, np.inf, 2.0]),
        "matrix": np.eye(3),
        "names": np.array(["a", "b"]),
        "none": np.empty(0),
        "large": Large(b"GIF89a", 5_000_000),
        "larger": Large(b"zzz", 5_000_001),
    }
    found = {each.name: each for each in exhibits(things)}
    assert found["picture"].picture == "image/png"
    assert found["fake"].picture == ""
    assert found["fake"].text == "<svg onload=alert(1)>"
    assert found["text"].text.startswith("ééé")  # also where the cut goes through a letter
    assert len(found["text"].text) < 5_000
    assert found["noise"].text == ""
    assert found["noise"].about == "3 bytes"
    assert found["curve"].chart is not None
    assert "nan" not in found["curve"].chart.lower()
    assert found["matrix"].about == "float64, shape 3×3"
    assert "a" in found["names"].text
    assert found["none"].chart is None
    assert found["large"].picture == "image/gif"
    assert found["larger"].picture == ""
    assert picture_type(b"RIFF\x1a\0\0\0WEBPVP8 ") == "image/webp"
    assert "5,000,001 bytes" in found["larger"].about


@pytest.mark.parametrize(
    "data", [b"", b"<svg>", b"%PDF-1.4", b"BM", b"\x00" * 20, b"RIF", b"RIFF\0\0\0\0WAVEfmt "]
)
def test_what_is_no_safe_picture(data: bytes) -> None:
    assert picture_type(data) is None
