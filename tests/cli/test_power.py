"""`equipoise power` as a user gives it."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from equipoise.cli import main
from equipoise.kit.statistics import PairedDesign, discordance

TRIAL = """\
trial: plan
subject: {scripted: {constant: yes}}
arms:
  plain: []
  other: {subject: {scripted: {answers: {"1?": yes, "2?": no, "3?": yes}}}}
tasks:
  ask:
    free_response:
      rows: [%s]
claims:
  - {arm: other, no_worse_than: plain, on: ask, within: 0.1}
  - {arm: plain, above: 0.5, on: ask}
""" % ", ".join(f'{{id: u{i}, question: "{i % 3 + 1}?", answer: yes}}' for i in range(60))  # noqa: UP031


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EQUIPOISE_STORE", raising=False)

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(list(map(str, words)))
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return run


def outcomes(name="pilot.csv", n=80, arms=("base", "<b>tuned")):
    rng = np.random.default_rng(0)
    lines = ["arm,unit,correct,seconds"]
    for arm in arms:
        lines += [f"{arm},u{i},{rng.integers(0, 2)},0.5" for i in range(n)]
    Path(name).write_text("\n".join(lines) + "\n")
    return name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sd", "1", "--effect", "nan"), "--effect must be a finite number, got nan."),
        (("--sd", "inf", "--effect", "1"), "--sd must be a finite number, got inf."),
        (("--sd", "1", "--effect", "1", "--arm", "b"), "--arm would not count here"),
        (("--sd", "1", "--effect", "1", "--icc", "0.1"), "--icc needs --cluster-size"),
        (("pilot.csv", "--icc", "0.1"), "a pilot shows its own"),
        (("trial.yaml", "--level", "0.9"), "--level would not count here: the trial file says it."),
    ],
)
def test_options_that_would_not_count_are_refused(call, words, said):
    code, _, err = call("power", *words)
    assert (code, said in err) == (2, True)


def test_from_rates(call):
    code, out, _ = call("power", "--rate", "0.7", "--effect", "0.03", "--json")
    (row,) = json.loads(out)["claims"]
    wanted = PairedDesign(discordant=discordance(0.7, 0.03, 0.5)).units(0.03)
    assert (code, row["needs"][0]["units"]) == (0, wanted)
    _, out, _ = call("power", "--rate", "0.7", "--effect", "0.03")
    assert f"for power 0.8: {wanted:,} units" in out
    assert "Assumed: arms right 0.7 and 0.73" in " ".join(out.split())
    _, out, _ = call("power", "--sd", "1", "--effect", "0.3", "--json")
    assert json.loads(out)["claims"][0]["needs"][0]["units"] == 90
    words = ("--sd", "1", "--effect", "0.3", "--cluster-size", "5", "--icc", "0.25")
    _, out, _ = call("power", *words, "--json")
    need = json.loads(out)["claims"][0]["needs"][0]
    assert need["units"] == PairedDesign(sd=2**0.5, clusters_per_unit=0.2).units(0.3)
    assert need["clusters"] == -(-need["units"] // 5)


def test_from_a_pilot_with_a_picture(call):
    outcomes()
    code, out, _ = call(
        "power", "pilot.csv", "--effect", "0.1", "--plot", "p.svg", "--units", "300"
    )
    assert code == 0
    assert "<b>tuned beats base on imported" in out
    assert "the planned 300 units have power" in out
    assert "for the arms together" in " ".join(out.split())
    assert "▁" in out
    picture = ElementTree.fromstring(Path("p.svg").read_text())
    said = "".join(picture.itertext())
    assert "<b>tuned beats base" in said
    assert "power" in said


def test_from_a_trial_file_and_its_store_or_a_pilot(call):
    Path("t.yaml").write_text(TRIAL)
    code, _, err = call("power", "t.yaml")
    assert code == 2
    assert "`equipoise run t.yaml --units 30` makes a pilot" in err
    call("run", "t.yaml", "--units", "30", "--quiet")
    code, out, _ = call("power", "t.yaml", "--json")
    first, second = json.loads(out)["claims"]
    assert code == 0
    assert (first["pilot"]["units"], first["planned"]["units"]) == (30, 60)
    assert first["pilot"]["discordant"] == pytest.approx(1 / 3)
    assert first["level"] == pytest.approx(0.975)
    assert second["relation"] == "above"
    outcomes(arms=("plain", "other"))
    _, out, _ = call("power", "t.yaml", "--pilot", "pilot.csv", "--json")
    first, _ = json.loads(out)["claims"]
    assert first["notes"] == ["the pilot has no outcomes of other on ask"]
    _, out, _ = call("power", "1", "--claim", "no_worse_than", "--margin", "0.1", "--json")
    assert json.loads(out)["claims"][0]["pilot"]["units"] == 30


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Name a trial file or a pilot, or say --rate"),
        (("--rate", "0.7"), "the effect must be given"),
        (("--rate", "0.7", "--sd", "1"), "say --rate (of passes) or --sd"),
        (("--rate", "0.7", "--effect", "0.5"), "rates must be between 0 and 1"),
        (("--rate", "0.7", "--effect", "0.1", "--correlation", "1"), "correlation must be from"),
        (("pilot.csv", "--rate", "0.7"), "not from both"),
        (("pilot.csv", "--claim", "matches"), "needs a margin"),
        (("pilot.csv", "--arm", "tunde"), 'No arm "tunde" beside base'),
        (("pilot.csv", "--pilot", "x.csv"), "--pilot goes with a trial file"),
        (("one.csv",), "has one arm; a plan needs a pilot of two"),
        (("pilot.csv", "--plot", "p.png"), "must end in .svg"),
        (("pilot.csv", "--level", "2"), "--level must be"),
    ],
)
def test_faults_are_one_sentence(call, words, sentence):
    outcomes()
    Path("one.csv").write_text("unit,x\nu,1\nv,0\n")
    code, _, err = call("power", *words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
