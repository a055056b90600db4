"""What runs inside: a warm interpreter that forks a program at a time.

Standard library only, and no more of it than needed: it starts in a few milliseconds, and
programs find nothing in it that a new interpreter would not have. It reads one request a line
and writes one answer a line, both JSON.

The zygote is the first process of its process namespace. No program can signal it or look into
it, orphans come to it, and when a program has ended it ends whatever the program left behind and
empties the scratch folder: the next one finds the world as the first did.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import os
import resource
import select
import signal
import stat
import sys
import time
import types

TYPE_CHECKING = False  # typing itself takes milliseconds to import
if TYPE_CHECKING:
    from typing import Any

    from equipoise.kit.sandbox import _namespaces as ns
    from equipoise.kit.sandbox import _seccomp
else:  # started by its path, so that the package is not imported
    sys.path.insert(0, os.path.dirname(__file__))
    import _namespaces as ns
    import _seccomp

SCRATCH = "/sandbox"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}
_PATIENCE = 0.05  # seconds before a program is looked at, and between looks
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRIVATE = stat.S_IFDIR | 0o700
_TEXTS = ("stdout", "stderr")


def main() -> None:
    """Make the world, then serve until the driver goes away."""
    given = json.loads(sys.argv[1])
    # Requests and answers move away from where programs read and write.
    asked, answers, null = os.dup(0), os.dup(1), os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    world = _isolated(given) if given["level"] != "none" else World(os.getuid(), None)
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    sys.path[:] = [each for each in sys.path if each != os.path.dirname(__file__)]
    for name in given["preload"]:
        __import__(name)
    compile("0", "warm", "eval")  # the first takes milliseconds, and each program would pay them
    gc.collect()
    gc.freeze()
    _say(answers, {"ready": True})
    with open(asked, "rb", closefd=False) as lines:
        for line in lines:
            _say(answers, _serve(json.loads(line), world, asked))


def _say(answers: int, answer: dict[str, Any]) -> None:
    rest = memoryview(json.dumps(answer).encode() + b"\n")
    while rest:
        rest = rest[os.write(answers, rest) :]


class World:
    """What programs are in: one after the other, each for itself.

    Parameters
    ----------
    owner
        User that programs are.
    filter_
        What they may ask of the kernel; None where there is no isolation: a program then
        gets a folder and limits.
    """

    def __init__(self, owner: int, filter_: _seccomp.Filter | None) -> None:
        self.owner, self.filter = owner, filter_
        self.folder = ""
        self.scratch = 0  # bytes; 0 while nothing is mounted
        with open("/proc/self/statm", "rb") as file:
            self.size = int(file.read().split()[0]) * _PAGE

    @property
    def alone(self) -> bool:
        """Whether every process but the zygote is the program's."""
        return self.filter is not None

    def open(self, scratch: int) -> None:
        """Have an empty folder with room for ``scratch`` bytes."""
        if not self.alone:
            import tempfile

            self.folder = tempfile.mkdtemp(prefix="equipoise-")
        elif self.scratch != scratch:
            ns.scratch(SCRATCH, scratch, self.owner, fresh=not self.scratch)
            self.folder, self.scratch = SCRATCH, scratch

    def close(self) -> None:
        """Empty the folder; what is more than the program's own text is thrown away whole."""
        if not self.alone:
            import shutil

            shutil.rmtree(self.folder, ignore_errors=True)
        elif os.listdir(SCRATCH) == ["main.py"] and os.stat(SCRATCH).st_mode == _PRIVATE:
            os.unlink(f"{SCRATCH}/main.py")
        else:
            ns.scratch(SCRATCH, self.scratch, self.owner, fresh=False)

    def end(self, child: int) -> float:
        """End a program and all it has started; return the processor time that they took."""
        with contextlib.suppress(ProcessLookupError):
            if self.alone:
                os.kill(-1, signal.SIGKILL)
            else:
                os.killpg(child, signal.SIGKILL)
        seconds = 0.0
        with contextlib.suppress(ChildProcessError):
            while True:
                _, _, used = os.wait4(-1, 0)
                seconds += used.ru_utime + used.ru_stime
        return seconds


def _isolated(given: dict[str, Any]) -> World:
    """Enter namespaces and, unless bubblewrap has made one, a root of one's own."""
    root = ns.new_user()
    ns.unshare(ns.NEWNS | ns.NEWNET | ns.NEWIPC | ns.NEWUTS | ns.NEWPID)
    child = os.fork()
    if child:  # stays outside only to end with the driver and with the world
        os.closerange(0, 1 << 12)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 255)
    ns.die_with_parent()
    if given["level"] == "namespaces":
        ns.new_root(given["readable"], SCRATCH)
    else:
        ns.mount("proc", "/proc", "proc", ns.NOSUID | ns.NODEV)
    ns.never_again()
    owner = ns.NOBODY if root else ns.INSIDE
    ns.warm()
    return World(owner, _seccomp.Filter(ns.libc, _seccomp.program()))


def _serve(request: dict[str, Any], world: World, asked: int) -> dict[str, Any]:
    """Run one program and tell what came of it."""
    limits = request["limits"]
    world.open(limits["scratch"])
    out, err = os.pipe(), os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            _program(request, world, out[1], err[1])
        os._exit(111)
    os.close(out[1])
    os.close(err[1])
    exited = os.pidfd_open(child)
    answer = _watch(limits, child, world, began, (asked, exited, out[0], err[0]))
    if not answer["status"]:
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        killed = ended.si_code != os.CLD_EXITED
        answer |= {"status": "done", "exit": -ended.si_status if killed else ended.si_status}
    answer["cpu"] = max(answer["cpu"], world.end(child))
    if answer["status"] == "done" and answer["cpu"] > limits["cpu"]:
        answer["status"] = "cpu"
    answer["wall"] = time.monotonic() - began
    found = {name: _read(name, world.folder, limits["file_size"]) for name in request["back"]}
    answer["files"] = {name: content for name, content in found.items() if content is not None}
    world.close()
    for each in (exited, out[0], err[0]):
        os.close(each)
    return answer


def _watch(
    limits: dict[str, Any],
    child: int,
    world: World,
    began: float,
    ends: tuple[int, int, int, int],
) -> dict[str, Any]:
    """Read a program's output and hold it to its limits until it ends."""
    asked, exited, *pipes = ends
    kept = {pipe: bytearray() for pipe in pipes}
    open_ = set(pipes)
    over, cpu, most = "", 0.0, 0
    look, last = began + _PATIENCE, began + limits["wall"]
    running = True
    while not over and (running or open_):
        # What was written before the end is there; a daemon may hold the pipes for ever.
        wait = max(0.0, min(look, last) - time.monotonic()) if running else 0.0
        ready, _, _ = select.select([asked, *([exited] if running else []), *open_], [], [], wait)
        if asked in ready:  # the driver asks for one program at a time: it is gone
            world.end(child)
            os._exit(1)
        if not running and not open_.intersection(ready):
            break
        running = running and exited not in ready
        for pipe in open_.intersection(ready):
            data = os.read(pipe, 65536)
            if not data:
                open_.discard(pipe)
            room = limits["output"] - len(kept[pipe])
            kept[pipe] += data[:room]
            if len(data) > room:
                over = "output"
        now = time.monotonic()
        if running and now >= last:
            over = over or "wall"
        elif running and now >= look:
            cpu, memory, processes = _usage(child, world.alone)
            most = max(most, memory)
            beyond = {"cpu": cpu, "memory": memory, "processes": processes}
            over = over or next((k for k, used in beyond.items() if used > limits[k]), "")
            look = now + _PATIENCE
    texts = (base64.b64encode(kept[pipe]).decode() for pipe in pipes)
    return {"status": over, "cpu": cpu, "memory": most, **dict(zip(_TEXTS, texts, strict=True))}


def _usage(child: int, alone: bool) -> tuple[float, int, int]:
    """Return CPU seconds, bytes of memory of its own, and number of a program's processes."""
    ticks = pages = count = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
            with open(f"/proc/{name}/statm", "rb") as file:
                _, resident, shared = map(int, file.read().split()[:3])
            if not alone and int(fields[3]) != child:  # another session's
                continue
            ticks += sum(map(int, fields[11:15]))  # own and waited-for children's
            pages += resident - shared
            count += fields[0] != b"Z"
    return ticks / _TICK, pages * _PAGE, count


def _program(request: dict[str, Any], world: World, out: int, err: int) -> None:
    """Turn this process into the program."""
    os.setsid()
    os.chdir(world.folder)
    stdin = os.memfd_create("stdin")
    if request["stdin"]:
        os.write(stdin, base64.b64decode(request["stdin"]))
        os.lseek(stdin, 0, os.SEEK_SET)
    if world.alone:
        ns.drop(world.owner)
    _limit(request["limits"], world)
    _write(request["files"])
    for pipe, place in ((stdin, 0), (out, 1), (err, 2)):
        os.dup2(pipe, place)
    os.closerange(3, 1 << 12)
    if world.filter is not None:
        world.filter.install()
    _become(request, world.folder)


def _limit(limits: dict[str, Any], world: World) -> None:
    """Set what the kernel itself enforces, a process at a time.

    Processes are counted by user, so that their limit makes sense in a world alone.
    """
    seconds = int(limits["cpu"]) + 1
    for kind, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, limits["memory"] + world.size),
        (resource.RLIMIT_FSIZE, limits["file_size"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 1 << 16),
        # The zygote and the process that waits for it count where they have the same user.
        *([(resource.RLIMIT_NPROC, limits["processes"] + 2)] if world.alone else []),
    ):
        resource.setrlimit(kind, (value, value))


def _write(files: dict[str, str]) -> None:
    for name, content in files.items():
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "wb") as file:
            file.write(base64.b64decode(content))


def _read(name: str, folder: str, most: int) -> str | None:
    """Return a plain file that the program wrote, None where there is none such."""
    try:
        found = ns.open_beneath(folder, name)
    except OSError:
        return None
    with open(found, "rb") as file:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            return None
        return base64.b64encode(file.read(most)).decode()


def _become(request: dict[str, Any], folder: str) -> None:
    """Run the program in this process: a command, or Python code in this interpreter."""
    if folder != SCRATCH:
        os.environ.update(HOME=folder, TMPDIR=folder)
    os.environ.update(request["environment"])
    command = request["command"]
    if not command:
        _python(request["code"], request["arguments"], folder)
        return
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, os.environ)  # noqa: S606
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _python(code: str, arguments: list[str], folder: str) -> None:
    """Run code as ``python main.py`` would, in a module of its own."""
    place = f"{folder}/main.py"
    for name in ("__main__", "_namespaces", "_seccomp"):
        del sys.modules[name]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = place
    sys.argv = [place, *arguments]
    sys.path.insert(0, folder)
    source = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(source, code.encode("utf-8", "surrogatepass"))
    os.close(source)
    exit_code = 0
    try:
        exec(compile(code, place, "exec"), module.__dict__)  # noqa: S102 - what it is for
    except SystemExit as ended:
        exit_code = _exit_code(ended.code)
    except BaseException as error:
        exit_code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        _complain(error)
    _finish(exit_code)


def _exit_code(code: object) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 255
    sys.stderr.write(f"{code}\n")
    return 1


def _complain(error: BaseException) -> None:
    """Print the traceback that ``python main.py`` would, without this module's frames."""
    import traceback

    own = error.__traceback__
    inside = own.tb_next if own is not None else None
    with contextlib.suppress(BaseException):
        if isinstance(error, SyntaxError) and inside is None:
            sys.stderr.write("".join(traceback.format_exception_only(error)))
        else:
            sys.stderr.write("".join(traceback.format_exception(type(error), error, inside)))


def _finish(exit_code: int) -> None:
    """End as an interpreter does: threads, exit functions, buffers, a signal of its own."""
    import atexit

    threading = sys.modules.get("threading")
    with contextlib.suppress(BaseException):
        if threading is not None:
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            exit_code = exit_code or 120
    if exit_code < 0:
        signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    os._exit(exit_code)


if __name__ == "__main__":
    main()
