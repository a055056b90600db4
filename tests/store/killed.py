"""Kills a writing process at random moments, many times; run by test_robust.py.

Children are forked, so that a kill costs milliseconds and not an import. Each
goes on where the store says the one before it stopped, as a resumed trial
does, and reports a shard only after `add` returned.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

import numpy as np

from equipoise.core import Outcome, ScoreSpec, Unit
from equipoise.store import Store

SHARD, UNITS, REPEATS = 25, 500, 100


def write(path, pipe):
    with Store.open(path) as store:
        run = store.begin_run("killed", "", {})
        arm = store.arm("a", "a", {})
        task = store.task("t", "t", {}, [ScoreSpec("s")])
        numbers = store.add_units(task, [Unit(f"u{i}") for i in range(UNITS)])
        mask = store.done_mask(arm, task, 0, numbers, REPEATS)
        for repeat in range(REPEATS):
            todo = np.flatnonzero(~mask[:, repeat])
            for start in range(0, len(todo), SHARD):
                rows = [
                    (
                        int(i),
                        Outcome(
                            f"u{i}",
                            {"s": i + repeat / 100},
                            transcript=[{"role": "user", "content": f"{repeat} {i} " * 60}],
                        ),
                    )
                    for i in todo[start : start + SHARD]
                ]
                store.add(run, arm, task, 0, rows, repeat)
                os.write(pipe, f"{repeat} {' '.join(str(i) for i, _ in rows)}\n".encode())


def main(path, kills, seed):
    rng = random.Random(seed)
    acknowledged = set()
    killed = 0
    while killed < kills:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read_end)
                write(path, write_end)
            finally:
                os._exit(0)
        os.close(write_end)
        if rng.random() < 0.7:  # while it writes; else wherever it is by then
            select.select([read_end], [], [], 30)
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            raise SystemExit("the writer came to its end; give it more to do")
        with os.fdopen(read_end) as said:
            for line in said.read().split("\n")[:-1]:
                repeat, *units = map(int, line.split())
                acknowledged |= {(unit, repeat) for unit in units}
    with Store.open(path) as store:
        faults = store.check()
        found = store.outcomes(1, 1)
        keys = list(zip(found.unit.tolist(), found.repeat.tolist(), strict=True))
        right = np.array_equal(found.score("s"), found.unit + found.repeat / 100)
        rows = store.costs(1, 1)["attempts"]
        unit, repeat = keys[-1]
        last = store.unit(1, 1, f"u{unit}", repeat=repeat)["transcript"]
    found = {
        "killed": killed,
        "faults": faults,
        "acknowledged": len(acknowledged),
        "kept": len(keys),
        "lost": len(acknowledged - set(keys)),
        "doubled": rows - len(set(keys)),
        "right": bool(right) and last[0]["content"].startswith(f"{repeat} {unit} "),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
