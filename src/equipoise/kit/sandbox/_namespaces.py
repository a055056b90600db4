"""Namespaces, mounts and capabilities by plain system calls; standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os

TYPE_CHECKING = False  # typing itself takes milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Iterable

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_RDONLY, NOSUID, NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH, _AT_FDCWD, _AT_RECURSIVE = 2, -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_MOUNT_SETATTR = 442  # one number on every machine
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 2, 4, 8
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 1, 24, 47, 4
_PR_SET_DUMPABLE = 4

INSIDE, NOBODY = 1000, 65534
"""User a program is inside where the outer user is not root, and where it is."""

libc = ctypes.CDLL(None, use_errno=True)

_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
_NO_CAPABILITIES = (ctypes.c_uint32 * 6)()


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def unshare(flags: int) -> None:
    """Move this process, or with NEWPID its coming children, into new namespaces."""
    _check(libc.unshare(flags), "new namespaces")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """Mount a file system."""
    kind_ = None if kind is None else kind.encode()
    found = libc.mount(
        source.encode(), target.encode(), kind_, ctypes.c_ulong(flags), data.encode()
    )
    _check(found, f"mounting {target}")


def die_with_parent() -> None:
    """Be killed when the parent ends, however it ends."""
    libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def new_user() -> bool:
    """Enter a user namespace; return whether the outer user is root.

    Root is root inside, with no power outside, and may become nobody there. Another user is
    user 1000 inside and can become no one else.
    """
    user, group = os.geteuid(), os.getegid()
    if user:
        unshare(NEWUSER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{INSIDE} {user} 1"),
            ("gid_map", f"{INSIDE} {group} 1"),
        ):
            _put(f"/proc/self/{name}", text)
        return False
    # Two users are mapped, which only a process outside may do.
    ready, go = os.pipe()
    done, told = os.pipe()
    me = os.getpid()
    helper = os.fork()
    if not helper:
        os.close(go)
        with contextlib.suppress(OSError):
            if os.read(ready, 1):
                for name in ("uid_map", "gid_map"):
                    _put(f"/proc/{me}/{name}", f"0 0 1\n{NOBODY} {NOBODY} 1\n")
                os.write(told, b"1")
        os._exit(0)
    for each in (ready, told):
        os.close(each)
    unshare(NEWUSER)
    os.write(go, b"1")
    mapped = os.read(done, 1)
    os.close(go)
    os.close(done)
    os.waitpid(helper, 0)
    if not mapped:
        raise OSError("users could not be mapped")
    return True


def new_root(readable: Iterable[str], scratch: str) -> None:
    """Make a root of its own that holds some folders, read-only, and little else.

    Parameters
    ----------
    readable
        Absolute folders or files; what is not there is left out, links stay links.
    scratch
        Where programs write; an empty folder here, over which a file system is mounted.
    """
    readable = tuple(readable)
    mount("none", "/", None, _REC | _PRIVATE)
    root = _place(readable)
    mount("root", root, "tmpfs", NOSUID | NODEV, "size=1m,mode=755")
    for path in readable:
        _show(path, root)
    for name in ("null", "zero", "full", "random", "urandom"):
        _show(f"/dev/{name}", root)
    for folder in ("proc", "etc", "old", scratch.lstrip("/")):
        os.makedirs(f"{root}/{folder}", exist_ok=True)
    os.symlink(scratch, f"{root}/dev/shm")  # noqa: S108
    with contextlib.suppress(FileExistsError):  # something readable lies there
        os.symlink(scratch, f"{root}/tmp")  # noqa: S108
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{place}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    users = f"root:x:0:0::/:/bin/sh\nuser:x:{INSIDE}:{INSIDE}::{scratch}:/bin/sh\n"
    nobody = f"nobody:x:{NOBODY}:{NOBODY}::{scratch}:/bin/sh\n"
    _put(f"{root}/etc/passwd", users + nobody)
    for name in ("ld.so.cache", "localtime"):
        _show(f"/etc/{name}", root)
    mount("proc", f"{root}/proc", "proc", NOSUID | NODEV)
    number = _PIVOT_ROOT[os.uname().machine]
    _check(libc.syscall(number, root.encode(), f"{root}/old".encode()), "a new root")
    os.chdir("/")
    _check(libc.umount2(b"/old", _DETACH), "leaving the old root")
    os.rmdir("/old")
    _close("/", recursive=False)


def _place(readable: tuple[str, ...]) -> str:
    """Return a folder to build the new root over; nothing that it shall hold lies below."""
    for folder in ("/mnt", "/media", "/srv", "/boot", "/home", "/var", "/tmp"):  # noqa: S108
        if os.path.isdir(folder) and not any(f"{p}/".startswith(f"{folder}/") for p in readable):
            return folder
    raise OSError("there is no folder to build a new root over")


def _show(path: str, root: str) -> None:
    """Make a folder or file visible under a new root, read-only with all below it."""
    if os.path.islink(path):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(os.readlink(path), root + path)
        return
    if not os.path.exists(path) or os.path.ismount(root + path):
        return
    if os.path.isdir(path):
        os.makedirs(root + path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        _put(root + path, "")
    mount(path, root + path, None, _BIND | _REC)
    _close(root + path, device=path.startswith("/dev/"))


def _close(path: str, *, recursive: bool = True, device: bool = False) -> None:
    """Make what is mounted somewhere read-only, without set-user programs and devices."""
    flags = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (0 if device else _MOUNT_ATTR_NODEV)
    wanted = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    found = libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE if recursive else 0,
        ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted)),
    )  # fmt: skip
    _check(found, f"making {path} read-only")


def scratch(folder: str, size: int, owner: int, *, fresh: bool) -> None:
    """Mount an empty scratch folder, in place of the one there was unless it is the first."""
    shared = "/dev/shm"  # noqa: S108 - a folder of its own as bubblewrap leaves it
    beside = not os.path.islink(shared)
    if not fresh:
        for each in (folder, *([shared] if beside else [])):
            _check(libc.umount2(each.encode(), _DETACH), f"emptying {each}")
    mount("scratch", folder, "tmpfs", NOSUID | NODEV,
          f"size={size},mode=700,uid={owner},gid={owner},nr_inodes=20000")  # fmt: skip
    if beside:
        mount(folder, shared, None, _BIND)


def open_beneath(folder: str, name: str) -> int:
    """Open a file in a folder for reading; no link on the way is followed.

    Raises
    ------
    OSError
        If there is no such file, or a link leads to it.
    """
    how = (ctypes.c_uint64 * 3)(
        os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        0,
        _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH,
    )
    here = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        size = ctypes.c_size_t(ctypes.sizeof(how))
        found: int = libc.syscall(_OPENAT2, here, name.encode(), ctypes.byref(how), size)
        _check(found, name)
    finally:
        os.close(here)
    return found


def never_again() -> None:
    """Keep programs that are started from here from ever getting a capability back."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        last = int(file.read())
    for capability in range(last + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def drop(owner: int) -> None:
    """Give up every capability and become ``owner``, for good."""
    if os.getuid() != owner:
        os.setgroups([])
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
    _check(libc.capset(_HEADER, _NO_CAPABILITIES), "dropping")


def warm() -> None:
    """Do what costs time once, so that it is not done again for every program.

    Other processes may not look into this one. Functions of the C library are found.
    """
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.setresgid(-1, -1, -1)
    os.setresuid(-1, -1, -1)
    libc.capset  # noqa: B018 - kept once it has been found
