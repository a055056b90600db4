"""Reading what is content-addressed: messages of transcripts, and artifacts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, func, select

from equipoise.core import Json, RunError
from equipoise.store import _packing as packing
from equipoise.store._tables import blobs


def read_blobs(connection: Connection, digests: Sequence[str]) -> dict[str, bytes]:
    """Return blobs by digest, each checked against its name."""
    found = {}
    wanted = sorted(set(digests))
    for start in range(0, len(wanted), 500):
        query = select(blobs.c.digest, blobs.c.codec, blobs.c.data).where(
            blobs.c.digest.in_(wanted[start : start + 500])
        )
        for name, codec, data in connection.execute(query):
            found[name] = zlib.decompress(data) if codec == "zlib" else bytes(data)
    for name in wanted:
        if name not in found or packing.digest(found[name]) != name:
            raise RunError(f"The store is damaged: the text or artifact {name[:12]} is not whole.")
    return found


def read_transcript(connection: Connection, packed: bytes | None) -> list[Json]:
    """Return the messages of a transcript."""
    messages = packing.unpack(packed) or []
    found = read_blobs(connection, [each for each in messages if isinstance(each, str)])
    return [json.loads(found[each]) if isinstance(each, str) else each for each in messages]


@dataclass(frozen=True, slots=True)
class Large:
    """An artifact too large to be read by the way: its first bytes, and the bytes it takes."""

    head: bytes
    stored: int


def read_artifacts(
    connection: Connection, named: str | None, largest: int | None = None
) -> dict[str, bytes | np.ndarray | Large]:
    """Return a unit's artifacts by name; those that take more than ``largest`` as `Large`."""
    wanted = json.loads(named) if named else {}
    digests = [each["digest"] for each in wanted.values()]
    left = {} if largest is None else _large(connection, digests, largest)
    found = read_blobs(connection, [each for each in digests if each not in left])
    return {
        name: left.get(each["digest"]) or packing.artifact(found[each["digest"]], each["kind"])
        for name, each in wanted.items()
    }


def _large(connection: Connection, digests: Sequence[str], largest: int) -> dict[str, Large]:
    c = blobs.c
    size = func.length(c.data)
    query = select(c.digest, c.codec, size, func.substr(c.data, 1, 1_024))
    rows = connection.execute(query.where(c.digest.in_(digests), size > largest))
    return {
        digest: Large(zlib.decompressobj().decompress(head, 64) if codec == "zlib" else head, n)
        for digest, codec, n, head in rows
    }
