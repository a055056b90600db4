"""Programs against tests, in the sandbox: what came of each test, and nothing the program says."""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import json
import marshal
import os
import secrets
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from equipoise.core import UnitError
from equipoise.kit.sandbox import Completed, Limits, Sandbox

Kind = Literal["unittest", "check", "asserts"]
Status = Literal["pass", "fail", "timeout"]

PASSED: Status = "pass"
_KNOWN = 4  # tests whose outcome only the driver knows
_CHANGED = "The program changes the test machinery ({})."


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of one problem.

    Parameters
    ----------
    kind
        ``unittest``: the source of a `unittest.TestCase` class. ``check``: the source of a function
        ``check(candidate)``, as in HumanEval. ``asserts``: assert statements, as in MBPP.
    source
        The test code; for ``asserts``, what must run before them.
    entry
        Name of the function under test.
    asserts
        The statements, each a test.
    names
        Tests that must be seen, in source order; a test that is missing has failed.
    """

    kind: Kind
    source: str
    entry: str
    asserts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "source": self.source,
            "entry": self.entry,
            "asserts": list(self.asserts),
            "names": list(self.names),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Suite:
        return cls(
            found["kind"],
            found["source"],
            found["entry"],
            tuple(found["asserts"]),
            tuple(found["names"]),
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What came of a program.

    Parameters
    ----------
    tests
        Status and text (a cleaned traceback, empty for a pass) of each test, in source order.
    fault
        Why tests could not count: ``load`` (the program failed before any test), ``tests`` (the
        test code itself failed), ``tampered``, ``ended`` (it ended the test run), or the limit
        that it broke: ``cpu``, ``wall``, ``memory``, ``processes``, ``output``. Empty if none.
    reason
        The fault in words.
    level
        What the sandbox held it by.
    """

    tests: Mapping[str, tuple[Status, str]]
    fault: str = ""
    reason: str = ""
    level: str = ""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        right = all(status == PASSED for status, _ in self.tests.values())
        return bool(self.tests) and right and not self.fault

    def failing(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Return the texts of tests that did not pass, of those named or of all."""
        return {
            name: text
            for name, (status, text) in self.tests.items()
            if status != PASSED and (names is None or name in names)
        }


def run_tests(
    code: str, suite: Suite, *, seconds: float = 3.0, limits: Limits | None = None
) -> Record:
    """Run a program against a suite in the sandbox.

    A program cannot pass by what it prints or writes, by ending early, by changing `unittest`, nor
    by being silent: results come over a channel marked with a key that it is not told, the test
    machinery is compared with what it was after every test, each named test must be heard of, and
    tests with a secret outcome run among the others. It shares an interpreter with its tests, as
    those of the benchmarks ask for, so a return value that claims to equal anything still passes,
    and so may a program that searches the interpreter's memory for the key.

    Parameters
    ----------
    code
        The program.
    suite
        Its tests.
    seconds
        Of processor time for loading the program and for each test.
    limits
        Of everything together.

    Raises
    ------
    UnitError
        Of kind ``tests`` if the test code itself does not work, whatever the program.
    """
    given = _asked(code, suite, seconds)
    found = sandbox().run_python(harness(), stdin=json.dumps(given), limits=limits or LIMITS)
    return _read(found, given, suite)


async def run_tests_async(
    code: str, suite: Suite, *, seconds: float = 3.0, limits: Limits | None = None
) -> Record:
    """Do what `run_tests` does without holding up other conversations.

    The record of a program that was run before in this process is kept and given again.
    """
    text = json.dumps(
        [code, suite.as_json(), seconds, None if limits is None else limits.as_json()]
    )
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    if key in _kept:
        return _kept[key]
    given = _asked(code, suite, seconds)
    found = await sandbox().run_python_async(
        harness(), stdin=json.dumps(given), limits=limits or LIMITS
    )
    record = _read(found, given, suite)
    if len(_kept) >= _MOST:
        _kept.pop(next(iter(_kept)))
    _kept[key] = record
    return record


LIMITS = Limits(cpu=20.0, memory=1 << 30, output=4 << 20)
"""What a program and its tests may use up together."""

_MOST = 20_000
_kept: dict[bytes, Record] = {}


def sandbox() -> Sandbox:
    """Return this process's sandbox."""
    return _sandbox(os.getpid())


@functools.cache
def _sandbox(process: int) -> Sandbox:
    found = Sandbox(preload=("unittest", "traceback", "linecache", "json", "_blake2", "math"))
    atexit.register(lambda: found.close() if process == os.getpid() else None)
    return found


@functools.cache
def harness() -> str:
    """Return the program that runs beside the one under test, compiled: it runs for each anew."""
    source = Path(__file__).with_name("_harness.py").read_text(encoding="utf-8")
    code = base64.b64encode(marshal.dumps(compile(source, "harness", "exec"))).decode()
    lines = f"""
        import base64, builtins, marshal
        exec(marshal.loads(base64.b64decode("{code}")),
             {{"__name__": "harness", "__builtins__": builtins}})
    """
    return textwrap.dedent(lines)


def _asked(code: str, suite: Suite, seconds: float) -> dict[str, Any]:
    known = []
    for number in range(_KNOWN):
        one = secrets.randbelow(1 << 30)
        other = one + number % 2
        known.append([f"test_{secrets.token_hex(6)}", one, other])
    # One that passes and one that fails on either side of the real tests, in either order.
    for start in (0, 2):
        if secrets.randbelow(2):
            known[start : start + 2] = known[start : start + 2][::-1]
    return {
        "key": secrets.token_hex(32),
        "code": code,
        "kind": suite.kind,
        "tests": suite.source,
        "entry": suite.entry,
        "asserts": list(suite.asserts),
        "seconds": seconds,
        "known": known,
    }


def _read(found: Completed, given: Mapping[str, Any], suite: Suite) -> Record:
    """Return the record of what the harness sent; what is not marked rightly is not read."""
    key = bytes.fromhex(given["key"])
    heard: dict[str, tuple[str, str]] = {}
    stops: dict[str, str] = {}
    count = 0
    for line in found.stdout.split(b"\n"):
        mark, _, rest = line.partition(b" ")
        right = hashlib.blake2b(b"%d %s" % (count, rest), key=key, digest_size=16).hexdigest()
        if not rest or not secrets.compare_digest(mark, right.encode()):
            continue
        count += 1
        status, name, text = (
            part if place == 0 else _text(part) for place, part in enumerate(rest.decode().split())
        )
        if status in ("pass", "skip", "fail", "timeout"):
            before = heard.get(name)
            if before is None or before[0] in ("pass", "skip"):  # the worse of two counts
                heard[name] = (status, text)
        else:
            stops.setdefault(status, text)
    known = {name: one == other for name, one, other in given["known"]}
    strange = [
        name for name, right in known.items() if (heard.get(name, ("",))[0] == "pass") != right
    ]
    if "tests" in stops and "tampered" not in stops:
        raise UnitError(f"The tests cannot run: {stops['tests'].splitlines()[-1]}", "tests")
    fault, reason = _fault(found, stops, strange)
    return _record(suite, heard, known, fault, reason, found.level)


def _fault(found: Completed, stops: Mapping[str, str], strange: Sequence[str]) -> tuple[str, str]:
    if "late" in stops:
        return "cpu", "The program does not come to an end when it is loaded."
    if "load" in stops:
        return "load", stops["load"]
    if "tampered" in stops:
        return "tampered", _CHANGED.format(stops["tampered"])
    if found.status != "done":
        return found.status, found.why()
    if "done" not in stops:
        return "ended", f"The program ends the test run. {found.why()}"
    if strange:
        return "tampered", _CHANGED.format("tests that must fail pass")
    return "", ""


def _record(
    suite: Suite,
    heard: Mapping[str, tuple[str, str]],
    known: Mapping[str, bool],
    fault: str,
    reason: str,
    level: str,
) -> Record:
    late = fault in ("cpu", "wall")
    missing: Status = "timeout" if late else "fail"
    names = suite.names or tuple(name for name in heard if name not in known)
    tests: dict[str, tuple[Status, str]] = {}
    for name in names:
        status, text = heard.get(name, ("", reason or "The test was not run."))
        if fault == "tampered":
            status, text = "fail", reason
        if status in ("pass", "skip"):
            tests[name] = (PASSED, "")
        elif status == "timeout":
            tests[name] = ("timeout", "The test does not come to an end.")
        else:
            tests[name] = ("fail" if status else missing, text)
    return Record(tests, fault, reason, level)


def _text(part: str) -> str:
    return "" if part == "-" else bytes.fromhex(part).decode("utf-8", "replace")
