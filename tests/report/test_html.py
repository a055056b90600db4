"""The HTML page: whole, safe, offline, and true to the result."""

import base64
import hashlib
import json
import re
import subprocess
import sys

import pytest

from equipoise.core import UsageError
from equipoise.kit.worlds.coins import Tosses
from equipoise.report import html, words
from equipoise.store import Store
from equipoise.trial.trial import Claim

TAGS = {
    "html", "head", "meta", "title", "link", "style", "body", "a", "header", "p", "span", "bdi",
    "h1", "h2", "h3", "h4", "dl", "div", "dt", "dd", "nav", "ul", "li", "main", "section",
    "article", "aside", "strong", "b", "figure", "figcaption", "svg", "line", "rect", "circle",
    "text", "path", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code",
    "pre", "del", "ins", "footer",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "rel", "href", "class", "id",
    "aria-label", "aria-labelledby", "aria-hidden", "role", "title", "dir", "tabindex", "scope",
    "open", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d",
    "viewbox", "preserveaspectratio", "text-anchor",
}  # fmt: skip
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe"
    "\ud800-\udfff]"
)


def page_of(case, tmp_path):
    path = tmp_path / "page.html"
    html.write(case.row, case.store, path)
    text = path.read_text(encoding="utf-8")
    return text, case.parse(text)


def check_safe(text, page):
    assert {tag for tag, _ in page.tags} <= TAGS
    assert {name for _, attrs in page.tags for name in attrs} <= ATTRIBUTES
    links = [attrs["href"] for _, attrs in page.tags if "href" in attrs]
    assert all(link == "data:," or link.startswith("#") for link in links)
    assert {link[1:] for link in links if link.startswith("#")} <= set(page.ids())
    assert len(page.ids()) == len(set(page.ids()))
    assert not HIDDEN.search(text)
    assert page.count("style") == 1
    style = re.search("<style>(.*?)</style>", text, re.S).group(1)
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    # A policy binds only what comes after it.
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_the_page_says_verdicts_first_then_everything_else(case, tmp_path, coins):
    found = case(coins())
    text, page = page_of(found, tmp_path)
    check_safe(text, page)
    order = ["verdicts", "effects", "estimates", "distributions", "units", "errors", "costs",
             "trial", "provenance", "reading"]  # fmt: skip
    sections = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert sections == order
    assert page.count("article", "claim") == 6
    assert words.headline(found.row) in page.text
    for claim in found.row["claims"]:
        assert claim["claim"] in page.text
        assert words.evidence(claim) in page.text
        assert words.plainly(claim)[:60] in page.text
    for each in (*found.row["estimates"], *found.row["effects"]):
        assert f"{words.number(each['value'])} " in page.text
        assert words.interval(each) in page.text
    assert "Is it fair?" in page.text
    assert "equipoise run trial.yaml" in page.text


def test_arms_off_the_control_by_more_than_their_interval_are_signed(case, tmp_path, coins):
    found = case(coins(arms={"fair": 0.5, "loaded": 0.8, "same": 0.5, "worn": 0.1}, claims=[]))
    _, page = page_of(found, tmp_path)
    signs = [(attrs["aria-label"]) for tag, attrs in page.tags if attrs.get("class") == "sign"
             and attrs["aria-label"].endswith("control")]  # fmt: skip
    assert signs == ["better than control", "worse than control"]
    tones = {each["arm"]: (each["low"] > 0) - (each["high"] < 0) for each in found.row["effects"]}
    assert tones == {"loaded": 1, "same": 0, "worn": -1}
    assert re.search("loaded 0.* ▲", page.text)
    assert page.count("svg", "interval good") == page.count("svg", "interval bad") == 1


def test_hostile_text_stays_text(case, tmp_path, hostile):
    text, page = page_of(case(hostile()), tmp_path)
    check_safe(text, page)
    for shown in ("<script>alert(1)</script>", "{{ 7 * 7 }} {% raw %}", "bell ␇ nul ␀ escape ␛[31m",
                  "half ⟨U+D800⟩ of", "right ⟨U+202E⟩ to left", "zero⟨U+200B⟩width",
                  "&lt;b&gt; &amp; &#60;script&#62;", "صباح الخير 日本語 👩‍🔬"):  # fmt: skip
        assert shown in page.text, shown


def test_every_place_that_takes_text_takes_any(case, tmp_path, coins, hostile_text):
    text = hostile_text
    found = case(coins(tasks={"toss": Tosses(40, fails=0.1)}))
    row = json.loads(json.dumps(found.row))

    def poison(value):
        """Replace every text that the page prints, keys that mean something kept."""
        if isinstance(value, dict):
            return {
                key: each if key in ("verdict", "relation", "status") else poison(each)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [poison(each) for each in value]
        return text if isinstance(value, str) else value

    check_safe(*page_of(found._replace(row=poison(row) | {"arms": {text: text}}), tmp_path))


def test_long_text_is_cut(case, tmp_path, hostile):
    text, page = page_of(case(hostile()), tmp_path)
    assert "characters more)" in page.text
    assert "x" * 1_600 not in text
    assert len(text) < 400_000


def test_the_page_loads_neither_altair_nor_a_renderer_and_importing_it_no_jinja(tmp_path):
    code = (
        "import sys, equipoise.report.html, equipoise.report.junit, equipoise.report.markdown\n"
        "import equipoise.report.theme\n"
        "assert not {'jinja2', 'altair', 'scipy', 'polars'} & set(sys.modules)\n"
        "import equipoise.report._page, equipoise.report._units\n"
        "assert not {'altair', 'vl_convert', 'torch', 'polars'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_early_stopping_draws_the_sequence_and_warns_of_fixed_intervals(case, tmp_path, coins):
    claims = [Claim("loaded", "beats", "fair", "toss"), Claim("loaded", "above", 0.6, "toss")]
    trial = coins(claims=claims, stop="early", tasks={"toss": Tosses(2000)})
    found = case(trial)
    assert found.row["status"] == "early"
    text, page = page_of(found, tmp_path)
    check_safe(text, page)
    assert page.count("svg", "sequence") == 2
    assert "ended early" in page.text
    assert "Only the verdicts allow for that" in page.text


def test_strata_have_a_table_of_their_own(case, tmp_path, coins):
    found = case(coins())
    extra = [
        {"arm": arm, "task": "toss", "name": f"accuracy_by_stratum {key}", "value": 0.25,
         "low": 0.125, "high": 0.375, "level": 0.95, "n": 9}
        for arm in ("fair", "loaded") for key in ("easy one", "hard one")
    ]  # fmt: skip
    row = found.row | {"estimates": [*found.row["estimates"], *extra]}
    _, page = page_of(found._replace(row=row), tmp_path)
    assert "toss accuracy_by_stratum" in page.text
    assert "Groupfairloaded easy one0.250 [0.125, 0.375]0.250" in page.text.replace(" ↑", "")


def test_disagreements_count_better_and_worse_from_the_arm_in_question(case, tmp_path, coins):
    # Coins share no luck, so count with the store's own rows.
    found = case(coins(claims=[Claim("loaded", "beats", "fair", "toss", score="loss")],
                       tasks={"toss": Tosses(120)}))  # fmt: skip
    rows = {(r["arm"], r["unit"]): r["scores"]["loss"] for r in found.store.rows(1, limit=None)}
    gaps = [rows["fair", f"toss-{i}"] - rows["loaded", f"toss-{i}"] for i in range(120)]
    better = sum(gap > 0 for gap in gaps)  # a lower loss is better
    _, page = page_of(found, tmp_path)
    assert f"loaded did better on {better} units, worse on {120 - better}, the same on 0." in (
        page.text
    )
    assert page.count("details", "unit") == 10
    widest = max(range(120), key=lambda i: abs(gaps[i]))
    assert f"toss-{widest} toss: {widest}" in page.text
    assert page.count("span", "change good") == sum(
        gaps[i] > 0 for i in sorted(range(120), key=lambda i: -abs(gaps[i]))[:10]
    )


def test_units_beyond_the_run_are_not_shown(case, tmp_path, coins):
    from equipoise.trial.engine import run

    found = case(coins(tasks={"toss": Tosses(400)}))
    small = run(coins(tasks={"toss": Tosses(400)}, units=12), store=found.store)
    _, page = page_of(found._replace(row=small.as_json()), tmp_path)
    shown = {int(n) for n in re.findall(r"toss-(\d+)", page.text)}
    assert shown
    assert max(shown) < 12


def test_arms_are_set_against_the_control_when_no_claim_names_a_pair(case, tmp_path, coins):
    _, page = page_of(case(coins(claims=[])), tmp_path)
    assert "loaded against fair" in page.text
    assert "worn against fair" in page.text
    assert "No claims were stated beforehand" in page.text
    assert page.count("article") == 0


def test_one_arm_has_no_effects_and_no_disagreements(case, tmp_path, coins):
    found = case(coins(arms={"only": 0.5}, claims=[Claim("only", "above", 0.4, "toss")]))
    text, page = page_of(found, tmp_path)
    check_safe(text, page)
    assert not {"effects", "units"} & set(page.ids())


def test_a_trial_that_only_failed_has_a_page(case, tmp_path, coins):
    claims = [
        Claim("loaded", "beats", "fair", "toss"),
        Claim("loaded", "beats", "fair", "toss", score="loss"),
    ]
    found = case(coins(claims=claims, tasks={"toss": Tosses(30, fails=1.0)}))
    text, page = page_of(found, tmp_path)
    check_safe(text, page)
    assert "90 of 90 outcomes failed" in page.text
    assert "There is no estimate, and so no verdict." in page.text
    assert page.text.count("The coin fell off the table.") == 3


def test_errors_beyond_what_is_read_are_said_to_be_a_part(case, tmp_path, monkeypatch, coins):
    from equipoise.report import _units

    monkeypatch.setattr(_units, "ERRORS_READ", 5)
    found = case(coins(arms={"only": 0.5}, claims=[], tasks={"toss": Tosses(50, fails=1.0)}))
    _, page = page_of(found, tmp_path)
    assert "5 of the first 5 of 50" in page.text


@pytest.mark.parametrize(
    "change",
    [
        {"claims": []},
        {"effects": []},
        {"estimates": []},
        {"costs": []},
        {"arms": {}, "tasks": {}},
        {"provenance": {}},
        {"run": None},
        {"run": 99},
        {"claims": [], "effects": [], "estimates": [], "costs": [], "arms": {}, "tasks": {}},
        {"notices": ["Weights were 4-bit when shipped."], "differs": "SmolLM2 in place of LLaMA."},
        {"paper": "rrs"},
        {"status": "budget", "reused": 1000},
    ],
    ids=str,
)
def test_missing_pieces_leave_a_page(case, tmp_path, change, coins):
    found = case(coins(tasks={"toss": Tosses(40)}))
    row = {k: v for k, v in (found.row | change).items() if v is not None}
    text, page = page_of(found._replace(row=row), tmp_path)
    check_safe(text, page)
    for said in (*change.get("notices", ()), change.get("differs", "")):
        assert said in page.text


@pytest.mark.parametrize("ends", [(None, None), (None, 0.2), (-0.2, None), (0.1, 0.1)])
@pytest.mark.parametrize("value", [None, 0.0, 1e-9, 0.1, 123456.0, -0.1])
def test_intervals_with_missing_or_endless_ends_are_drawn(case, tmp_path, ends, value, coins):
    found = case(coins(tasks={"toss": Tosses(40)}))
    row = json.loads(json.dumps(found.row))
    for each in (*row["claims"], *row["estimates"], *row["effects"]):
        each["low"], each["high"] = ends
        each["estimate" if "estimate" in each else "value"] = value
    text, page = page_of(found._replace(row=row), tmp_path)
    check_safe(text, page)
    numbers = [
        str(v) for _, attrs in page.tags for k, v in attrs.items() if k in ("x1", "x2", "cx")
    ]
    assert numbers
    assert all(0 <= float(each.rstrip("%")) <= 100 for each in numbers)


def test_many_cells_make_a_page_of_fair_size(case, tmp_path, coins):
    arms = {f"arm-{i}": 0.4 + i / 50 for i in range(10)}
    tasks = {f"task-{i}": Tosses(40 + i) for i in range(5)}
    text, page = page_of(case(coins(arms=arms, tasks=tasks, claims=[])), tmp_path)
    check_safe(text, page)
    assert len(text) < 1_500_000
    assert "5 more pairs of arms are not shown" in page.text


def test_a_replication_is_called_so(case, tmp_path, coins):
    found = case(coins(claims=[Claim("loaded", "beats", "fair", "toss")]))
    _, page = page_of(found._replace(row=found.row | {"paper": "rrs"}), tmp_path)
    assert "Replication of rrs: replicated." in page.text


def test_a_place_that_cannot_be_written_is_one_sentence(case, tmp_path, coins):
    found = case(coins(tasks={"toss": Tosses(10)}))
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "file" / "page.html", tmp_path / "folder"):
        with pytest.raises(UsageError, match=r"cannot be written: .*; give a path elsewhere"):
            html.write(found.row, found.store, place)
    assert sorted(p.name for p in tmp_path.iterdir() if "sqlite" not in p.name) == [
        "file",
        "folder",
    ]


def test_folders_are_made_and_an_older_page_is_replaced(case, tmp_path, coins):
    found = case(coins(tasks={"toss": Tosses(10)}))
    place = tmp_path / "new" / "folder" / "page.html"
    for _ in range(2):
        html.write(found.row, found.store, place)
    assert [each.name for each in place.parent.iterdir()] == ["page.html"]


def test_a_page_is_the_same_twice_and_from_a_store_opened_for_reading(case, tmp_path, coins):
    found = case(coins())
    first = html.render(found.row, found.store)
    with Store.open(found.store.place, readonly=True) as again:
        assert html.render(again.run()["result"], again) == first


def test_a_note_that_the_reason_says_already_is_not_repeated():
    from equipoise.report._page import _note

    few = "Only 2 units (fewer than 30): read with care."
    assert _note({"note": few, "reason": "only 2 units"}) == ""
    assert _note({"note": few}) == few
    assert _note({"note": "other", "reason": "only 2 units"}) == "other"
    assert _note({}) == ""
