"""The turns of a conversation about one program: feedback, repair, refinement, judgement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from equipoise.core import Generation, Message, Request, Rng, RunError, UnitError
from equipoise.methods.code._feedback import (
    PASSED_ALL,
    Feedback,
    Scenario,
    cut_words,
    execution_text,
    refine_request,
    shown_tests,
    teacher_request,
)
from equipoise.methods.code._problems import Problem
from equipoise.methods.code._reading import NO_ERRORS, read_program, syntax_error, with_header
from equipoise.methods.code._running import Record, run_tests_async, sandbox
from equipoise.methods.code._words import expert_words, leaked, novice_words

REPAIRS = 3
"""Most repairs of what does not compile, inside one turn."""

Ask = Callable[[Request], Awaitable[Generation]]
Words = Callable[[str, Feedback, Record], Awaitable["str | None"]]


@dataclass(slots=True)
class Turn:
    """What one turn made of a program.

    Parameters
    ----------
    number
        From 0, where the first program comes from.
    code
        The program after it.
    record
        What its tests said.
    feedback
        What was said about the program before.
    repairs, calls
        Requests that mended what does not compile, and all requests.
    faults
        What was wrong with answers, such as ``no_block``.
    leak
        Share of the reference that the words gave away.
    cut
        Whether an answer ran into its limit of tokens.
    """

    number: int
    code: str
    record: Record
    feedback: Feedback = field(default_factory=Feedback)
    repairs: int = 0
    calls: int = 0
    faults: list[str] = field(default_factory=list)
    leak: float = 0.0
    cut: bool = False

    def as_json(self, task: str) -> dict[str, Any]:
        """Return a line of a log: the official columns, and our own."""
        return {
            "task_id": task,
            "solution": self.code,
            "compilation_feedback": self.feedback.compilation,
            "execution_feedback": self.feedback.execution,
            "user_feedback": self.feedback.words,
            "log": None,
            "iteration": self.number,
            "status": "pass" if self.record.passed else "fail",
            "fault": self.record.fault,
            "failing": sorted(self.record.failing()),
            "repairs": self.repairs,
            "calls": self.calls,
            "answer_faults": self.faults,
        }


@dataclass(frozen=True, slots=True)
class Desk:
    """What turns need: the problem, who is asked, who speaks, and limits.

    Parameters
    ----------
    problem
        The problem.
    ask
        Asks the subject.
    scenario
        What feedback there is.
    words
        Gives words on a program, given what else is said of it.
    max_tokens, temperature
        Of the subject's answers.
    seconds
        Of processor time for each test.
    """

    problem: Problem
    ask: Ask
    scenario: Scenario
    words: Words
    max_tokens: int
    temperature: float
    seconds: float

    async def judge(self, code: str) -> Record:
        """Return what the tests say; what the reference cannot pass is not held against a program.

        Raises
        ------
        UnitError
            Of kind ``reference`` if the program fails and the reference does too, as where a
            library is missing; of kind ``tests`` if the test code works for neither.
        """
        suite = self.problem.suite
        try:
            found = await run_tests_async(code, suite, seconds=self.seconds)
        except UnitError as error:
            if error.kind != "tests":
                raise
            tests = {name: ("fail", str(error)) for name in suite.names}
            found = Record(tests, "tests", str(error), sandbox().level)  # type: ignore[arg-type]
        if not found.passed:
            known = await run_tests_async(self.problem.reference, suite, seconds=self.seconds)
            if not known.passed:
                text = known.reason or next(iter(known.failing().values()), "no test ran")
                why = text.strip().splitlines()[-1]
                raise UnitError(f"The reference of {self.problem.id} fails: {why}", "reference")
        return found

    async def answer(self, messages: list[Message], turn: Turn, header: str) -> None:
        """Ask once and take the program of the answer."""
        said = await self.ask(
            Request(tuple(messages), max_tokens=self.max_tokens, temperature=self.temperature)
        )
        found = read_program(said.text)
        turn.calls += 1
        turn.cut = turn.cut or said.finish[:1] == ("length",)
        if found.fault:
            turn.faults.append(found.fault)
        turn.code = with_header(header, found.code)

    async def begin(self, messages: list[Message] | None) -> Turn:
        """Return turn 0: the program given, or the subject's own where it is asked."""
        nothing = Record({})
        turn = Turn(0, self.problem.initial or "", nothing)
        if messages is not None:
            await self.answer(messages, turn, self.problem.header)
        turn.record = await self.judge(turn.code)
        return turn

    async def refine(self, before: Turn, logged: Feedback | None = None) -> Turn:
        """Return the turn after ``before``, whose program has not passed.

        Parameters
        ----------
        before
            The turn before.
        logged
            Feedback that was given on this program in a frozen conversation: its words are
            given again.
        """
        problem, scenario = self.problem, self.scenario
        turn = Turn(before.number + 1, before.code, before.record)
        layman = scenario.words == "novice"
        error = syntax_error(turn.code)
        while error is not None and not layman:
            # The third repair ends the turn, whether or not its program compiles.
            await self._repair(error, turn)
            if turn.repairs == REPAIRS:
                turn.feedback = Feedback(error)
                turn.record = await self.judge(turn.code)
                return turn
            error = syntax_error(turn.code)
        # What is shown of the tests belongs to the program that they ran, even after a repair.
        execution = execution_text(before.record, problem.suite.names, scenario.execution)
        turn.feedback = Feedback(error or NO_ERRORS, execution)
        if scenario.words != "none":
            words = (
                await self.words(turn.code, turn.feedback, before.record)
                if logged is None
                else logged.words
            )
            turn.feedback = Feedback(error or NO_ERRORS, execution, words)
            if words and scenario.words == "expert":
                shown = f"{problem.prompt}\n{turn.code}"
                turn.leak = leaked(words, problem.reference, shown)
        if not turn.feedback.silent:
            messages = refine_request(problem.prompt, turn.code, turn.feedback)
            await self.answer(messages, turn, problem.header)
        turn.record = await self.judge(turn.code)
        return turn

    async def _repair(self, error: str, turn: Turn) -> None:
        messages = refine_request(self.problem.prompt, turn.code, Feedback(error))
        await self.answer(messages, turn, self.problem.header)
        turn.repairs += 1


def simulated(problem: Problem, scenario: Scenario) -> Words:
    """Return words that need no language model."""
    shown = shown_tests(problem.suite.names, scenario.execution)

    async def words(code: str, feedback: Feedback, record: Record) -> str | None:
        if scenario.words == "expert":
            return expert_words(code, problem.reference)
        return novice_words(_error(feedback), record.failing(shown))

    return words


def taught(problem: Problem, scenario: Scenario, ask: Ask, rng: Rng) -> Words:
    """Return the words of a language model that plays the layman or the expert."""
    expert = scenario.words == "expert"

    async def words(code: str, feedback: Feedback, record: Record) -> str | None:
        # A layman to whom nothing is visible has nothing to say.
        if not expert and feedback.execution in (None, PASSED_ALL) and not _error(feedback):
            return None
        messages = teacher_request(
            scenario.words, problem.prompt, code, feedback, problem.reference
        )
        seed = rng.child("teacher", code).seed_for_request()
        try:
            said = await ask(Request(tuple(messages), max_tokens=512, seed=seed))
        except RunError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise UnitError(
                f"The teacher failed ({type(error).__name__}: {text}).", "teacher"
            ) from error
        return cut_words(said.text, expert)

    return words


def _error(feedback: Feedback) -> str | None:
    return None if feedback.compilation == NO_ERRORS else feedback.compilation
