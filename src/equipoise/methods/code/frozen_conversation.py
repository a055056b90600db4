"""ConvCodeBench: a conversation that was held is replayed with another subject (ICLR 2025).

The log of a reference subject is frozen: in each turn the subject on trial refines what the
reference had written, with the words that the reference was given. `BenchmarkAgreement` tells how
well that ranks models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    Outcome,
    Rng,
    ScoreSpec,
    Subject,
    Talk,
    Task,
    Unit,
    UnitError,
    UsageError,
    setting,
)
from equipoise.kit import progress
from equipoise.kit.language.shared import shared
from equipoise.kit.language.talk import converse
from equipoise.methods.code._feedback import Feedback, Scenario
from equipoise.methods.code._logs import Logged, log_files, read_log
from equipoise.methods.code._problems import Problem
from equipoise.methods.code._running import sandbox
from equipoise.methods.code._task import CodeTask, heard, loaded
from equipoise.methods.code._turns import Desk, Turn

__all__ = ["BenchmarkAgreement", "FrozenConversation", "static_credit"]


def static_credit(
    reference: Sequence[bool], target: Sequence[bool], *, initial: bool = False
) -> float:
    r"""Reciprocal rank of a target in a frozen conversation.

    Parameters
    ----------
    reference
        Whether the reference's program had passed after turns 0, 1, ...
    target
        Whether the target's refinement of the reference's program of turn :math:`t-1` passes, for
        turns :math:`t = 1, 2, ...`
    initial
        Whether the target's own first program passes.

    Returns
    -------
    float
        1 if the reference or the target passed at turn 0. Else, for the first :math:`t` at which
        either happens: :math:`1/t` if the reference had passed at :math:`t-1`, :math:`1/(t+1)` if
        the target passes at :math:`t`. 0 if neither ever does.

    Examples
    --------
    >>> static_credit([False, True], [False, False])
    0.5
    >>> static_credit([False, False], [False, True]) == 1 / 3
    True
    """
    if initial or (len(reference) and reference[0]):
        return 1.0
    for t, passes in enumerate(target, 1):
        if t - 1 < len(reference) and reference[t - 1]:
            return 1 / t
        if passes:
            return 1 / (t + 1)
    return 0.0


@dataclass(slots=True)
class _Replay:
    """What a replay came to: credit, whether it is the subject's own, and its turns."""

    credit: float
    own: bool
    turns: list[Turn]


async def _replay(desk: Desk, held: Sequence[Turn], first: Turn | None, turns: int) -> _Replay:
    """Replay a conversation that was held; ``first`` is the subject's own turn 0, if it has one."""
    found = [first] if first is not None else []
    if held[0].record.passed:
        return _Replay(1.0, False, found)
    if first is not None and first.record.passed:
        return _Replay(1.0, True, found)
    for t in range(1, turns + 1):
        if t > len(held):
            break  # the reference stopped: nothing was said any more
        if held[t - 1].record.passed:
            return _Replay(1 / t, False, found)
        said = held[t].feedback if t < len(held) else None
        turn = await desk.refine(held[t - 1], said)
        found.append(turn)
        if turn.record.passed:
            return _Replay(1 / (t + 1), True, found)
    return _Replay(0.0, False, found)


@dataclass(frozen=True)
class FrozenConversation(CodeTask):
    r"""Programs of a reference subject that another subject mends, turn by turn.

    In turn :math:`t` the subject refines the reference's program of turn :math:`t-1`, whatever it
    did before itself, with the words that the reference was given. Credit is that of
    `static_credit`; a problem that the reference solves counts, as the benchmark has it, so a good
    reference lifts everybody. ``own`` is 1 where the subject's own program earned the credit.

    Only words are frozen. Tests and compiler are asked anew about the reference's program, which
    gives what they gave then. The log is either read or made: ``reference`` holds the conversation
    first, once for each problem.

    Parameters
    ----------
    log
        A file that `write_log` wrote, or a folder with the official files, one a turn
        (``..._CF_EF_FULL_SEF_ITER=2.jsonl``), of which those of the feedback in force are read.
    reference
        A subject whose conversation is frozen, in place of a log.
    data, format, limit, programs, start
        As in `ConversationalCode`; the reference's turn 0 is in a log, or, for the official files,
        among ``programs``. With ``start: subject`` the subject on trial writes a first program of
        its own.
    problems, variants, faults
        Of the small problems.
    turns
        Most turns after turn 0.
    execution, words
        Feedback for subjects without a `FeedbackCombination`; a log must be of the same.
    teacher
        Who speaks with the reference.
    max_tokens, temperature, seconds
        As in `ConversationalCode`.

    References
    ----------
    ConvCodeWorld: Benchmarking Conversational Code Generation in Reproducible Feedback
    Environments, ICLR 2025.

    Examples
    --------
    >>> from equipoise.methods.code.small_repairer import SmallRepairer
    >>> task = FrozenConversation(reference=SmallRepairer(1), problems=2)
    >>> [unit.id.rpartition("-")[0] for unit in task.units(Rng(0))]
    ['sum_above_2', 'first_above_1']
    """

    log: str | None = setting(None)
    reference: Subject | None = None

    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("reciprocal_rank", True, 0, 1),
        ScoreSpec("solved", True, 0, 1),
        ScoreSpec("own", True, 0, 1),
        ScoreSpec("calls", False, 0),
        ScoreSpec("unreadable", False, 0),
    )

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.code.small_repairer import SmallRepairer

        return cls(reference=SmallRepairer(1), problems=3, faults=1, start="subject", turns=2)

    def check(self) -> None:
        super().check()
        if (self.log is None) == (self.reference is None):
            raise UsageError("FrozenConversation: give either a log or a reference.")
        _check_generates(self.reference, "FrozenConversation: reference")

    def content(self) -> Any:
        from equipoise.kit.data import content_hash

        files = [] if self.log is None else log_files(self.log, self.scenario)
        return [super().content(), [content_hash(str(each)) for each in files]]

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        """Replay one conversation."""
        problem = Problem.of(unit)
        scenario = heard(getattr(talk, "subject", None), self.scenario)
        held = await self._held(problem, scenario, rng)
        desk = self.desk(problem, talk.generate, scenario, rng)
        first = await self.begin(desk) if self.start == "subject" else None
        return _outcome(unit, await _replay(desk, held, first, self.turns))

    async def _held(self, problem: Problem, scenario: Scenario, rng: Rng) -> list[Turn]:
        if self.log is not None:
            return await self._from_log(problem, scenario, rng)
        assert self.reference is not None
        key = (
            repr(self.reference),
            repr(replace(self, reference=None, log="-")),
            problem,
            scenario,
        )
        if key not in _conversations:
            ask = shared(loaded(self.reference))
            _conversations[key] = await self.play(self.desk(problem, ask, scenario, rng))
        return _conversations[key]

    async def _from_log(self, problem: Problem, scenario: Scenario, rng: Rng) -> list[Turn]:
        assert self.log is not None
        rows = read_log(self.log, scenario).get(problem.id)
        if rows is None:
            raise UnitError(f"{self.log} has no conversation about {problem.id}.", "no_log")
        if rows[0].number == 1:
            if problem.initial is None:
                raise UnitError(
                    f"{self.log} has no turn 0 of {problem.id}; name its program in programs.",
                    "no_log",
                )
            rows = [Logged(0, problem.initial, None), *rows]
        desk = self.desk(problem, _nobody, scenario, rng)
        return [
            Turn(row.number, row.code, await desk.judge(row.code), Feedback(words=row.words))
            for row in rows
        ]


_conversations: dict[Any, list[Turn]] = {}


async def _nobody(request: Any) -> Any:
    raise AssertionError("a log is read and nobody asked")


def _outcome(unit: Unit, found: _Replay) -> Outcome:
    problem = Problem.of(unit)
    return Outcome(
        unit.id,
        {
            "reciprocal_rank": found.credit,
            "solved": float(found.credit > 0),
            "own": float(found.own),
            "calls": float(sum(turn.calls for turn in found.turns)),
            "unreadable": float(sum(len(turn.faults) for turn in found.turns)),
        },
        output=[turn.as_json(problem.id) for turn in found.turns],
        sandbox=sandbox().level,
    )


def _check_generates(subject: Subject | None, what: str) -> None:
    if subject is not None and not subject.provides & {Generates, GeneratesAsync}:
        raise UsageError(f"{what} must be a subject that generates text.")


@dataclass(frozen=True)
class BenchmarkAgreement(Task):
    """How a frozen benchmark scores models beside the live one; the reference is on trial.

    The subject on trial is the reference: it holds its conversations live, and they are frozen.
    Each unit is one of the ``models``, which plays every problem live and replays every frozen
    conversation, with the feedback of the arm. The scores are its MRR and Recall in both. The
    measure `static_live_rank_correlation` tells whether both rank the models alike.

    Parameters
    ----------
    models
        Subjects to score.
    conversations
        A `ConversationalCode` with the problems and the limits, and the feedback of arms without
        a `FeedbackCombination`.

    Examples
    --------
    >>> task = BenchmarkAgreement.tiny()
    >>> [unit.id for unit in task.units(Rng(0))]
    ['0-SmallRepairer', '1-SmallRepairer']
    """

    models: tuple[Subject, ...]
    conversations: Task

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    batch: ClassVar[int] = 64
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("static_reciprocal_rank", True, 0, 1),
        ScoreSpec("live_reciprocal_rank", True, 0, 1),
        ScoreSpec("static_solved", True, 0, 1),
        ScoreSpec("live_solved", True, 0, 1),
    )

    @classmethod
    def tiny(cls) -> Self:
        from equipoise.methods.code.conversational_code import ConversationalCode
        from equipoise.methods.code.small_repairer import SmallRepairer

        return cls((SmallRepairer(1), SmallRepairer(12)), ConversationalCode.tiny())

    def check(self) -> None:
        if not self.models:
            raise UsageError("BenchmarkAgreement: models must name at least one subject.")
        for model in self.models:
            _check_generates(model, "BenchmarkAgreement: each of models")
        if not isinstance(self.conversations, CodeTask) or hasattr(self.conversations, "log"):
            raise UsageError(
                "BenchmarkAgreement: conversations must be a conversational_code task."
            )

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a model, with the seed of its problems."""
        return [
            Unit(f"{n}-{type(model).__name__}", content={"model": n, "seed": rng.seed})
            for n, model in enumerate(self.models)
        ]

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Freeze the subject's conversations and score each model live and static."""
        task = self.conversations
        assert isinstance(task, CodeTask)
        scenario = heard(subject, task.scenario)
        problems = list(task.units(Rng(int(units[0].content["seed"])).child("problems")))
        progress.report("holding the reference's conversations", 0, len(units))
        freeze = _Freeze(task, scenario, {})
        _all(converse(freeze, subject, problems, Rng(0).child("reference")))
        found = []
        for done, unit in enumerate(units, 1):
            model = loaded(self.models[unit.content["model"]])
            both = _Both(task, scenario, freeze.held)
            rows = _all(converse(both, model, problems, Rng(0).child("model", unit.id)))
            names = [score.name for score in self.scores]
            means = {name: float(np.mean([row.scores[name] for row in rows])) for name in names}
            found.append(Outcome(unit.id, means, sandbox=sandbox().level))
            progress.report("scoring models live and static", done, len(units))
        return found

    def oracle(self) -> Any:
        """Return a reference that writes the right program at once."""
        return self.conversations.oracle()


def _all(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    for outcome in outcomes:
        if outcome.status == "error":
            raise UnitError(f"{outcome.unit}: {outcome.error}", outcome.error_kind or "error")
    return outcomes


@dataclass(frozen=True)
class _Freeze(Task):
    """Holds conversations and keeps their turns."""

    task: Any
    scenario: Any
    held: Any

    def units(self, rng: Rng) -> list[Unit]:
        return []

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        desk = self.task.desk(Problem.of(unit), talk.generate, self.scenario, rng)
        self.held[unit.id] = await self.task.play(desk)
        return Outcome(unit.id)


@dataclass(frozen=True)
class _Both(Task):
    """Plays a problem live, and replays what was frozen."""

    task: Any
    scenario: Any
    held: Mapping[str, list[Turn]]

    def units(self, rng: Rng) -> list[Unit]:
        return []

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        desk = self.task.desk(Problem.of(unit), talk.generate, self.scenario, rng)
        live = await self.task.play(desk)
        first = live[0] if self.task.start == "subject" else None
        static = await _replay(desk, self.held[unit.id], first, self.task.turns)
        solved = live[-1].record.passed
        return Outcome(
            unit.id,
            {
                "static_reciprocal_rank": static.credit,
                "live_reciprocal_rank": 1 / len(live) if solved else 0.0,
                "static_solved": float(static.credit > 0),
                "live_solved": float(solved),
            },
        )
