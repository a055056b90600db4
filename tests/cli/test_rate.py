"""`equipoise rate` as a user gives it: files, runs, methods, pictures and faults."""

import csv
import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from equipoise.cli import main

TRIAL = """\
trial: shout
question: Does shouting help?
subject: {scripted: {answers: {"a?": yes, "b?": no, "A?": yes, "B?": yes}}}
arms:
  plain: []
  other: {subject: {scripted: {constant: yes}}}
  third: {subject: {scripted: {constant: no}}}
tasks:
  ask:
    free_response:
      rows:
        - {id: one, question: a?, answer: yes}
        - {id: two, question: b?, answer: yes}
        - {id: three, question: b?, answer: no}
claims:
  - {arm: other, above: 0.2, on: ask}
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own; return exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EQUIPOISE_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def battles(tmp_path):
    generator = np.random.default_rng(0)
    strength = {"atlas": 0.6, "birch": 0.0, "<b>&cedar": -0.8}
    lines = ["model_a,model_b,winner"]
    for _ in range(300):
        a, b = generator.choice(list(strength), 2, replace=False)
        won = generator.random() < 1 / (1 + np.exp(strength[b] - strength[a]))
        lines.append(f"{a},{b},{'model_a' if won else 'model_b'}")
    (tmp_path / "battles.csv").write_text("\n".join(lines) + "\n")
    return "battles.csv"


def test_a_table_with_ranks_and_intervals(call, battles):
    code, out, err = call("rate", battles)
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["rank", "model", "rating", "95%", "interval", "games", "wins"]
    assert [row.split()[1] for row in rows[:3]] == ["atlas", "birch", "<b>&cedar"]
    assert all("●" in row for row in rows[:3])
    assert rows[3] == "300 comparisons of 3 models; 0% are ties."


def test_json_has_everything(call, battles):
    code, out, err = call("rate", battles, "--json", "--level", "0.9", "--by", "bradley_terry")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["models"], found["comparisons"]) == (3, 300)
    (table,) = found["ratings"]
    assert table["level"] == 0.9
    first = table["rows"][0]
    assert first["low"] < first["value"] < first["high"]
    assert (first["model"], first["rank_low"]) == ("atlas", 1)
    assert sum(row["games"] for row in table["rows"]) == 600


def test_several_methods_side_by_side(call, battles, monkeypatch):
    words = ("rate", battles, "--by", "bradley_terry", "--by", "elo_ratings(k=8, orders=20)", "-q")
    code, out, _ = call(*words)
    assert code == 0
    head = out.splitlines()[0]
    assert "bradley_terry" in head
    assert "elo_ratings(k=8" in head
    monkeypatch.setenv("COLUMNS", "80")
    _, narrow, _ = call(*words, "--by", "bradley_terry(prior=1)")
    assert narrow.count("95% interval") == 3
    monkeypatch.setenv("COLUMNS", "100")
    assert call(*words)[1] == out


def test_an_anchor_moves_all(call, battles):
    plain = json.loads(call("rate", battles, "--json")[1])["ratings"][0]["rows"]
    moved = json.loads(call("rate", battles, "--json", "--anchor", "birch=1000")[1])
    rows = moved["ratings"][0]["rows"]
    assert next(r["value"] for r in rows if r["model"] == "birch") == pytest.approx(1000)
    shifts = [b["value"] - a["value"] for a, b in zip(plain, rows, strict=True)]
    ends = [b["low"] - a["low"] for a, b in zip(plain, rows, strict=True)]
    assert np.ptp(shifts + ends) < 1e-9
    assert moved["ratings"][0]["anchor"] == {"birch": 1000}


def test_top_leaves_out_the_rest(call, battles):
    _, out, _ = call("rate", battles, "--top", "1", "--plot", "one.svg")
    assert "birch" not in out
    assert "and 2 more" in out
    assert "birch" not in Path("one.svg").read_text()


def test_files_to_keep(call, battles):
    code, out, _ = call("rate", battles, "--csv", "r.csv", "--plot", "r.svg")
    assert code == 0
    assert "Written: r.csv" in out
    with open("r.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["atlas", "birch", "<b>&cedar"]
    picture = Xml.parse("r.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{space}circle")) == 3
    said = [each.text for each in picture.findall(f"{space}text")]
    assert "<b>&cedar" in said
    assert "Ratings of battles.csv" in said
    call("rate", battles, "--plot", "r.html")
    page = Path("r.html").read_text()
    assert "&lt;b&gt;&amp;cedar" in page
    assert "<b>&" not in page


def test_a_png(call, battles):
    pytest.importorskip("vl_convert")
    assert call("rate", battles, "--plot", "r.png")[0] == 0
    assert Path("r.png").read_bytes().startswith(b"\x89PNG")


def test_the_arms_of_a_run(call):
    Path("t.yaml").write_text(TRIAL)
    call("run", "t.yaml", "-q")
    code, out, err = call("rate", "shout", "--by", "bradley_terry(prior=1)", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["models"], found["comparisons"], found["prompts"]) == (3, 9, 3)
    rates = {row["model"]: row["win_rate"] for row in found["ratings"][0]["rows"]}
    assert rates == pytest.approx({"plain": 7 / 12, "other": 7 / 12, "third": 1 / 3})
    assert json.loads(call("rate", "1", "--task", "ask", "--by", "bradley_terry(prior=1)",
                           "--json")[1])["ratings"] == found["ratings"]  # fmt: skip
    assert 'no task "task"' in call("rate", "last", "--task", "task")[2]


def test_scores_of_which_the_lower_is_better(call):
    Path("loss.csv").write_text("model,p1,p2,p3\nx,1,2,3\ny,2,3,1\n")
    best = [json.loads(call("rate", "loss.csv", "--json", *more)[1]) for more in ((), ("--lower",))]
    assert [each["ratings"][0]["rows"][0]["model"] for each in best] == ["y", "x"]


def test_help_teaches(call):
    out = call("rate", "--help")[1]
    assert "Example: equipoise rate battles.csv" in out
    assert "model_a, model_b and winner" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("none.csv",), "no such file"),
        (("nothing",), "No store at"),
        (("battles.csv", "--by", "bradley_tery"), "Nearest: bradley_terry"),
        (("battles.csv", "--by", "mean"), "--by mean: that measure does not rate models"),
        (("battles.csv", "--by", "elo_ratings(k=-1)"), "k must be"),
        (("battles.csv", "--level", "1.5"), "--level must be"),
        (("battles.csv", "--anchor", "birch"), "--anchor must be MODEL=POINTS"),
        (("battles.csv", "--anchor", "brich=0"), 'no model "brich". Nearest: birch.'),
        (("battles.csv", "--plot", "r.gif"), "must end in .svg, .png, .html"),
        (("battles.csv", "--plot", "nowhere/at/all/r.png"), "cannot be written"),
        (("battles.csv", "--csv", "nowhere/r.csv"), "nowhere/r.csv cannot be written"),
        (("battles.csv", "--task", "x"), "--task is for runs"),
        (("battles.csv", "--lower"), "says who won"),
        (("1", "--lower"), "--lower is for files"),
    ],
)
def test_faults_are_a_sentence(call, battles, words, sentence):
    code, out, err = call("rate", *words, "-q")
    assert code == 2
    assert sentence in err
    assert out == ""


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("x,y,x\nx,z,x\ny,z,z\nz,y,y\n", "x lost to none of the others and y, z won against none"),
        ("x,y,x\ny,x,y\nu,v,u\nv,u,v\n", "2 groups that never met: {u, v}; {x, y}"),
    ],
)
def test_what_has_no_rating_says_why_and_what_a_prior_does(call, rows, sentence):
    Path("m.csv").write_text("model_a,model_b,winner\n" + rows)
    code, _, err = call("rate", "m.csv")
    assert code == 2
    assert sentence in err
    assert "prior" in err
    assert call("rate", "m.csv", "--by", "bradley_terry(prior=1)")[0] == 0


def test_circles_and_ties_are_rated_even(call):
    for rows in ("x,y,x\ny,z,y\nz,x,z\n" * 20, "x,y,tie\ny,z,tie\n" * 20):
        Path("m.csv").write_text("model_a,model_b,winner\n" + rows)
        code, out, _ = call("rate", "m.csv", "--json")
        assert code == 0
        (table,) = json.loads(out)["ratings"]
        assert [row["value"] for row in table["rows"]] == pytest.approx([1000] * 3)
        assert [(row["rank_low"], row["rank_high"]) for row in table["rows"]] == [(1, 3)] * 3
        assert ("circles" in table["note"]) == ("tie" not in rows)


def test_a_high_level_is_not_rounded_to_all(call, battles):
    code, out, _ = call("rate", battles, "--level", "0.999", "--plot", "ratings.svg")
    assert code == 0
    assert "99.9% interval" in out.splitlines()[0]
    assert "Lines are 99.9% intervals." in Path("ratings.svg").read_text(encoding="utf-8")
