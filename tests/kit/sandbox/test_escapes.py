"""What programs try: each stays in its world, and the next program finds a fresh one."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from equipoise.kit.sandbox import Limits, Sandbox

QUICK = Limits(cpu=2, wall=5)


def alive(sandbox):
    return sandbox.run_python("print('alive')").text == "alive\n"


def blocked(sandbox, code, *signs):
    """Run code that must fail, and return what it said."""
    found = sandbox.run_python(f"{code}\nprint('ESCAPED')", limits=QUICK)
    assert "ESCAPED" not in found.text, found
    assert not found.ok
    assert any(sign in found.errors for sign in signs), found.errors
    return found


def test_a_fork_bomb(sandbox):
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    found = sandbox.run_python(code, limits=Limits(cpu=5, wall=5, processes=8))
    assert found.status in ("processes", "cpu", "wall", "memory")
    assert found.wall < 6
    assert alive(sandbox)


def test_a_memory_bomb_of_one_process(sandbox):
    code = "kept = []\nwhile True: kept.append(bytearray(10_000_000))"
    found = sandbox.run_python(code, limits=Limits(memory=100 << 20))
    assert found.status == "memory" or "MemoryError" in found.errors
    assert found.memory < 130 << 20


def test_a_memory_bomb_of_many_processes(sandbox):
    code = (
        "import os, time\nfor _ in range(6):\n    if not os.fork():\n"
        "        kept = b'x' * 60_000_000; time.sleep(60)\ntime.sleep(60)"
    )
    found = sandbox.run_python(code, limits=Limits(memory=100 << 20, wall=20))
    assert found.status == "memory"


def test_filling_the_disk(sandbox):
    code = (
        "n = 0\nwhile True:\n    with open(f'f{n}', 'wb') as file: file.write(b'x' * 1_000_000)\n"
        "    n += 1"
    )
    found = sandbox.run_python(code, limits=Limits(scratch=8 << 20))
    assert "No space left" in found.errors
    one = sandbox.run_python(
        "open('f', 'wb').write(b'x' * 3_000_000)", limits=Limits(file_size=1 << 20)
    )
    assert "File too large" in one.errors or one.exit == -signal.SIGXFSZ
    assert alive(sandbox)


def test_many_open_files(sandbox):
    blocked(sandbox, "kept = [open('/dev/null') for _ in range(500)]", "Too many open files")


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/root/.ssh/id_rsa", "/etc/passwd-", "/proc/1/environ", "/proc/1/mem",
             "/proc/kcore", "/var/log", "/home", __file__]
)  # fmt: skip
def test_reading_what_is_not_its_own(sandbox, path):
    code = f"import os\np = {path!r}\nprint(os.listdir(p) if os.path.isdir(p) else open(p).read(9))"
    blocked(sandbox, code, "No such file", "Permission denied", "I/O error", "Operation not perm")


def test_secrets_of_the_environment(sandbox, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_TEST_SECRET", "hunter2")
    code = (
        "import os, glob\nprint(dict(os.environ))\nfor p in glob.glob('/proc/*/environ'):\n"
        "    try: print(open(p).read())\n    except OSError: pass"
    )
    with Sandbox(sandbox.level, workers=1) as fresh:  # started with the secret around
        assert "hunter2" not in fresh.run_python(code).text


@pytest.mark.parametrize(
    "path",
    ["/usr/escaped", "/etc/escaped", "/escaped", f"{sys.prefix}/escaped", "/dev/escaped",
     "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/1/oom_score_adj"],
)  # fmt: skip
def test_writing_outside(sandbox, path):
    code = f"open({path!r}, 'w').write('1')"
    blocked(sandbox, code, "Read-only", "Permission denied", "No such file")
    assert not path.endswith("escaped") or not os.path.exists(path)


def test_remounting_and_new_namespaces(sandbox):
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "tries = {'mount': libc.mount(b'x', b'/sandbox', b'tmpfs', 0, 0),\n"
        "  'remount': libc.mount(None, b'/', None, 32 | 4096, None),\n"
        "  'umount': libc.umount2(b'/proc', 2), 'chroot': libc.chroot(b'/sandbox'),\n"
        "  'unshare': libc.unshare(0x10000000), 'setns': libc.setns(0, 0),\n"
        "  'ptrace': libc.ptrace(16, 1, 0, 0), 'clone': libc.syscall(56, 0x10000011, 0, 0, 0, 0),\n"
        "  'clone3': libc.syscall(435, 0, 0), 'bpf': libc.syscall(321, 0, 0, 0),\n"
        "  'keyctl': libc.syscall(250, 0, 0), 'io_uring': libc.syscall(425, 1, 0),\n"
        "  'process_vm_readv': libc.syscall(310, 1, 0, 0, 0, 0, 0),\n"
        "  'shmget': libc.shmget(7, 4096, 0o1600), 'semget': libc.semget(7, 1, 0o1600),\n"
        "  'msgget': libc.msgget(7, 0o1600), 'mq_open': libc.mq_open(b'/x', 66, 0o600, 0)}\n"
        "print({name for name, found in tries.items() if found != -1})"
    )
    found = sandbox.run_python(code)
    assert found.text == "set()\n", found


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET"])
def test_sockets(sandbox, family):
    code = f"import socket\nsocket.socket(socket.{family}, socket.SOCK_RAW - 2)"
    blocked(sandbox, code, "not supported")


def test_loopback_of_the_machine(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        blocked(sandbox, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)",
                "not supported", "unreachable")  # fmt: skip
    # Without the filter there is no network either: a command of the system knows no way out.
    found = sandbox.run(["sh", "-c", "cat /proc/net/dev"])
    assert "lo" in found.text
    assert "eth" not in found.text


def test_sockets_of_the_machines_own_processes(sandbox):
    name = f"\0equipoise-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        blocked(sandbox, f"import socket\nsocket.socket(socket.AF_UNIX).connect({name!r})",
                "refused")  # fmt: skip


def test_links_lead_nowhere(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    code = (
        f"import os\nos.symlink({str(secret)!r}, 'a')\nos.symlink('/proc/1/root', 'b')\n"
        "os.symlink('/etc', 'd')\nos.mkfifo('c')\nopen('e', 'w').write('own')"
    )
    found = sandbox.run_python(code, back=["a", "b", "b/etc/shadow", "c", "d/shadow", "e", "f"])
    assert found.files == {"e": b"own"}
    blocked(sandbox, "print(open('/proc/1/root/etc/shadow').read())", "denied", "No such")
    blocked(sandbox, "print(open('/proc/self/root/etc/shadow').read())", "denied", "No such")


def test_killing_what_started_it(sandbox):
    code = (
        "import os, signal\nfor pid in (1, os.getppid(), -1):\n"
        "    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):\n"
        "        if pid != -1 or number != signal.SIGSTOP:\n"
        "            try: os.kill(pid, number if pid != -1 else signal.SIGCONT)\n"
        "            except OSError: pass\nprint('still here')"
    )
    found = sandbox.run_python(code, limits=QUICK)
    assert found.status == "done"
    assert alive(sandbox)


def test_endless_output(sandbox):
    found = sandbox.run_python("while True: print('x' * 10_000)", limits=Limits(output=100_000))
    assert found.status == "output"
    assert len(found.stdout) == 100_000
    errors = sandbox.run_python("import sys\nwhile True: sys.stderr.write('x' * 10_000)")
    assert errors.status == "output"


def test_ignoring_signals(sandbox):
    code = (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass"
    )
    found = sandbox.run_python(code, limits=Limits(cpu=0.5))
    assert found.status == "cpu"
    assert found.wall < 4


def test_waiting_for_ever_costs_no_processor_time(sandbox):
    found = sandbox.run_python("import time; time.sleep(60)", limits=Limits(cpu=1, wall=0.5))
    assert found.status == "wall"
    assert found.cpu < 0.5


def test_processor_time_of_all_processes_counts(sandbox):
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    found = sandbox.run_python(code, limits=Limits(cpu=1, wall=20))
    assert found.status == "cpu"
    assert found.cpu < 3


def test_daemons_left_behind(sandbox):
    code = (
        "import os, sys, time\nif os.fork(): print('left', flush=True); os._exit(0)\n"
        "os.setsid()\nif os.fork(): os._exit(0)\nos.closerange(0, 3)\n"
        "while True: time.sleep(0.01)"
    )
    found = sandbox.run_python(code, limits=QUICK)
    assert (found.status, found.text) == ("done", "left\n")
    look = (
        "import os; print({int(p) for p in os.listdir('/proc') if p.isdigit()} - {1, os.getpid()})"
    )
    for _ in range(2 * sandbox.workers):
        assert sandbox.run_python(look).text == "set()\n"


def test_nothing_stays_for_the_next_program(sandbox):
    leave = (
        "import builtins, os, json\nopen('left', 'w').write('x')\nos.environ['LEFT'] = 'x'\n"
        "builtins.print = json.dumps = None\nos.chmod('.', 0o777)"
    )
    look = (
        "import json, os\nprint(os.listdir('.'), os.listdir('/dev/shm'), 'LEFT' in os.environ,"
        " json.dumps(1))"
    )
    for _ in range(2 * sandbox.workers):
        sandbox.run_python(leave)
    for _ in range(2 * sandbox.workers):
        assert sandbox.run_python(look).text == "['main.py'] ['main.py'] False 1\n"


def test_programs_beside_each_other_do_not_meet(sandbox):
    code = (
        "import os, socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0meeting')\n"
        "s.listen()\nopen('mine', 'w')\ntime.sleep(1)\n"
        "print(sorted(os.listdir('.')), len([p for p in os.listdir('/proc') if p.isdigit()]))"
    )
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(sandbox.run_python(code))) for _ in range(2)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 1.9, "they run at one time"
    assert [each.text for each in found] == ["['main.py', 'mine'] 2\n"] * 2


def test_escape_sequences_are_not_passed_on(sandbox):
    nasty = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;aGk=\x1b\\ok\x9b31m\u202e\x08"
    found = sandbox.run_python(f"import sys\nsys.stdout.write({nasty!r})")
    assert found.text == "ok"
    assert b"\x1b[2J" in found.stdout, "the bytes are kept as they are"


def test_it_cannot_answer_for_itself(sandbox):
    """A program that writes to every descriptor does not reach the driver."""
    code = (
        'import os\nfor n in range(3, 4096):\n    try: os.write(n, b\'{"status": "done"}\\n\')\n'
        "    except OSError: pass\nprint('end'); raise SystemExit(3)"
    )
    found = sandbox.run_python(code)
    assert (found.exit, found.text) == (3, "end\n")
    assert alive(sandbox)


def test_the_drivers_death_ends_the_programs():
    code = (
        "from equipoise.kit.sandbox import Sandbox\nimport sys, threading, time\n"
        "box = Sandbox(workers=1)\n"
        "run = lambda: box.run_python('import time; time.sleep(77.125)')\n"
        "threading.Thread(target=run, daemon=True).start()\ntime.sleep(1.5)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as driver:
        if not driver.stdout.readline():
            pytest.skip("no isolation here")
        zygotes = _below(driver.pid)
        assert zygotes
        driver.kill()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in zygotes) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in zygotes if Path(f"/proc/{pid}").exists()]


def _below(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                child = int(path.parent.name)
                found += [child, *_below(child)]
        except OSError:
            pass
    return found
