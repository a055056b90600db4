"""Tokens a second of SmolLM2 in conversations, 64 at once and one at a time, as JSON lines.

Each conversation has two turns of the user. Seconds of the clock and of the processor, on as many
threads as torch takes.

    python benchmarks/conversations.py
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from equipoise.core import Generates, Outcome, Request, Rng, ScoreSpec, Task, Unit
from equipoise.kit.language.loop import run
from equipoise.kit.language.talk import hold
from equipoise.methods.language.smollm2 import SmolLM2

MANY, FEW, NEW = 64, 3, 32
TOPICS = ("rivers", "bread", "the moon", "chess", "bridges", "rain", "maps", "clocks")


@dataclass(frozen=True)
class Chat(Task):
    """Asks about a topic and then for more; every answer has as many tokens as it may."""

    needs = frozenset({Generates})
    scores = (ScoreSpec("tokens", higher_is_better=None),)

    def units(self, rng: Rng):
        for number in range(MANY):
            yield Unit(str(number), f"{TOPICS[number % len(TOPICS)]}, part {number}")

    async def attempt(self, talk, unit, rng):
        messages = [{"role": "user", "content": f"Tell me about {unit.content}."}]
        for more in ("Tell me more.", ""):
            answer = await talk.generate(Request(tuple(messages), max_tokens=NEW))
            messages += [{"role": "assistant", "content": answer.text},
                         {"role": "user", "content": more}]  # fmt: skip
        return Outcome(unit.id, {"tokens": float(talk.usage.output_tokens)})


def measured(subject, units, concurrency: int) -> dict[str, float]:
    clock, processor = time.perf_counter(), time.process_time()
    outcomes = run(
        hold(Chat(), subject, units, lambda unit: Rng(0).child(unit.id), concurrency=concurrency)
    )
    tokens = sum(outcome.scores["tokens"] for outcome in outcomes)
    return {
        "a_second": tokens / (time.perf_counter() - clock),
        "a_processor_second": tokens / (time.process_time() - processor),
    }


def main() -> None:
    subject = SmolLM2().load(Rng(0))
    units = list(Chat().units(Rng(0)))
    measured(subject, units[:2], 2)
    one = measured(subject, units[:FEW], 1)
    many = measured(subject, units, MANY)
    for name in one:
        line = {"what": f"tokens {name.replace('_', ' ')}", "together": many[name],
                "alone": one[name], "ratio": many[name] / one[name]}  # fmt: skip
        rounded = {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in line.items()}
        print(json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
