"""Commands as a user gives them: exit codes, JSON, sentences, pages."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from equipoise.cli import main
from equipoise.core import UsageError
from equipoise.store import Store, is_there

TRIAL = """\
trial: {name}
question: Does shouting help?
subject: {{scripted: {{answers: {{"a?": yes, "b?": no, "A?": yes, "B?": yes}}}}}}
arms:
  plain: []
  other: {{subject: {{scripted: {{constant: yes}}}}}}
tasks:
  ask:
    free_response:
      rows:
        - {{id: one, question: a?, answer: yes}}
        - {{id: two, question: b?, answer: yes}}
claims:
  - {{arm: other, {claim}, on: ask}}
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own; return exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EQUIPOISE_STORE", raising=False)

    def run(*words):
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return run


def write(claim="above: 0.2", name="shout"):
    Path("t.yaml").write_text(TRIAL.format(claim=claim, name=name))
    return "t.yaml"


@pytest.mark.parametrize(
    ("claim", "code", "verdict"),
    [
        ("above: 0.2", 0, "supported"),
        ("below: 0.2", 1, "refuted"),
        ("beats: plain", 3, "inconclusive"),
    ],
)
def test_the_exit_code_is_the_verdict(call, claim, code, verdict):
    found, out, _ = call("run", write(claim), "--json")
    row = json.loads(out)
    assert (found, row["claims"][0]["verdict"]) == (code, verdict)
    assert {"trial", "units", "errors", "seconds", "claims", "estimates"} <= set(row)
    wanted = {"claim", "verdict", "estimate", "low", "high", "level", "n"}
    assert wanted <= set(row["claims"][0])


def test_a_run_prints_its_verdict_and_writes_a_page(call):
    code, out, _ = call("run", write(), "--junit", "out/j.xml", "--markdown", "out/m.md")
    assert code == 0
    assert "✓ SUPPORTED" in out
    assert all(len(line) <= 80 for line in out.splitlines() if "Report:" not in line)
    assert list(Path(".equipoise/reports").glob("shout-*.html"))
    assert Path("out/j.xml").exists()
    assert "supported" in Path("out/m.md").read_text().lower()


def test_wrong_use_is_exit_2_and_one_sentence(call):
    for words in (["run", "absent.yaml"], ["rn"], ["describe", "perplexty"], ["show", "last"]):
        code, out, err = call(*words)
        assert code == 2
        assert not out
        assert "Traceback" not in err
    Path("bad.yaml").write_text("trial: x\narmz: {}\n")
    code, _, err = call("run", "bad.yaml")
    assert code == 2
    assert err.startswith("bad.yaml:1:")


def test_a_bug_is_exit_4_and_keeps_its_traceback(call, monkeypatch):
    import equipoise.trial.engine

    def broken(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(equipoise.trial.engine, "run", broken)
    code, _, err = call("run", write())
    assert code == 4
    assert "ZeroDivisionError: a bug" in err


def test_plan_runs_nothing(call):
    code, out, _ = call("plan", write(), "--json")
    row = json.loads(out)
    assert code == 0
    assert (row["units"], row["todo"]) == (4, 4)
    assert not Path(".equipoise").exists()


def test_show_a_run_and_a_unit(call):
    call("run", write(), "--quiet")
    code, out, _ = call("show", "last")
    assert code == 0
    assert "other is above 0.2 on ask" in out
    _, out, _ = call("show")
    assert "shout" in out
    code, out, _ = call("show", "last", "--unit", "two", "--json")
    assert [(row["arm"], row["output"]) for row in json.loads(out)] == [
        ("plain", "no"),
        ("other", "yes"),
    ]
    code, _, err = call("show", "last", "--unit", "three")
    assert code == 2
    assert 'has no unit "three"' in err


def test_what_a_terminal_would_obey_is_not_printed(call):
    text = TRIAL.format(claim="above: 0.2", name="shout")
    Path("t.yaml").write_text(text.replace("constant: yes", 'constant: "\\e]0;gotcha\\a yes"'))
    call("run", "t.yaml", "--quiet")
    _, out, _ = call("show", "last", "--unit", "one")
    assert "gotcha" in out
    assert "\x1b]" not in out
    assert "\x07" not in out


def test_compare_the_arms_of_a_run_and_two_runs(call):
    call("run", write(name="first"), "--quiet")
    code, out, _ = call("compare", "last", "--json")
    (row, *_) = json.loads(out)["comparisons"]
    assert (row["arm"], row["versus"], row["estimate" if "estimate" in row else "value"]) == (
        "other",
        "plain",
        0.5,
    )
    call("run", write(name="second"), "--quiet")
    code, out, _ = call("compare", "first", "second", "--arm", "plain", "--other", "other")
    assert code == 0
    assert "other" in out
    code, _, err = call("compare", "first", "second", "--arm", "plane")
    assert code == 2
    assert 'No arm "plane"' in err


def test_report_again(call):
    call("run", write(), "--quiet")
    for name in ("r.html", "r.md", "r.xml"):
        assert call("report", "last", "-o", name)[0] == 0
        assert Path(name).stat().st_size > 200
    assert "must end in .html" in call("report", "last", "-o", "r.pdf")[2]


def test_list_is_a_contract(call):
    rows = json.loads(call("list", "--json")[1])
    assert all(set(row) == {"id", "kind", "field", "paper", "summary"} for row in rows)
    papers = {row["paper"] for row in rows}
    assert {"rrs", "mathgap", "judge-debiasing-limits"} <= papers
    kinds = {row["kind"] for row in json.loads(call("list", "tasks", "--json")[1])}
    assert kinds == {"task"}
    assert "Nearest: tasks" in call("list", "taks")[2]


def test_describe_and_schema_and_doctor(call):
    found = json.loads(call("describe", "perplexity", "--json")[1])
    assert found["kind"] == "task"
    assert any(row["name"] == "windows" for row in found["parameters"])
    schema = json.loads(call("schema")[1])
    assert "round_to_nearest" in json.dumps(schema["$defs"]["treatment"])
    checks = json.loads(call("doctor", "--json")[1])
    assert {row["state"] for row in checks} <= {"ok", "absent", "wrong"}


def test_every_command_explains_itself(call):
    from equipoise.cli._app import COMMANDS

    for name in COMMANDS:
        code, out, _ = call(name, "--help")
        assert code == 0
        assert "Usage: equipoise" in out


def test_show_an_imported_run(call):
    rows = [{"unit": f"u{i}", "correct": i % 2, "cluster": i // 4} for i in range(80)]
    Path("monday.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call("import", "monday.jsonl")[0] == 0
    code, out, _ = call("show", "monday")
    assert code == 0
    assert "0.500 [" in out
    (row,) = json.loads(call("show", "monday", "--json")[1])["estimates"]
    assert (row["name"], row["n"], row["clusters"]) == ("correct", 80, 20)


def _wait_for_outcomes(path):
    """Wait until a run has stored something, however slow the machine is."""
    for _ in range(600):
        time.sleep(0.1)
        with contextlib.suppress(UsageError, OperationalError):
            if is_there(path):
                with Store.open(path, readonly=True) as store:
                    if store.rows(limit=1):
                        return
    pytest.fail("nothing was stored within a minute")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_ctrl_c_ends_in_a_second_and_the_next_run_goes_on(tmp_path, more):
    (tmp_path / "slow.py").write_text(
        "import time\ndef answer(request):\n    time.sleep(0.02)\n    return 'yes'\n"
    )
    rows = "".join(f"        - {{id: u{i}, question: q{i}, answer: yes}}\n" for i in range(900))
    (tmp_path / "t.yaml").write_text(
        "trial: slow\nsubject: scripted:slow:answer\narms: {plain: []}\n"
        f"tasks:\n  ask:\n    free_response:\n      rows:\n{rows}"
        "claims: [{arm: plain, above: 0.5, on: ask}]\n"
    )
    words = [str(Path(sys.executable).parent / "equipoise"), "run", "t.yaml", *more]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # A shell may have started the suite with the signal ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    _wait_for_outcomes(tmp_path / ".equipoise" / "store.sqlite")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=20)
    took = time.monotonic() - began
    assert process.returncode == 4, err
    assert "the same command goes on from here" in err
    assert took < 3
    done = subprocess.run(
        [*words, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    row = json.loads(done.stdout)
    assert row["units"] == 900
    assert row["reused"] > 0
