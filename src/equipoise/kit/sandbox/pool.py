"""Zygotes kept warm, and programs handed to them."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from equipoise.core import RunError, UsageError
from equipoise.kit.sandbox.results import Completed, Level, Limits

_ZYGOTE = os.path.join(os.path.dirname(__file__), "_zygote.py")
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
_SETTING = "EQUIPOISE_ISOLATION"
_LOOKS = 10.0  # seconds a zygote may take to start before its level is given up


class Sandbox:
    """Runs programs in fresh worlds, a few at a time.

    Parameters
    ----------
    isolation
        ``bubblewrap``, ``namespaces``, ``none``, or None for the strongest that works here.
        ``none`` holds programs to their limits and hides nothing from them: say it only of
        programs you would run yourself. It is never fallen back to.
    workers
        Programs at one time; by default as many as there are cores.
    preload
        Modules that Python programs find imported already, such as ``("numpy",)``.
    readable
        Further folders that programs may read.

    Raises
    ------
    UsageError
        If this machine cannot isolate, or not in the way asked for.

    Examples
    --------
    >>> with Sandbox() as sandbox:  # doctest: +SKIP
    ...     found = sandbox.run_python("import sys; print(sys.stdin.read()[::-1])", stdin="abc")
    ...     found.text, found.ok
    ('cba\\n', True)
    """

    def __init__(
        self,
        isolation: Level | None = None,
        *,
        workers: int | None = None,
        preload: Sequence[str] = (),
        readable: Sequence[str] = (),
    ) -> None:
        self.level = isolation_level(isolation)
        for folder in readable:
            if not os.path.isabs(folder):
                raise UsageError(f"Sandbox: a readable folder is absolute, got {folder!r}.")
        self.workers = workers or len(os.sched_getaffinity(0))
        self._given = (self.level, tuple(preload), tuple(readable))
        self._idle: queue.LifoQueue[_Zygote | None] = queue.LifoQueue()
        for _ in range(self.workers):
            self._idle.put(None)  # started when first needed
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run_python(
        self,
        code: str,
        *,
        arguments: Sequence[str] = (),
        stdin: str | bytes = b"",
        files: Mapping[str, str | bytes] | None = None,
        back: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Completed:
        """Run Python code as ``python main.py`` would, in an empty folder.

        Parameters
        ----------
        code
            The program; it is also there as ``main.py``.
        arguments
            What ``sys.argv`` holds after its name.
        stdin
            What it reads from standard input.
        files
            Content of files in its folder, by relative path.
        back
            Relative paths of files to bring back.
        environment
            Variables it sees beside PATH, HOME, TMPDIR and LANG.
        limits
            What it may use up.

        Raises
        ------
        UsageError
            If a path leads out of the folder.
        RunError
            If the sandbox itself cannot go on.
        """
        request = _request(stdin, files, back, environment, limits)
        return self._run(request | {"code": code, "arguments": list(arguments), "command": None})

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: str | bytes = b"",
        files: Mapping[str, str | bytes] | None = None,
        back: Iterable[str] = (),
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Completed:
        """Run a command of the system; the rest is as for `run_python`."""
        if not command:
            raise UsageError("Sandbox: give a command to run.")
        request = _request(stdin, files, back, environment, limits)
        return self._run(request | {"command": list(command), "code": None, "arguments": []})

    async def run_python_async(self, code: str, **given: Any) -> Completed:
        """Do what `run_python` does without holding up the event loop."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, "sandbox")
        call = functools.partial(self.run_python, code, **given)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _run(self, request: dict[str, Any]) -> Completed:
        if self._closed:
            raise UsageError("Sandbox: it is closed.")
        zygote = self._idle.get()
        try:
            if zygote is None:
                zygote = _Zygote(*self._given)
            answer = zygote.ask(request)
        except BaseException:
            if zygote is not None:
                zygote.close()
            zygote = None
            raise
        finally:
            self._idle.put(zygote)
        return Completed(
            status=answer["status"],
            exit=answer.get("exit"),
            stdout=base64.b64decode(answer["stdout"]),
            stderr=base64.b64decode(answer["stderr"]),
            cpu=answer["cpu"],
            wall=answer["wall"],
            memory=answer["memory"],
            level=self.level,
            files={name: base64.b64decode(each) for name, each in answer["files"].items()},
        )

    def close(self) -> None:
        """End every zygote and whatever runs in it."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        for _ in range(self.workers):
            zygote = self._idle.get()
            if zygote is not None:
                zygote.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def isolation_level(asked: str | None = None) -> Level:
    """Return the isolation that programs get here.

    Parameters
    ----------
    asked
        As for `Sandbox`; None asks the variable ``EQUIPOISE_ISOLATION``, and then for the
        strongest that works.

    Raises
    ------
    UsageError
        If none works and ``none`` was not asked for, or what was asked for does not work.
    """
    asked = asked or os.environ.get(_SETTING) or None
    if asked not in (None, "bubblewrap", "namespaces", "none"):
        raise UsageError(
            f"Isolation must be bubblewrap, namespaces or none, got {asked!r} "
            f"(from {_SETTING} or a parameter)."
        )
    if asked == "none":
        return "none"
    wanted: tuple[Level, ...] = ("bubblewrap", "namespaces")
    faults = []
    for level in wanted:
        if asked in (None, level):
            fault = _fault(level)
            if not fault:
                return level
            faults.append(f"{level}: {fault}")
    raise UsageError(
        f"Programs cannot be isolated here ({'; '.join(faults)}); install bubblewrap, allow user "
        f"namespaces, or, if you would run these programs yourself, set {_SETTING}=none."
    )


@functools.cache
def _fault(level: Level) -> str:
    """Return why a level does not work here, or nothing when a program ran in it."""
    if level == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    try:
        zygote = _Zygote(level, (), ())
        try:
            answer = zygote.ask(
                _request(b"", None, (), None, None)
                | {"code": "print(6 * 7)", "arguments": [], "command": None}
            )
        finally:
            zygote.close()
    except (RunError, OSError) as error:
        return str(error).rstrip(".")
    works = base64.b64decode(answer["stdout"]) == b"42\n"
    return "" if works else f"a first program ended with {answer['status']}"


def _request(
    stdin: str | bytes,
    files: Mapping[str, str | bytes] | None,
    back: Iterable[str],
    environment: Mapping[str, str] | None,
    limits: Limits | None,
) -> dict[str, Any]:
    return {
        "stdin": _encoded(stdin),
        "files": {_inside(name): _encoded(each) for name, each in (files or {}).items()},
        "back": [_inside(name) for name in back],
        "environment": dict(environment or {}),
        "limits": (limits or Limits()).as_json(),
    }


def _encoded(content: str | bytes) -> str:
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return base64.b64encode(content).decode()


def _inside(name: str) -> str:
    path = os.path.normpath(name)
    if not name or os.path.isabs(path) or path.split(os.sep)[0] in ("..", ".") or "\0" in name:
        raise UsageError(f"Sandbox: a file's path must lie within the folder, got {name!r}.")
    return path


class _Zygote:
    """One warm interpreter in a world of its own."""

    def __init__(self, level: Level, preload: Sequence[str], readable: Sequence[str]) -> None:
        folders = list(dict.fromkeys((*_SYSTEM, sys.base_prefix, sys.prefix, *readable)))
        given = {
            "level": level,
            "readable": folders,
            "preload": list(preload),
        }
        python = [sys.executable, "-I", _ZYGOTE, json.dumps(given)]
        command = python if level != "bubblewrap" else [*_bubblewrap(folders), *python]
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            start_new_session=True,
            user=_nobody(level),
            group=_nobody(level),
            extra_groups=[] if _nobody(level) is not None else None,
        )
        clock = threading.Timer(_LOOKS, self.process.kill)
        clock.start()
        try:
            self._hear()
        finally:
            clock.cancel()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self._gone()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            self._gone()
        found: dict[str, Any] = json.loads(line)
        return found

    def _gone(self) -> None:
        self.process.kill()
        _, said = self.process.communicate()
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise RunError(f"The sandbox ended ({lines[-1] if lines else 'it said nothing'}).")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def _nobody(level: Level) -> int | None:
    """Return the user that bubblewrap is started as: root steps down first."""
    return 65534 if level == "bubblewrap" and os.geteuid() == 0 else None


def _bubblewrap(folders: Sequence[str]) -> list[str]:
    command = ["bwrap", "--unshare-all", "--new-session"]
    command += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    for folder in folders:
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        else:
            command += ["--ro-bind-try", folder, folder]
    for name in ("/etc/ld.so.cache", "/etc/localtime", os.path.dirname(_ZYGOTE)):
        command += ["--ro-bind-try", name, name]
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--tmpfs", "/sandbox"]
    if not any(f"{each}/".startswith("/tmp/") for each in (*folders, _ZYGOTE)):  # noqa: S108
        command += ["--symlink", "/sandbox", "/tmp"]  # noqa: S108
    return [*command, "--remount-ro", "/", "--clearenv", "--"]
