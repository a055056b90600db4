"""Reading what is content-addressed: messages of transcripts, and artifacts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, select

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


def read_artifacts(connection: Connection, named: str | None) -> dict[str, bytes | np.ndarray]:
    """Return a unit's artifacts by name."""
    wanted = json.loads(named) if named else {}
    found = read_blobs(connection, [each["digest"] for each in wanted.values()])
    return {
        name: packing.artifact(found[each["digest"]], each["kind"]) for name, each in wanted.items()
    }
