"""How problems are put to a subject and its answers scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from equipoise.core import Generation, Outcome, Request, ScoreSpec, Unit
from equipoise.kit.language.normalise import last_number
from equipoise.kit.language.talk import kept_message

INSTRUCTION = "Solve the problem step by step and end with the answer as a number."

SCORES = (
    ScoreSpec("correct", True, 0, 1),
    ScoreSpec("depth", None, unit="steps"),
    ScoreSpec("width", None, unit="leaves"),
    ScoreSpec("nonlinear", None, 0, 1),
    ScoreSpec("movement", None, unit="leaves"),
    ScoreSpec("tokens", None, unit="prompt tokens"),
    ScoreSpec("cut", None, 0, 1),
)


def perform(
    subject: Any, units: Sequence[Unit], instruction: str, max_tokens: int | None
) -> list[Outcome]:
    requests = [
        Request(
            [{"role": "user", "content": prompt(unit, instruction)}],
            max_tokens=max_tokens or 64 + 40 * unit.content["width"],
        )
        for unit in units
    ]
    answers = subject.generate(requests)
    return [
        _outcome(unit, request, answer)
        for unit, request, answer in zip(units, requests, answers, strict=True)
    ]


def _outcome(unit: Unit, request: Request, answer: Generation) -> Outcome:
    asked = unit.content
    scores = {
        "correct": float(last_number(answer.text) == unit.target["answer"]),
        "depth": float(asked["depth"]),
        "width": float(asked["width"]),
        "nonlinear": float(asked["depth"] > 1 and asked["width"] > asked["depth"] + 1),
        "movement": float(asked.get("movement", 0)),
        "cut": float("length" in answer.finish[:1]),
    }
    if answer.usage.input_tokens:
        scores["tokens"] = float(answer.usage.input_tokens)
    return Outcome(
        unit.id,
        scores,
        output=answer.text,
        transcript=[*request.prompt, kept_message(answer)],
        usage=answer.usage,
    )


def prompt(unit: Unit, instruction: str) -> str:
    return instructed(f"{unit.content['problem']} {unit.content['question']}", instruction)


def instructed(text: str, instruction: str) -> str:
    return f"{instruction}\n\n{text}" if instruction else text
