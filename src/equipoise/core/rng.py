"""Explicit randomness: a stream is named by a path, never by the order of calls."""

from __future__ import annotations

import hashlib
import random
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Rng:
    """A named stream of random numbers.

    ``Rng(7).child("unit", "a")`` is the same stream whoever asks for it, in
    whatever order, in whichever process. Every call of `numpy`, `torch` or
    `python` starts that stream afresh, so keep the generator while you draw.

    Parameters
    ----------
    seed
        A non-negative integer, the trial's seed.
    path
        The names that lead to this stream; made by `child`.

    Examples
    --------
    >>> a = Rng(7).child("unit", "a")
    >>> int(a.numpy().integers(100)) == int(a.numpy().integers(100))
    True
    >>> a.seed_for_request() == Rng(7).child("unit", "b").seed_for_request()
    False
    """

    seed: int
    path: tuple[str, ...] = ()
    _digest: bytes = field(default=b"", repr=False)

    def child(self, *names: object) -> Rng:
        """Return the stream that ``names`` lead to from here."""
        texts = tuple(map(str, names))
        digest = self._digest
        for text in texts:
            digest = hashlib.sha256(digest + text.encode("utf-8", "surrogatepass")).digest()
        return Rng(self.seed, self.path + texts, digest)

    def sequence(self) -> np.random.SeedSequence:
        """Return the NumPy seed sequence of this stream."""
        key = struct.unpack(">4I", self._digest[:16]) if self._digest else ()
        return np.random.SeedSequence(self.seed, spawn_key=key)

    def numpy(self) -> np.random.Generator:
        """Return a NumPy generator at the start of this stream."""
        return np.random.default_rng(self.sequence())

    def torch(self, device: str = "cpu") -> torch.Generator:
        """Return a torch generator at the start of this stream."""
        import torch

        return torch.Generator(device=device).manual_seed(self.seed_for_request())

    def python(self) -> random.Random:
        """Return a standard-library generator at the start of this stream."""
        return random.Random(int(self.sequence().generate_state(1, np.uint64)[0]))

    def seed_for_request(self) -> int:
        """Return a 31-bit seed, the size every model server accepts."""
        return int(self.sequence().generate_state(1, np.uint32)[0] >> 1)
