"""How much memory work takes at its peak."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


@dataclass
class Peak:
    """Most bytes that were taken beyond those at the start; None where no one can tell."""

    bytes: int | None = None


@contextmanager
def peak_memory(device: Any = "cpu") -> Iterator[Peak]:
    """Measure the most memory that the block takes beyond what was taken before.

    On an accelerator it is torch's count of that device; on a processor it is
    what this process holds, other threads included, and Linux must tell it; what
    was freed before is given back first, so that it cannot be used unseen.

    Parameters
    ----------
    device
        Where the work runs, as torch names it.

    Examples
    --------
    >>> with peak_memory() as peak:
    ...     rows = bytearray(50_000_000)
    >>> peak.bytes is None or 40_000_000 < peak.bytes < 90_000_000
    True
    """
    found = Peak()
    if str(device).startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        before: int | None = torch.cuda.memory_allocated(device)
    else:
        _give_back()
        before = _held("VmRSS") if _reset() else None
    yield found
    if before is None:
        return
    if str(device).startswith("cuda"):
        after: int | None = torch.cuda.max_memory_allocated(device)
    else:
        after = _held("VmHWM")
    found.bytes = None if after is None else max(0, after - before)


def _give_back() -> None:
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)


def _reset() -> bool:
    """Let the high-water mark of this process begin anew."""
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _held(name: str) -> int | None:
    try:
        found = re.search(
            rf"^{name}:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"), re.MULTILINE
        )
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
