"""What tasks about programs have in common: where problems come from, feedback, limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from equipoise.core import (
    Capability,
    Generates,
    GeneratesAsync,
    Generation,
    Request,
    Rng,
    Subject,
    Task,
    Unit,
    UsageError,
    between,
    capability_names,
    one_of,
    setting,
)
from equipoise.kit.language.canned import Canned, asked
from equipoise.kit.language.shared import shared
from equipoise.methods.code._feedback import EXECUTIONS, WORDS, Scenario, first_request
from equipoise.methods.code._problems import (
    FORMATS,
    Problem,
    generated,
    read_initial,
    read_problems,
)
from equipoise.methods.code._reading import fenced
from equipoise.methods.code._turns import Desk, Turn, simulated, taught


@dataclass(frozen=True)
class Heard:
    """Marks a subject with the feedback that it gets; requests pass as they are."""

    scenario: Scenario

    def __call__(self, request: Request) -> Request:
        return request


def heard(subject: Any, default: Scenario) -> Scenario:
    """Return the feedback that a live subject was marked with, or the default."""
    while subject is not None:
        rewrite = getattr(subject, "rewrite", None)
        if isinstance(rewrite, Heard):
            return rewrite.scenario
        subject = getattr(subject, "subject", None)
    return default


@dataclass(frozen=True)
class CodeTask(Task):
    """A task over programming problems that are talked about."""

    data: str | None = setting(None)
    format: str = one_of(*FORMATS, default="auto")
    limit: int | None = between(1, 10_000_000, default=None)
    programs: str | None = setting(None)
    start: str = one_of("given", "subject", default="given")
    problems: int = between(1, 63, default=63)
    variants: int = between(1, 1000, default=1)
    faults: int = between(0, 4, default=2)
    turns: int = between(0, 100, default=10)
    execution: str = one_of(*EXECUTIONS, default="full")
    words: str = one_of(*WORDS, default="none")
    teacher: Subject | None = None
    max_tokens: int = between(1, 1_000_000, default=2048)
    temperature: float = between(0, 2, default=0.0)
    seconds: float = between(0.1, 600, default=3.0)

    needs: ClassVar[frozenset[Capability]] = frozenset({Generates})
    batch: ClassVar[int] = 64

    def check(self) -> None:
        who = type(self).__name__
        if self.teacher is not None and not self.teacher.provides & {Generates, GeneratesAsync}:
            have = ", ".join(capability_names(self.teacher.provides)) or "nothing"
            raise UsageError(f"{who}: teacher must be a subject that generates text, not {have}.")
        if self.data is None and self.programs is not None:
            raise UsageError(f"{who}: programs go with data; generated problems bring their own.")

    def content(self) -> Any:
        from equipoise.kit.data import content_hash

        return [None if each is None else content_hash(each) for each in self.files()]

    def files(self) -> list[str | None]:
        """Return what is read."""
        return [self.data, self.programs]

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield one unit a problem."""
        for problem in self.listed(rng):
            yield problem.unit()

    def listed(self, rng: Rng) -> Iterator[Problem] | list[Problem]:
        """Return the problems."""
        if self.data is None:
            return generated(self.problems, self.variants, self.faults, rng)
        who = type(self).__name__
        initial = {} if self.programs is None else read_initial(self.programs, who)
        found = read_problems(self.data, self.format, self.limit, initial, who)
        if self.programs is not None:
            lost = [each.id for each in found if each.initial is None]
            if lost:
                raise UsageError(
                    f"{who}: {self.programs} has no program for {len(lost)} of {len(found)} tasks,"
                    f" such as {lost[0]}."
                )
        return found

    @property
    def scenario(self) -> Scenario:
        """The feedback of subjects that no `FeedbackCombination` treats."""
        return Scenario(self.execution, self.words)  # type: ignore[arg-type]

    def desk(
        self,
        problem: Problem,
        ask: Callable[[Request], Awaitable[Generation]],
        scenario: Scenario,
        rng: Rng,
    ) -> Desk:
        """Return what the turns of a conversation need."""
        if self.teacher is None or scenario.words == "none":
            words = simulated(problem, scenario)
        else:
            words = taught(problem, scenario, shared(loaded(self.teacher)), rng)
        return Desk(problem, ask, scenario, words, self.max_tokens, self.temperature, self.seconds)

    async def play(self, desk: Desk, begin: Turn | None = None) -> list[Turn]:
        """Return the turns of a live conversation, up to the one that passes."""
        found = [begin if begin is not None else await self.begin(desk)]
        while not found[-1].record.passed and len(found) <= self.turns:
            turn = await desk.refine(found[-1])
            found.append(turn)
            if turn.feedback.silent and not turn.repairs:
                break  # nothing was said, so nothing would be said again
        return found

    async def begin(self, desk: Desk) -> Turn:
        """Return turn 0."""
        given = self.start == "given" and desk.problem.initial is not None
        return await desk.begin(None if given else first_request(desk.problem.prompt))

    def oracle(self) -> Any:
        """Return a subject that writes the right program, asked for the first time or later."""
        right = {p.prompt: p.reference for p in self.listed(Rng(0))}
        return Canned(_Knows(right))


@dataclass(frozen=True)
class _Knows:
    right: dict[str, str]

    def __call__(self, request: Request) -> str:
        text = asked(request.prompt)
        found = [code for prompt, code in self.right.items() if f"# Problem\n{prompt}\n" in text]
        return fenced(found[0])


_loaded: dict[str, Any] = {}


def loaded(subject: Subject) -> Any:
    """Return a subject that is not on trial, live, made once in this process."""
    key = repr(subject)
    if key not in _loaded:
        _loaded[key] = subject.load(Rng(0).child("beside the trial"))
    return _loaded[key]
