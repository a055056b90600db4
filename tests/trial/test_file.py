"""Trial files: what they say, and every way they can be wrong."""

import pytest

from equipoise.core import UsageError
from equipoise.trial import TrialFileError, load, loads

GOOD = """\
trial: good
question: Does it?
subject: {scripted: {constant: yes}}
arms:
  plain: []
  warm: [{sampling: {temperature: 0.5}}]
tasks:
  ask: {free_response: {rows: [{question: a, answer: yes}, {question: b, answer: no}]}}
claims:
  - {arm: warm, beats: plain, on: ask}
"""


def mistakes(text):
    with pytest.raises(TrialFileError) as caught:
        loads(text)
    return [(each.line, each.message) for each in caught.value.mistakes]


def test_a_good_file():
    trial = loads(GOOD)
    assert list(trial.arms) == ["plain", "warm"]
    assert trial.control == "plain"
    assert str(trial.claims[0]) == "warm beats plain on ask"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("question:", "qestion:", 2, 'unknown key "qestion". Nearest: question'),
        ("arms:", "armies:", 1, 'the key "arms" is missing.'),
        ("sampling:", "samplng:", 6, 'No treatment "samplng". Nearest: sampling'),
        ("temperature:", "heat:", 6, 'sampling has no parameter "heat".'),
        ("temperature: 0.5", "temperature: hot", 6, "temperature must be"),
        ("temperature: 0.5", "temperature: -1", 6, "Sampling: temperature must be"),
        ("free_response", "sampling", 8, '"sampling" is a treatment, and a task is needed here.'),
        ("beats: plain", "beats: plane", 10, 'No arm "plane". Nearest: plain.'),
        ("on: ask", "on: asks", 10, 'No task "asks". Nearest: ask.'),
        ("beats: plain", "beats: warm", 10, "Arm warm is compared with itself."),
        ("beats: plain", "no_worse_than: plain", 10, "no_worse_than needs a margin"),
        ("beats: plain", "beats: plain, above: 3", 10, "a claim takes one of"),
        ("beats: plain", "beats: plain, within: 3", 10, "`within` goes with no_worse_than"),
        ("beats: plain", "beats: plain, score: corect", 10, "Nearest: correct"),
        ("  plain: []", "  plain: []\n  plain: []", 6, '"plain" is given twice.'),
        ("trial: good", "trial: [", 3, "YAML:"),
        ("trial: good", "trial: good\nseed: -1", 2, "seed must be greater than or equal to 0"),
        ("trial: good", "trial: good\nlevel: 2", 2, "level must be less than 1"),
        ("subject: {scripted: {constant: yes}}\n", "", 4, "Arm plain has no subject"),
    ],
)
def test_a_mistake_has_its_line_and_its_mend(old, new, line, message):
    found = mistakes(GOOD.replace(old, new, 1))
    assert any(each[0] == line and message in each[1] for each in found), found


def test_all_mistakes_come_at_once():
    text = GOOD.replace("sampling", "samplng").replace("free_response", "fre_response")
    assert [line for line, _ in mistakes(text)] == [6, 8]


def test_a_capability_that_is_missing_is_told_before_anything_runs():
    text = GOOD.replace("{free_response: {rows: [{question: a, answer: yes}", "{perplexity: {}}\n#")
    assert any("needs ScoresText, which arm plain does not have" in m for _, m in mistakes(text))


def test_a_sweep_makes_arms_and_claims():
    trial = loads(GOOD.replace("temperature: 0.5", "temperature: {each: [0.5, 1.0]}"))
    assert list(trial.arms) == ["plain", "warm temperature=0.5", "warm temperature=1.0"]
    assert [claim.arm for claim in trial.claims] == list(trial.arms)[1:]


def test_quick_overrides_leave_out_the_part():
    text = GOOD + "quick: {arms.warm.0.temperature: 0.25, seed: 4}\n"
    assert loads(text).seed == 0
    quick = loads(text, quick=True)
    assert quick.seed == 4
    assert quick.arms["warm"].treatments[0].temperature == 0.25


def test_an_override_that_leads_nowhere_is_a_mistake():
    with pytest.raises(TrialFileError, match='no "tusks" on the way'):
        loads(GOOD + "quick: {tusks.ask.limit: 1}\n", quick=True)


def test_on_is_a_key_and_not_a_truth():
    assert loads(GOOD).claims[0].on == "ask"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="No file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("trial: caf\xe9".encode("latin-1"))
    with pytest.raises(UsageError, match="not UTF-8 text, byte 10"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(TrialFileError, match="a trial file is a mapping"):
        load(tmp_path / "empty.yaml")
    (tmp_path / "good.yaml").write_text(GOOD)
    with pytest.raises(UsageError, match=r"Nearest: good.yaml"):
        load(tmp_path / "goood.yaml")
