"""A seccomp filter: system calls that no program under test has a use for fail.

Standard library only: it is loaded inside the sandbox. Most calls pass; those that reach out
of the sandbox, into other processes, or into rarely used corners of the kernel are refused.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

# Name of a call: its number on x86_64 and on aarch64, None where there is none.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280),
    "chroot": (161, 51), "clock_adjtime": (305, 266), "clock_settime": (227, 112),
    "delete_module": (176, 106), "finit_module": (313, 273), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "lookup_dcookie": (212, 18),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "mq_open": (240, 180), "msgget": (68, 186), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "request_key": (249, 218), "semget": (64, 190),
    "setdomainname": (171, 162), "shmget": (29, 194),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "uselib": (134, None), "vhangup": (153, 58),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_AF_UNIX, _TIOCSTI, _TIOCLINUX = 1, 0x5412, 0x541C
_X32 = 0x40000000  # the other set of numbers that an x86_64 kernel takes

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def supported() -> bool:
    """Say whether the numbers of this machine's system calls are known."""
    return platform.machine() in _ARCHITECTURES


def program() -> bytes:
    """Return the filter as BPF instructions.

    Raises
    ------
    OSError
        On a machine whose numbers are not known.
    """
    try:
        column, audit = _ARCHITECTURES[platform.machine()]
    except KeyError:
        raise OSError(errno.ENOSYS, f"no filter for {platform.machine()}") from None
    refuse, absent = _fail(errno.EPERM), _fail(errno.ENOSYS)
    code = [
        _op(_LOAD, _ARCHITECTURE_AT),
        _op(_EQUAL, audit, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER_AT),
        _op(_AT_LEAST, _X32, 0, 1),
        _op(_RETURN, _KILL),
    ]
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            code += [_op(_EQUAL, number, 0, 1), refuse]
    # glibc falls back to clone, whose flags can be looked at.
    code += [_op(_EQUAL, _CLONE3[column], 0, 1), absent]
    code += _argument(_CLONE[column], 0, [_op(_ANY_BIT, _NEW_NAMESPACES, 0, 1), refuse])
    family = [_op(_EQUAL, _AF_UNIX, 1, 0), _fail(errno.EAFNOSUPPORT)]
    code += _argument(_SOCKET[column], 0, family)
    typed = [_op(_EQUAL, _TIOCSTI, 1, 0), _op(_EQUAL, _TIOCLINUX, 0, 1), refuse]
    code += _argument(_IOCTL[column], 1, typed)
    return b"".join([*code, _op(_RETURN, _ALLOW)])


def _op(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _fail(number: int) -> bytes:
    return _op(_RETURN, 0x00050000 | number)


def _argument(number: int, place: int, test: list[bytes]) -> list[bytes]:
    """Return instructions that try one argument of one call, and let it pass otherwise."""
    inside = [_op(_LOAD, _ARGUMENTS_AT + 8 * place), *test, _op(_RETURN, _ALLOW)]
    return [_op(_EQUAL, number, 0, len(inside)), *inside]


class Filter:
    """A filter made ready, so that to put a process under it costs two calls.

    Parameters
    ----------
    libc
        The C library.
    code
        What `program` returns.
    """

    def __init__(self, libc: ctypes.CDLL, code: bytes) -> None:
        self._libc = libc
        self._buffer = ctypes.create_string_buffer(code, len(code))
        # struct sock_fprog: a count, room to the next pointer, a pointer.
        packed = struct.pack("@HxxxxxxQ", len(code) // 8, ctypes.addressof(self._buffer))
        self._program = ctypes.create_string_buffer(packed, len(packed))

    def install(self) -> None:
        """Put this process and its children under the filter for good.

        Raises
        ------
        OSError
            If the kernel refuses.
        """
        if self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or self._libc.prctl(
            _PR_SET_SECCOMP, _MODE_FILTER, self._program, 0, 0
        ):
            raise OSError(ctypes.get_errno(), "the kernel takes no seccomp filter")
