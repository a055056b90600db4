"""200 dialogues at once in the shop, at the size of the released database: calls a second, memory.

Scripted agents and customers, so that what is measured is ours: tools, database, rewards, and the
loop that holds the dialogues. With ``--data`` the released retail and airline databases are read
and every annotated action is replayed, once for each of 200 episodes that live side by side.
Prints JSON lines; each part runs in a process of its own.

    python benchmarks/tau_dialogues.py [--dialogues 200] [--rounds 5] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from equipoise.core import Rng
from equipoise.kit.language.loop import run
from equipoise.kit.language.talk import hold
from equipoise.methods.interactive._tau.official import Folder
from equipoise.methods.interactive.tau_bench import ScriptedClerk, ToolAgentUser


def generated(dialogues: int, rounds: int) -> dict[str, float]:
    """Hold all dialogues at once, several times over."""
    task = ToolAgentUser(tasks=dialogues, customers=500)
    clerk = ScriptedClerk(slip=0.1).load(Rng(0))
    units = list(task.units(Rng(0)))
    began, spent = time.perf_counter(), time.process_time()
    calls = 0
    for number in range(rounds):
        rng = Rng(number)
        found = run(
            hold(
                task, clerk, units, lambda unit, rng=rng: rng.child(unit.id), concurrency=dialogues
            )
        )
        assert all(each.status == "ok" for each in found)
        calls += sum(m.get("role") == "tool" for each in found for m in each.transcript)
    wall, cpu = time.perf_counter() - began, time.process_time() - spent
    return {
        "dialogues": dialogues * rounds,
        "calls": calls,
        "calls_a_second": calls / wall,
        "calls_a_cpu_second": calls / cpu,
    }


def replayed(dialogues: int, data: str, domain: str) -> dict[str, float]:
    """Replay annotated actions in episodes that all stay alive, and compare with the goal."""
    folder = Folder(data, domain, "tau_dialogues")
    records, cases = folder.records(), folder.cases("test")
    from equipoise.methods.interactive._tau.airline import Airline
    from equipoise.methods.interactive._tau.retail import Retail

    kind = Retail if domain == "retail" else Airline
    began, calls, alive = time.perf_counter(), 0, []
    for number in range(dialogues):
        episode, goal = kind(records), kind(records)
        case = cases[number % len(cases)]
        for each in (episode, goal):
            calls += len(each.replay(case.actions))
        assert episode.database.digest() == goal.database.digest()
        alive.append(episode)
    return {"episodes": len(alive), "calls": calls,
            "calls_a_second": calls / (time.perf_counter() - began)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dialogues", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data")
    parser.add_argument("--part", choices=["generated", "retail", "airline"])
    given = parser.parse_args()
    if given.part is None:
        for part in ("generated", *(("retail", "airline") if given.data else ())):
            command = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--part", part]
            subprocess.run(command, check=True)
        return
    if given.part == "generated":
        found = generated(given.dialogues, given.rounds)
    else:
        found = replayed(given.dialogues, given.data, given.part)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = {name: round(value, 1) for name, value in found.items()}
    print(json.dumps({"benchmark": "tau_dialogues", "part": given.part} | told
                     | {"peak_mib": round(peak, 1)}))  # fmt: skip


if __name__ == "__main__":
    main()
