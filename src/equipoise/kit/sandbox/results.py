"""What a program may use up, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from equipoise.core import UsageError

Level = Literal["bubblewrap", "namespaces", "none"]
Status = Literal["done", "cpu", "wall", "memory", "processes", "output"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use up.

    Judge programs by ``cpu``: it is the same on a slow machine and on a busy one. ``wall``
    ends programs that wait; None allows four times the processor time and five seconds.

    Parameters
    ----------
    cpu
        Seconds of processor time, all its processes together.
    wall
        Seconds on the clock.
    memory
        Bytes of its own, all its processes together, and address space of each.
    processes
        At one time.
    open_files
        At one time, in each process.
    file_size
        Bytes of the largest file.
    scratch
        Bytes of all files together.
    output
        Bytes kept of standard output and of standard error; more ends the program.

    Examples
    --------
    >>> Limits(cpu=2.0).seconds
    13.0
    """

    cpu: float = 10.0
    wall: float | None = None
    memory: int = 512 * _MIB
    processes: int = 16
    open_files: int = 64
    file_size: int = 16 * _MIB
    scratch: int = 64 * _MIB
    output: int = 64 * 1024

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"Limits: {name} must be above 0, got {value!r}.")

    @property
    def seconds(self) -> float:
        """Seconds on the clock after which the program is ended."""
        return 4 * self.cpu + 5 if self.wall is None else self.wall

    def as_json(self) -> dict[str, float]:
        """Return the numbers that the zygote holds a program to."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return found | {"wall": self.seconds}


@dataclass(frozen=True, slots=True)
class Completed:
    """What came of a program.

    Parameters
    ----------
    status
        ``done`` when it ended by itself, else the limit that ended it.
    exit
        Exit code, minus the signal's number where one ended it, None where a limit did.
    stdout, stderr
        What it wrote, as bytes, cut where ``output`` ends.
    cpu, wall
        Seconds it took.
    memory
        Most bytes of its own that were seen; 0 for a program too short to look at.
    files
        Those asked for that are there as plain files.
    level
        What held it.
    """

    status: Status
    exit: int | None
    stdout: bytes
    stderr: bytes
    cpu: float
    wall: float
    memory: int
    level: Level
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.status == "done" and self.exit == 0

    @property
    def text(self) -> str:
        """Standard output as text that a terminal or page may show."""
        return plain_text(self.stdout)

    @property
    def errors(self) -> str:
        """Standard error as text that a terminal or page may show."""
        return plain_text(self.stderr)

    def why(self) -> str:
        """Say in a sentence how it ended."""
        if self.status == "done":
            if self.exit == 0:
                return "It ended well."
            if self.exit is not None and self.exit < 0:
                return f"It was ended by signal {-self.exit}."
            return f"It ended with exit code {self.exit}."
        return {
            "cpu": f"It used up its processor time ({self.cpu:.1f} s).",
            "wall": f"It did not end within {self.wall:.1f} s.",
            "memory": "It used up its memory.",
            "processes": "It started too many processes.",
            "output": "It wrote too much.",
        }[self.status]


_ESCAPES = re.compile(
    "\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\|$)"  # titles, links, clipboards
    "|\x1b[P^_X][^\x1b]*(?:\x1b\\\\|$)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def plain_text(data: bytes) -> str:
    r"""Return output as text: UTF-8, no terminal sequences, no control or direction marks.

    Examples
    --------
    >>> plain_text(b"\x1b[31mred\x1b[0m\r\nok\x07")
    'red\nok'
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return _CONTROLS.sub("", _ESCAPES.sub("", text))
