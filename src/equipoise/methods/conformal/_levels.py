"""Error rates as parameters of a task, and the scores that go with them."""

from __future__ import annotations

from typing import Any

from equipoise.core import ScoreSpec, UsageError

_PREFIX = "covered_at_"


def level_score(alpha: float) -> str:
    """Return the name of the score that says whether a row is covered at ``alpha``."""
    return f"{_PREFIX}{alpha:g}"


def level_of(score: str) -> float | None:
    """Return the error rate that a score is about, None where it is about none."""
    return float(score.removeprefix(_PREFIX)) if score.startswith(_PREFIX) else None


def check_levels(task: Any) -> None:
    """Refuse error rates outside (0, 1), and declare a score for each of ``alphas``."""
    who = type(task).__name__
    for name, given in (("alpha", (task.alpha,)), ("alphas", task.alphas)):
        for alpha in given:
            if not 0 < alpha < 1:
                raise UsageError(
                    f"{who}: {name} must lie strictly between 0 and 1 (0.1 asks for 90 % "
                    f"coverage), got {alpha:g}."
                )
    if len(set(map(level_score, task.alphas))) < len(task.alphas):
        raise UsageError(f"{who}: alphas must differ, got {list(task.alphas)}.")
    more = tuple(ScoreSpec(level_score(alpha), low=0.0, high=1.0) for alpha in task.alphas)
    object.__setattr__(task, "scores", type(task).scores + more)
