"""Runs parts in a fresh process whose global generators were scrambled.

``python -m equipoise.checks._fresh ID...`` prints JSON: what each part did, and
whether it touched a global generator.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np


def scrambled() -> tuple[Any, ...]:
    """Set every loaded global generator to something unusual and return their states."""
    import random

    random.seed(987)
    np.random.seed(654)  # noqa: NPY002 - the global generator is what is looked at
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(321)
    return states()


def states() -> tuple[Any, ...]:
    """Return the states of the global generators."""
    import random

    legacy = np.random.get_state()  # noqa: NPY002
    found: tuple[Any, ...] = (random.getstate(), legacy[1].tobytes(), legacy[2])  # type: ignore[index]
    if "torch" in sys.modules:
        found += (sys.modules["torch"].get_rng_state().numpy().tobytes(),)
    return found


def look(name: str) -> dict[str, Any]:
    """Return what a part's import and work did in this process."""
    import contextlib
    import io

    from equipoise.catalog import catalog
    from equipoise.checks._probe import fingerprint

    entry = catalog().find(name)
    said = io.StringIO()
    before = scrambled()
    loaded = "torch" in sys.modules
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        entry.load()
    after = states()
    imported = {
        "said": said.getvalue(),
        "seeded": before != (after if loaded else after[: len(before)]),
    }
    scrambled()
    try:
        done: dict[str, Any] = {"fingerprint": fingerprint(entry)}
        # The first work imports libraries that draw when they load; the second tells.
        before = scrambled()
        fingerprint(entry)
        done["touched"] = before != states()
    except Exception as error:
        done = {"error": f"{type(error).__name__}: {error}"}
    return {"import": imported, **done}


@functools.cache
def fresh(names: tuple[str, ...]) -> dict[str, Any]:
    """Return what parts do in a process of their own."""
    environment = os.environ | {"PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "equipoise.checks._fresh", *names],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if found.returncode:
        raise RuntimeError(found.stderr)
    return dict(json.loads(found.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps({name: look(name) for name in sys.argv[1:]}))  # noqa: T201
