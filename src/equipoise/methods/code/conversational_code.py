"""ConvCodeWorld: programs mended turn by turn with nine kinds of feedback (ICLR 2025).

The nine arms are those of `FeedbackCombination`; `ConversationalCode` is live, and a conversation
that was held is replayed by `FrozenConversation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from equipoise.core import Outcome, Rng, ScoreSpec, Talk, Treatment, Unit, UsageError, one_of
from equipoise.kit.language.wrap import rewritten
from equipoise.methods.code._feedback import EXECUTIONS, PARTIAL, WORDS, Scenario
from equipoise.methods.code._problems import Problem
from equipoise.methods.code._running import sandbox
from equipoise.methods.code._task import CodeTask, Heard, heard
from equipoise.methods.code._turns import Turn

__all__ = ["ConversationalCode", "FeedbackCombination", "write_log"]

SCORES = (
    ScoreSpec("reciprocal_rank", True, 0, 1),
    ScoreSpec("solved", True, 0, 1),
    ScoreSpec("solved_at_0", True, 0, 1),
    ScoreSpec("turns", False, 0),
    ScoreSpec("calls", False, 0),
    ScoreSpec("repairs", None, 0),
    ScoreSpec("shown_only", None, 0, 1),
    ScoreSpec("leak", False, 0, 1),
    ScoreSpec("unreadable", False, 0),
)


@dataclass(frozen=True)
class FeedbackCombination(Treatment):
    """One of the nine kinds of feedback that a subject gets on its program.

    The subject stays what it is; `ConversationalCode` and `FrozenConversation` read the mark and
    give it this feedback in place of their own. What compiling says is always part of it. Put this
    treatment last.

    Parameters
    ----------
    execution
        What is shown of the tests: ``none``, ``partial`` (the first three methods of the test
        class) or ``full``.
    words
        ``none``, ``novice`` (a layman who sees no more than the messages) or ``expert`` (who
        knows a right program and must not give it away).

    References
    ----------
    ConvCodeWorld: Benchmarking Conversational Code Generation in Reproducible Feedback
    Environments, ICLR 2025.

    Examples
    --------
    >>> from equipoise.core import Request
    >>> from equipoise.kit.language.canned import Canned
    >>> treated = FeedbackCombination("partial", "expert").apply(Canned(lambda r: "4"), Rng(0))
    >>> treated.generate([Request("2+2?")])[0].text, FeedbackCombination("full", "expert").number
    ('4', 9)
    """

    execution: str = one_of(*EXECUTIONS, default="full")
    words: str = one_of(*WORDS, default="none")

    @property
    def number(self) -> int:
        """The number of this combination in the paper, from 1 to 9."""
        return self._scenario.number

    @property
    def _scenario(self) -> Scenario:
        return Scenario(self.execution, self.words)  # type: ignore[arg-type]

    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return the subject with a mark."""
        return rewritten(subject, Heard(self._scenario))


@dataclass(frozen=True)
class ConversationalCode(CodeTask):
    r"""Programs that a subject mends turn by turn, given feedback on what it wrote.

    Turn 0 is a first program. In each turn after it the subject is shown the problem, the program
    before and the present feedback, nothing older, and writes the whole program anew. A program
    that does not compile is first repaired from the error alone, up to three times inside the
    turn, unless there are novice words; the tests shown afterwards are still those of the program
    before. Where nothing is visible and nothing said, the program stays. Once all tests pass, the
    conversation is over.

    With :math:`k` the first turn that passes, counted from 1 for turn 0, the first score is
    :math:`1/k`, or 0 if none does; its mean is the MRR. ``solved`` is 1 if there is one; its mean
    is the Recall. ``solved_at_0`` is the same of turn 0 alone, ``turns`` how many there were
    after turn 0, all of them where none passed; ``calls`` counts the subject's answers and
    ``repairs`` those that repaired; ``shown_only`` is 1 where the last program passes the first
    three tests and fails a hidden one; ``leak`` is the greatest share of the reference's 4-grams
    of tokens that expert words gave away; ``unreadable`` counts answers that held no program in a
    Python block.

    Programs run in the sandbox and nowhere else. A time limit is of processor time.

    Parameters
    ----------
    data
        A JSONL or Parquet file (``.gz`` too) or ``hf:NAME_OR_FOLDER`` in the format of
        BigCodeBench, HumanEval or MBPP; None makes small problems with spoilt programs.
    format
        ``bigcodebench``, ``humaneval``, ``mbpp``, or ``auto`` to go by the columns.
    limit
        Read only the first so many rows.
    programs
        File with the programs of turn 0: ``task_id`` and ``solution``.
    start
        ``given``: turn 0 is the program given, where there is one. ``subject``: it writes its own.
    problems
        How many of the small problems.
    variants
        Spoilt programs of each; they form a cluster.
    faults
        Most faults in a spoilt program; from none to this are equally likely.
    turns
        Most turns after turn 0.
    execution, words
        Feedback for subjects without a `FeedbackCombination`.
    teacher
        A language model that speaks the words; None takes words made by rule: what a failing
        assertion says, put plainly, and where and in what kind the syntax tree deviates.
    max_tokens, temperature
        Of the subject's answers.
    seconds
        Of processor time for loading a program, and for each test.

    References
    ----------
    ConvCodeWorld: Benchmarking Conversational Code Generation in Reproducible Feedback
    Environments, ICLR 2025.

    Examples
    --------
    >>> task = ConversationalCode(problems=2, faults=0)
    >>> [unit.id.rpartition("-")[0] for unit in task.units(Rng(0))]
    ['sum_above_2', 'first_above_1']
    """

    scores: ClassVar[tuple[ScoreSpec, ...]] = SCORES

    @classmethod
    def tiny(cls) -> Self:
        return cls(problems=3, start="subject", turns=2)

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        """Hold one conversation about a program."""
        problem = Problem.of(unit)
        scenario = heard(getattr(talk, "subject", None), self.scenario)
        found = await self.play(self.desk(problem, talk.generate, scenario, rng))
        last = found[-1]
        return Outcome(
            unit.id,
            scores_of(found, problem, self.turns),
            status="limit" if last.cut and not last.record.passed else "ok",
            output=[turn.as_json(problem.id) for turn in found],
            sandbox=sandbox().level,
        )


def scores_of(found: list[Turn], problem: Problem, turns: int) -> dict[str, float]:
    """Return the scores of a conversation."""
    last = found[-1]
    first = problem.suite.names[:PARTIAL]
    solved = last.record.passed
    return {
        "reciprocal_rank": 1 / len(found) if solved else 0.0,
        "solved": float(solved),
        "solved_at_0": float(found[0].record.passed),
        "turns": float(len(found) - 1 if solved else turns),
        "calls": float(sum(turn.calls for turn in found)),
        "repairs": float(sum(turn.repairs for turn in found)),
        "shown_only": float(not solved and not last.record.failing(first)),
        "leak": max(turn.leak for turn in found),
        "unreadable": float(sum(len(turn.faults) for turn in found)),
    }


def write_log(outcomes: Iterable[Outcome], path: str) -> int:
    """Write what `ConversationalCode` gave as a log that `FrozenConversation` reads.

    One JSON object a turn: the columns of the official logs (``task_id``, ``solution``,
    ``compilation_feedback``, ``execution_feedback``, ``user_feedback``, ``log``, ``iteration``)
    and our own.

    Parameters
    ----------
    outcomes
        Of one arm, one a problem.
    path
        A ``.jsonl`` file; it is written anew.

    Returns
    -------
    int
        Lines written.

    Raises
    ------
    UsageError
        If an outcome is none of this task's.
    """
    lines = []
    for outcome in outcomes:
        if outcome.status == "error":
            continue
        if not isinstance(outcome.output, list):
            raise UsageError(f"write_log: unit {outcome.unit} has no turns in its output.")
        lines += [json.dumps(turn) for turn in outcome.output]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)
