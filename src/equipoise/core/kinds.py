"""The four kinds of part: subject, treatment, task, measure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, Self

from equipoise.core.capabilities import Capability
from equipoise.core.errors import UsageError
from equipoise.core.estimates import Estimate
from equipoise.core.figures import Figure
from equipoise.core.language import Generation, Message, Request, Usage
from equipoise.core.outcomes import Outcome, Outcomes, ScoreSpec, Split, Unit
from equipoise.core.parts import Part
from equipoise.core.rng import Rng


class Subject(Part):
    """A recipe for the thing on trial; `load` makes the live one.

    The live subject is any object with the protocols in ``provides``. What of
    its module is not its own kind of layers stands in ``replaces``, as for a
    `Treatment`; a subject may say so as a property, by its parameters.
    """

    provides: ClassVar[frozenset[Capability]] = frozenset()
    replaces: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def load(self, rng: Rng) -> Any:
        """Return the live subject. ``rng`` seeds whatever is drawn when it is made."""

    def notice(self) -> str:
        """Return what every report on this subject must say, or nothing."""
        return ""

    @classmethod
    def tiny_examples(cls) -> Any:
        """Return what the conformance checks let a learner learn from, or None for stock rows."""
        return None


class Treatment(Part):
    """A change to a subject; gives a new one and leaves the old one intact.

    ``needs`` is what it asks of the subject; ``removes`` and ``adds`` say how
    capabilities change. A treatment that samples or trains sets ``random`` so
    that builds repeat it with other seeds.

    ``edits`` names what must still be the model's own when the treatment comes,
    ``replaces`` what is no longer so afterwards: of ``"linear layers"``,
    ``"attention"``, ``"residual stream"`` and ``"vocabulary"``. A trial whose arm
    edits what a treatment before has replaced fails when it is planned.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    adds: ClassVar[frozenset[Capability]] = frozenset()
    removes: ClassVar[frozenset[Capability]] = frozenset()
    random: ClassVar[bool] = False
    edits: ClassVar[frozenset[str]] = frozenset()
    replaces: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def apply(self, subject: Any, rng: Rng) -> Any:
        """Return the treated subject. Never mutates ``subject``."""

    @classmethod
    def null(cls) -> Self | None:
        """Return the setting that changes nothing, or None where there is none."""
        return None

    @classmethod
    def tiny_subject(cls) -> Any:
        """Return the live subject the conformance checks treat, or None for a stock one."""
        return None

    @classmethod
    def tiny_examples(cls) -> Any:
        """Return what the conformance checks let a learner learn from, or None for stock rows."""
        return None

    def skeleton(self, subject: Any) -> Any:
        """Return a treated subject whose tensors are yet to be filled in.

        Where this is given, and the live subject has ``save(folder)`` and
        ``fill(folder)``, the engine keeps a treated subject's tensors on disk
        and fills them into the skeleton instead of applying the treatment
        again. It must be cheap and read no data.
        """
        raise NotImplementedError


class Talk(Protocol):
    """A conversation with the subject, as the engine hands it to `Task.attempt`.

    Requests of many conversations that wait at the same moment become one
    batch for a local model, and concurrent calls for an endpoint. What is
    generated is kept: ``usage`` sums it, ``transcript`` holds the messages.
    ``subject`` is the live subject: a task may look at how it was treated, and
    asks it through `generate` alone.
    """

    usage: Usage
    transcript: list[Message]
    subject: Any

    async def generate(self, request: Request) -> Generation: ...


class Task(Part):
    """What a subject is asked, unit by unit, and how each answer is scored.

    A batch task gives `perform`; a conversation gives `attempt` instead, and a
    task that compares the subject with another one, white-box, gives `contrast`
    and has a parameter ``reference`` that says which.
    ``scores`` come in order of weight: the first is what claims are about
    when they name none. Units drawn from ``rng`` carry what tells the draw
    apart in their id: the store refuses an id whose content changed.

    Two methods are optional. ``example(unit)`` returns question and right
    answer, for treatments that show or teach train units. ``constant()``
    returns a live subject that answers everything alike, for the conformance
    check of tasks that do not ask for text.
    """

    needs: ClassVar[frozenset[Capability]] = frozenset()
    scores: ClassVar[tuple[ScoreSpec, ...]] = ()
    batch: ClassVar[int] = 32
    """Units worth doing together; what is finished is stored in steps of about this size."""

    @abstractmethod
    def units(self, rng: Rng) -> Iterable[Unit]:
        """Yield units with stable ids; may be endless, the trial's size cuts it."""

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Return one outcome a unit, in order; a unit's stream is ``rng.child(unit.id)``."""
        raise NotImplementedError

    async def attempt(self, talk: Talk, unit: Unit, rng: Rng) -> Outcome:
        """Hold one conversation; ``rng`` is the unit's own stream."""
        raise NotImplementedError

    def contrast(
        self, subject: Any, reference: Any, units: Sequence[Unit], rng: Rng
    ) -> list[Outcome]:
        """Return what `perform` does, with the live ``reference`` at hand."""
        raise NotImplementedError

    @classmethod
    def contrasts(cls) -> bool:
        """Say whether the task compares the subject with a reference."""
        return cls.contrast is not Task.contrast

    @classmethod
    def converses(cls) -> bool:
        """Say whether the task is a conversation."""
        return cls.attempt is not Task.attempt

    def oracle(self) -> Any:
        """Return a live subject that answers every unit right, for the conformance checks."""
        raise NotImplementedError

    def measures(self) -> Sequence[Measure]:
        """Return measures to report beside the mean of the first score."""
        return ()

    def claimed(self) -> Measure | None:
        """Return what a claim is about that names neither a score nor a measure.

        None is the mean of the first score. A task whose first score is known to
        be biased, such as a judge's, may give the measure that mends it.
        """
        return None


class Measure(Part):
    """What outcomes let us conclude: an estimate with an interval.

    ``scope`` is ``"arm"`` (one arm on one task), ``"pair"`` (an effect of one
    arm against another) or ``"arms"`` (rankings, distances). An arm measure
    that gives `statistic` can be claimed about pairs as well: the engine
    bootstraps the difference over paired clusters.
    """

    scope: ClassVar[Literal["arm", "pair", "arms"]] = "arm"
    higher_is_better: ClassVar[bool | None] = True

    @abstractmethod
    def measure(self, outcomes: Any, rng: Rng) -> Estimate | Mapping[str, Estimate]:
        """Return an estimate, or a table of them by name.

        ``outcomes`` is an `Outcomes` for scope ``arm``, a pair of them (same
        units, same order) for ``pair``, and a mapping from arm label to
        `Outcomes` for ``arms``.
        """

    def statistic(self, outcomes: Outcomes) -> float:
        """Return the point estimate alone."""
        raise NotImplementedError

    def simulate(self, rng: Rng) -> tuple[Any, float | Mapping[str, float]]:
        """Return outcomes drawn from a world with known truth, and that truth.

        The conformance checks use it: the interval must cover the truth as
        often as its level says, at the size drawn here.
        """
        raise NotImplementedError

    def better(self, outcomes: Outcomes) -> bool | None:
        """Say whether higher is better on these outcomes, None if neither."""
        return self.higher_is_better

    def figure(self, outcomes: Mapping[str, Outcomes], rng: Rng) -> Figure | None:
        """Return what reports draw beside the numbers: all arms of one task in one picture.

        ``outcomes`` maps arm labels to `Outcomes`. None where the numbers say it all.
        """
        return None


def units_stream(rng: Rng) -> Rng:
    """Return the stream that tasks draw their units from, in the trial that ``rng`` belongs to.

    Engine and treatments both use it, so a generated task has the same units
    and the same splits for both.
    """
    return Rng(rng.seed).child("units")


def learnable(task: Task, rng: Rng, split: Split = "train") -> list[Unit]:
    """Return the units of a task that a treatment may learn from.

    ``rng`` is any stream of the trial, such as the treatment's own. Test units
    are refused.
    """
    if split == "test":
        raise UsageError("A treatment may learn from train and calibration units, never test.")
    return [unit for unit in task.units(units_stream(rng)) if unit.split == split]
