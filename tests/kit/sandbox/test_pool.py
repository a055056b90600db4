"""Programs in the sandbox behave as they do outside, and the pool as it says."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core import RunError, UsageError
from equipoise.kit.sandbox import Limits, Sandbox, isolation_level
from equipoise.kit.sandbox import pool as pool_module
from equipoise.kit.sandbox.results import Completed, plain_text

PROGRAMS = {
    "prints": "print('hé', 1); import sys; print('err', file=sys.stderr)",
    "reads": "print(input()[::-1])",
    "exit code": "raise SystemExit(3)",
    "exit text": "raise SystemExit('bye')",
    "exit nothing": "import sys; sys.exit()",
    "exit beyond": "raise SystemExit(256 + 7)",
    "raises": "def f():\n    return 1 / 0\n\nf()\n",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n",
    "syntax": "print('a'\n",
    "indentation": "if True:\nprint(1)\n",
    "interrupt": "raise KeyboardInterrupt",
    "main": "if __name__ == '__main__': print('main', __name__, __doc__)",
    "doc": "'Text.'\nprint(__doc__)",
    "thread": "import threading, time\ndef f():\n    time.sleep(.05); print('late')\n"
    "threading.Thread(target=f).start()\nprint('early')",
    "atexit": "import atexit\natexit.register(print, 'last')\nprint('first')",
    "no newline": "import sys; sys.stdout.write('a')",
    "surrogate": "import sys; sys.stderr.write('\\ud800')",
    "import itself": "x = 1\nimport __main__\nprint(__main__.x)",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)",
    "dataclass": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))",
    "future": "from __future__ import annotations\ndef f(x: Nope): pass\nprint(f.__annotations__)",
    "recursion": "def f(): return f()\ntry: f()\nexcept RecursionError: print('deep')",
    "os exit": "import os; print('x', flush=True); os._exit(5)",
    "abort": "import os; os.abort()",
}


def without_carets(text):
    """Drop the marks under a line, which depend on whether it was read from a file."""
    return [line for line in text.splitlines() if set(line) - set(" ^~")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_outside(sandbox, tmp_path, name):
    path = tmp_path / "main.py"
    path.write_text(PROGRAMS[name], encoding="utf-8")
    peer = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, input=b"olleh\n", capture_output=True
    )
    found = sandbox.run_python(PROGRAMS[name], stdin="olleh\n")
    assert found.stdout == peer.stdout
    assert found.exit == peer.returncode
    said = peer.stderr.decode().replace(str(tmp_path), "/sandbox")
    assert without_carets(found.stderr.decode()) == without_carets(said)


def test_arguments_files_and_environment(sandbox):
    found = sandbox.run_python(
        "import os, sys\nfrom lib.tool import double\nprint(sys.argv[1:], double(4), "
        "os.environ['A'], os.environ['HOME'])\nopen('out.bin', 'wb').write(bytes(range(256)))",
        arguments=["x", "-y"],
        files={"lib/tool.py": "def double(x): return 2 * x", "lib/__init__.py": b""},
        back=["out.bin", "none"],
        environment={"A": "é"},
    )
    assert found.text == "['x', '-y'] 8 é /sandbox\n"
    assert found.files == {"out.bin": bytes(range(256))}


def test_commands(sandbox):
    assert sandbox.run(["sh", "-c", "cat; exit 4"], stdin="in").exit == 4
    absent = sandbox.run(["no-such-command"])
    assert (absent.exit, absent.errors) == (127, "no-such-command: No such file or directory\n")
    python = sandbox.run([sys.executable, "-c", "print(6 * 7)"])
    assert python.text == "42\n"


def test_processes_of_its_own(sandbox):
    code = (
        "import multiprocessing\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        print(pool.map(f, [1, 2, 3]))"
    )
    assert sandbox.run_python(code).text == "[1, 4, 9]\n"


def test_how_it_ended_in_words(sandbox):
    assert sandbox.run_python("").why() == "It ended well."
    assert sandbox.run_python("raise SystemExit(2)").why() == "It ended with exit code 2."
    assert "signal 9" in sandbox.run_python("import os; os.kill(os.getpid(), 9)").why()
    slow = sandbox.run_python("while True: pass", limits=Limits(cpu=0.2))
    assert slow.why().startswith("It used up its processor time")
    assert slow.exit is None
    statuses = ("wall", "memory", "processes", "output")
    ends = [Completed(each, None, b"", b"", 0, 1, 0, "none").why() for each in statuses]
    assert len(set(ends)) == len(ends)


def test_processor_time_is_counted_to_the_end(sandbox):
    code = "import time\nwhile time.process_time() < 0.4: pass"
    assert sandbox.run_python(code, limits=Limits(cpu=5)).cpu == pytest.approx(0.4, abs=0.1)
    child = (
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c',"
        " 'import time\\nwhile time.process_time() < 0.4: pass'])"
    )
    assert sandbox.run_python(child, limits=Limits(cpu=5)).cpu > 0.38


def test_modules_may_be_there_already(sandbox):
    with Sandbox(sandbox.level, workers=1, preload=("decimal",)) as warm:
        assert warm.run_python("import sys; print('decimal' in sys.modules)").text == "True\n"
    cold = sandbox.run_python("import sys; print('decimal' in sys.modules,"
                              " [m for m in sys.modules if 'equipoise' in m])")  # fmt: skip
    assert cold.text == "False []\n"


def test_the_usual_temporary_folder_is_its_own(sandbox):
    if sys.prefix.startswith("/tmp/"):
        pytest.skip("this Python lies in it")
    found = sandbox.run_python("open('/tmp/a', 'w').write('b')", back=["a"])
    assert found.files == {"a": b"b"}


def test_folders_may_be_shown(sandbox):
    here = Path(__file__).parent
    code = f"print(open({__file__!r}).readline())"
    assert "No such file" in sandbox.run_python(code).errors
    with Sandbox(sandbox.level, workers=1, readable=[str(here)]) as shown:
        assert "Programs in the sandbox" in shown.run_python(code).text
        written = shown.run_python(f"open({str(here / 'new')!r}, 'w')")
        assert "Read-only" in written.errors
    with pytest.raises(UsageError, match="is absolute, got 'tests'"):
        Sandbox("none", readable=["tests"])


def test_many_at_once_without_holding_up_the_loop(sandbox):
    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        code = "import time; time.sleep(0.3); print('x')"
        found = await asyncio.gather(*(sandbox.run_python_async(code) for _ in range(4)))
        ticking.cancel()
        return ticks, found

    began = time.monotonic()
    ticks, found = asyncio.run(both())
    assert time.monotonic() - began < 1.1, "two at a time"
    assert ticks > 20
    assert [each.text for each in found] == ["x\n"] * 4


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "", ".", "a\0b"])
def test_paths_that_lead_out_are_refused(sandbox, name):
    for wrong in ({"files": {name: ""}}, {"back": [name]}):
        with pytest.raises(UsageError, match="must lie within the folder"):
            sandbox.run_python("", **wrong)


def test_bad_use_is_one_sentence(sandbox):
    with pytest.raises(UsageError, match="cpu must be above 0"):
        Limits(cpu=0)
    with pytest.raises(UsageError, match="give a command"):
        sandbox.run([])
    closed = Sandbox("none")
    closed.close()
    with pytest.raises(UsageError, match="it is closed"):
        closed.run_python("")
    with Sandbox("none", preload=("no_such_module",)) as broken:
        for _ in range(2):  # the place in the pool is not lost
            with pytest.raises(RunError, match="No module named 'no_such_module'"):
                broken.run_python("")


def test_without_isolation_only_when_told_so(monkeypatch):
    monkeypatch.setattr(pool_module, "_fault", lambda level: "not here")
    monkeypatch.delenv("EQUIPOISE_ISOLATION", raising=False)
    with pytest.raises(UsageError, match=r"cannot be isolated here .*EQUIPOISE_ISOLATION=none"):
        Sandbox()
    with pytest.raises(UsageError, match=r"\(namespaces: not here\)"):
        Sandbox("namespaces")
    monkeypatch.setenv("EQUIPOISE_ISOLATION", "none")
    assert isolation_level() == "none"
    monkeypatch.setenv("EQUIPOISE_ISOLATION", "docker")
    with pytest.raises(UsageError, match="got 'docker'"):
        isolation_level()


def test_without_isolation_limits_hold():
    with Sandbox("none", workers=1) as bare:
        assert bare.run_python("while True: pass", limits=Limits(cpu=0.3)).status == "cpu"
        assert bare.run_python("import time; time.sleep(9)", limits=Limits(wall=0.3)).wall < 2
        left = bare.run_python(
            "import os\nprint(os.getcwd())\nopen('a', 'w').write('b')", back=["a"]
        )
        assert left.files == {"a": b"b"}
        assert left.level == "none"
        assert not subprocess.run(["ls", left.text.strip()], capture_output=True).stdout


@given(st.binary(max_size=200))
def test_text_holds_no_controls(data):
    text = plain_text(data)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=50))
def test_plain_text_is_left_alone(text):
    assert plain_text(text.encode()) == text
