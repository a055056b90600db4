"""What the treatments that merge models into their subject have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from equipoise.core import (
    Capability,
    HasModule,
    Rng,
    Subject,
    Task,
    Treatment,
    UsageError,
    between,
    one_of,
)

if TYPE_CHECKING:
    from equipoise.kit.torch.merging import Rules, Weights
    from equipoise.methods.merging._sources import Source

OWN: frozenset[str] = frozenset({"linear layers", "attention", "vocabulary"})


@contextmanager
def named(part: object) -> Iterator[None]:
    """Let errors of the block begin with the part's name."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{type(part).__name__}: {error}") from error


@dataclass(frozen=True)
class Merge(Treatment):
    r"""A treatment that gives $\theta_0 + \lambda(l)\, \tau$; see the parts derived from it."""

    models: tuple[Subject, ...] = ()
    updates: tuple[Treatment, ...] = ()
    alpha: float = between(-10.0, 10.0, default=1.0)
    beta: float = between(-10.0, 10.0, default=0.0)
    blocks: tuple[str, ...] = ()

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    edits: ClassVar[frozenset[str]] = OWN

    def check(self) -> None:
        if not self.models and not self.updates:
            raise UsageError(
                f"{type(self).__name__}: models must be one or more subjects, got none; updates"
                " may name treatments of the subject in their place."
            )
        # An update that trains makes the merge random, so that builds repeat it.
        object.__setattr__(self, "random", any(each.random for each in self.updates))

    @classmethod
    def tiny_subject(cls) -> Any:
        return _tiny_digits()[0]

    @classmethod
    def tiny_updates(cls) -> tuple[Treatment, ...]:
        """Return two short trainings of the tiny subject."""
        return _tiny_digits()[1]

    def skeleton(self, subject: Any) -> Any:
        from equipoise.kit.torch.copies import copy_module

        return subject.with_module(copy_module(subject.module))

    def sources(self, subject: Any, rng: Rng) -> list[Source]:
        """Return the models to merge, checked against the subject."""
        from equipoise.methods.merging._sources import from_live, from_part

        found = [
            from_part(part, subject, rng.child("model", index), f"model {index + 1}")
            for index, part in enumerate(self.models)
        ]
        for index, treatment in enumerate(self.updates):
            made = treatment.apply(subject, rng.child("update", index))
            found.append(from_live(made, subject, f"update {index + 1}"))
        return found

    def rule(self, base: Weights, models: Sequence[Weights]) -> Rules:
        """Return how task vectors are joined."""
        raise NotImplementedError

    def apply(self, subject: Any, rng: Rng) -> Any:
        with named(self):
            return self.merge(subject, self.sources(subject, rng), rng)

    def merge(self, subject: Any, sources: Sequence[Source], rng: Rng) -> Any:
        """Return the subject with its models merged into it."""
        from equipoise.kit.torch.merging import merged

        base, models = parameters_of(subject), [source.weights for source in sources]
        factors = self.factors(subject, self.alpha, self.beta)
        rule = self.rule(base, models)
        return with_weights(subject, merged(base, models, rule, factors, names=list(base)))

    def factors(self, subject: Any, alpha: float, beta: float) -> dict[str, float]:
        """Return the factor of every parameter."""
        from equipoise.kit.torch.layers import layer_factors

        return layer_factors(subject.module, alpha, beta, self.blocks)

    def scaled(self, subject: Any, update: Weights, alpha: float, beta: float) -> Any:
        """Return the subject with a merged update added to it."""
        from equipoise.kit.torch.merging import scaled

        factors = self.factors(subject, alpha, beta)
        return with_weights(subject, scaled(parameters_of(subject), update, factors))


@dataclass(frozen=True)
class TunedMerge(Merge):
    """A merge whose alpha or beta may be chosen on calibration units."""

    match_norm: bool = False
    search: str = one_of("nothing", "alpha", "beta", default="nothing")
    tasks: tuple[Task, ...] = ()

    most: ClassVar[float] = 1.0
    """The largest value tried; the step is 0.1."""

    def check(self) -> None:
        super().check()
        count = len(self.models) + len(self.updates)
        if self.search != "nothing" and len(self.tasks) != count:
            raise UsageError(
                f"{type(self).__name__}: tasks must be one a model, {count}, to choose"
                f" {self.search} by, got {len(self.tasks)}."
            )

    def merge(self, subject: Any, sources: Sequence[Source], rng: Rng) -> Any:
        if self.search == "nothing" and not self.match_norm:
            return super().merge(subject, sources, rng)
        from equipoise.kit.torch.merging import merged_update, update_scale

        base, models = parameters_of(subject), [source.weights for source in sources]
        update = merged_update(base, models, self.rule(base, models), names=list(base))
        unit = update_scale(base, models, update) if self.match_norm else 1.0
        if self.search == "nothing":
            return self.scaled(subject, update, unit * self.alpha, self.beta)
        return self.chosen(subject, sources, update, unit, rng)

    def chosen(
        self, subject: Any, sources: Sequence[Source], update: Weights, unit: float, rng: Rng
    ) -> Any:
        """Return the merge whose alpha or beta is best on calibration units."""
        from equipoise.kit.about import annotate
        from equipoise.kit.progress import report
        from equipoise.kit.validation import validation_score

        own = [
            validation_score(source.subject(subject), task, rng)
            for source, task in zip(sources, self.tasks, strict=True)
        ]
        if min(own) <= 0:
            raise UsageError("a model scores nothing on its own task, so no share of it is there.")
        grid = [round(0.1 * step, 1) for step in range(1, round(10 * self.most) + 1)]
        pairs = [
            (unit * self.alpha, each) if self.search == "beta" else (unit * each, self.beta)
            for each in grid
        ]
        shares = []
        for done, pair in enumerate(pairs, start=1):
            live = self.scaled(subject, update, *pair)
            scores = [validation_score(live, task, rng) for task in self.tasks]
            shares.append(sum(s / o for s, o in zip(scores, own, strict=True)) / len(own))
            report(f"choosing {self.search}, share {shares[-1]:.3f}", done, len(pairs))
        best = shares.index(max(shares))
        return annotate(
            self.scaled(subject, update, *pairs[best]),
            notes=[
                f"{self.search} = {grid[best]:g} was chosen on calibration units"
                f" (normalised accuracy {shares[best]:.3f})."
            ],
            curves={f"normalised accuracy by {self.search}": list(zip(grid, shares, strict=True))},
        )


def parameters_of(subject: Any) -> dict[str, Any]:
    """Return a live subject's parameters by name, tied ones once."""
    return {name: each.detach() for name, each in subject.module.named_parameters()}


def with_weights(subject: Any, tensors: Mapping[str, Any]) -> Any:
    """Return a live subject with other parameters, sharing no tensor with the one given."""
    from equipoise.kit.torch.layers import with_tensors

    return subject.with_module(with_tensors(subject.module, tensors))


def _tiny_digits() -> tuple[Any, tuple[Treatment, ...]]:
    from equipoise.methods.merging.digit_domains import DigitNetwork, FineTuneDigits

    updates = tuple(FineTuneDigits(domain, steps=3) for domain in ("rotated", "inverted"))
    return DigitNetwork.tiny().load(Rng(0)), updates
