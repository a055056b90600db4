"""Untrusted text made readable, and two answers side by side."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core import UsageError
from equipoise.report._diff import marked
from equipoise.report._text import as_text, clip, one_line, visible, write_file

ANY = st.text(st.characters(), max_size=60)


@given(ANY)
def test_visible_text_is_encodable_and_hides_nothing(text):
    shown = visible(text)
    shown.encode()
    bad = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
    assert not bad.search(shown)
    assert visible(shown) == shown


def test_ordinary_text_of_any_language_stays_as_it_is():
    text = "Grüße, 日本語\u3000テ, صباح, नमस्ते क्‍ष, 👩‍🔬 ❤️, a\tb\nc, non\u00a0breaking"
    assert visible(text) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("a", "a"),
        ({"q": "a"}, "a"),
        ({"q": "a", "n": 1}, "q: a\nn: 1"),
        ({"q": ["a"]}, '{\n "q": [\n  "a"\n ]\n}'),
        (["a", 1], "a\n1"),
        ([], "[]"),
        ([{"role": "user", "content": [{"type": "text"}]}], 'user: [\n {\n  "type": "text"\n }\n]'),
        (0, "0"),
        ({"p": 99.84939439973122}, "p: 99.8494"),
        (True, "true"),
    ],
)
def test_json_is_shown_as_people_read_it(value, text):
    assert as_text(value) == text


def test_long_text_is_cut_and_says_so():
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "abc … (1 characters more)"
    assert one_line("a\n b\n" + "c" * 500, 20) == "a b ccccccccccccccc…"


def bare(marked_up):
    return re.sub("</?(del|ins)>", "", str(marked_up))


@given(ANY, ANY)
def test_marking_adds_nothing_but_marks(a, b):
    from markupsafe import escape

    left, right = marked(a, b)
    assert bare(left) == str(escape(visible(a)))
    assert bare(right) == str(escape(visible(b)))
    assert "<ins>" not in left
    assert "<del>" not in right


def test_only_the_words_that_differ_are_marked():
    left, right = marked("So it sold 12 + 30 = 42 pears.", "So it sold 12 + 30 = 52 pears.")
    assert left == "So it sold 12 + 30 = <del>42</del> pears."
    assert right == "So it sold 12 + 30 = <ins>52</ins> pears."
    assert marked("same", "same") == ("same", "same")
    assert marked("yes", "entirely other words here") == ("yes", "entirely other words here")
    assert marked("<b>", "<i>") == ("&lt;<del>b</del>&gt;", "&lt;<ins>i</ins>&gt;")


def test_marking_huge_answers_is_quick():
    began = time.perf_counter()
    marked("a b " * 50_000, "b a c " * 50_000)
    assert time.perf_counter() - began < 5


def test_any_text_can_be_written(tmp_path, hostile_text):
    text = hostile_text
    write_file(tmp_path / "x.html", visible(text))
    assert (tmp_path / "x.html").read_bytes().decode() == visible(text)


def test_a_link_is_written_through_and_a_device_is_left_a_device(tmp_path):
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    write_file(tmp_path / "link.html", "new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"
    from pathlib import Path

    write_file(Path("/dev/null"), "x")
    assert not Path("/dev/null").is_file()


def test_what_failed_leaves_the_old_file_and_no_litter(tmp_path):
    place = tmp_path / "x.html"
    place.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_file(place, "\ud800")
    assert place.read_text() == "old"
    with pytest.raises(UsageError, match="cannot be written"):
        write_file(tmp_path / ("n" * 300), "x")
    assert [each.name for each in tmp_path.iterdir()] == ["x.html"]
