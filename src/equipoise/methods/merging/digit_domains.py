"""Four domains of handwritten digits: a small pre-trained network, its fine-tuning, its tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from equipoise.core import (
    Capability,
    HasModule,
    Outcome,
    Predicts,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Treatment,
    Unit,
    UsageError,
    between,
    one_of,
)

if TYPE_CHECKING:
    from equipoise.kit.torch.subjects import ModuleSubject

DOMAINS = ("upright", "rotated", "inverted", "mirrored")


@dataclass(frozen=True)
class DigitNetwork(Subject):
    """A residual network pre-trained on a few handwritten digits of four domains.

    It gives class scores ``(n, 10)`` for rows of 64 pixels. The domains show
    the same digits upright, rotated by 90 degrees, inverted in brightness, and
    mirrored under stripes. The digits are those that scikit-learn carries.

    Parameters
    ----------
    width
        Of the residual stream.
    blocks
        How many.
    images
        Digits of the training split that it sees in every domain.
    steps
        Updates of its weights, on 64 rows each.
    weight_seed
        Draws first weights and batches, so that it is the same in every arm and
        as a parameter of a treatment.

    Examples
    --------
    >>> DigitNetwork.tiny().load(Rng(0)).predict(np.zeros((3, 64))).shape
    (3, 10)
    """

    width: int = between(2, 4096, default=32)
    blocks: int = between(1, 256, default=6)
    images: int = between(1, 1_000, default=250)
    steps: int = between(1, 1_000_000, default=1_000)
    weight_seed: int = between(0, 2**31 - 1, default=0)

    provides: ClassVar[frozenset[Capability]] = frozenset({HasModule, Predicts})

    @classmethod
    def tiny(cls) -> Self:
        return cls(width=8, blocks=2, images=10, steps=5)

    def load(self, rng: Rng) -> ModuleSubject:
        """Return the live network, trained the first time; ``rng`` is not used."""
        from equipoise.kit.torch.subjects import ModuleSubject
        from equipoise.kit.worlds.digit_domains import pretrained

        return ModuleSubject(
            pretrained(self.width, self.blocks, self.images, self.steps, self.weight_seed)
        )


@dataclass(frozen=True)
class FineTuneDigits(Treatment):
    """Train a digit network on much of one domain; its head stays.

    Parameters
    ----------
    domain
        Which.
    steps
        Updates of Adam, on 64 rows of the training split each.
    rate
        Learning rate.

    Examples
    --------
    >>> control = DigitNetwork.tiny().load(Rng(0))
    >>> tuned = FineTuneDigits("rotated", steps=3).apply(control, Rng(0)).module
    >>> bool((tuned.head.weight == control.module.head.weight).all())
    True
    """

    domain: str = one_of(*DOMAINS)
    steps: int = between(1, 1_000_000, default=300)
    rate: float = between(1e-6, 1.0, default=4e-3)

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    random: ClassVar[bool] = True

    @classmethod
    def tiny(cls) -> Self:
        return cls("rotated", steps=3)

    @classmethod
    def tiny_subject(cls) -> ModuleSubject:
        return DigitNetwork.tiny().load(Rng(0))

    def skeleton(self, subject: Any) -> Any:
        from equipoise.kit.torch.copies import copy_module

        return subject.with_module(copy_module(subject.module))

    def apply(self, subject: Any, rng: Rng) -> Any:
        from equipoise.kit.about import annotate
        from equipoise.kit.worlds.digit_domains import ResidualNetwork, fine_tuned

        if not isinstance(subject.module, ResidualNetwork):
            raise UsageError(
                f"FineTuneDigits: the subject must be a digit_network, got a"
                f" {type(subject.module).__name__}."
            )
        seed = rng.child("batches").seed_for_request()
        module, losses = fine_tuned(subject.module, self.domain, self.steps, self.rate, seed)
        points = [[step, loss] for step, loss in enumerate(losses)]
        made = subject.with_module(module)
        return annotate(made, curves={"loss": points[:: max(1, self.steps // 100)]})


@dataclass(frozen=True)
class DigitDomains(Task):
    """Tells handwritten digits in some of four domains; an image is a cluster, a domain a stratum.

    Parameters
    ----------
    domains
        Which; an image is in the same split in all of them.

    Examples
    --------
    >>> task = DigitDomains(("rotated",))
    >>> units = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    >>> task.perform(task.oracle(), units[:1], Rng(0))[0].scores
    {'correct': 1.0}
    """

    domains: tuple[str, ...] = DOMAINS

    needs: ClassVar[frozenset[Capability]] = frozenset({Predicts})
    scores: ClassVar[tuple[ScoreSpec, ...]] = (ScoreSpec("correct", low=0, high=1),)
    batch: ClassVar[int] = 4096

    def check(self) -> None:
        if not self.domains or not set(self.domains) <= set(DOMAINS):
            raise UsageError(
                f"DigitDomains: domains must be some of {', '.join(DOMAINS)}, got {self.domains}."
            )

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield images, domain by domain; ``rng`` is not used."""
        from equipoise.kit.worlds.digit_domains import digits

        _, labels, splits = digits()
        for domain in self.domains:
            for number, (label, split) in enumerate(zip(labels.tolist(), splits, strict=True)):
                yield Unit(
                    f"{domain}-{number:04d}",
                    {"domain": domain, "image": number},
                    label,
                    cluster=str(number),
                    stratum=domain,
                    split=split,
                )

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score the class with the largest score."""
        if not units:
            return []
        best = np.asarray(subject.predict(_rows(units))).argmax(axis=1).tolist()
        return [
            Outcome(unit.id, {"correct": float(unit.target == answer)}, output=answer)
            for unit, answer in zip(units, best, strict=True)
        ]

    def oracle(self) -> Any:
        """Return a predictor that knows every image."""
        units = list(self.units(Rng(0)))
        keys = (row.tobytes() for row in _rows(units))
        return _Scores({key: unit.target for key, unit in zip(keys, units, strict=True)})

    def constant(self) -> Any:
        """Return a predictor that says 0."""
        return _Scores({})


def _rows(units: Sequence[Unit]) -> np.ndarray:
    from equipoise.kit.worlds.digit_domains import digits, view

    images, _, _ = digits()
    rows = np.empty((len(units), *images.shape[1:]))
    for domain in DOMAINS:
        places = [k for k, unit in enumerate(units) if unit.content["domain"] == domain]
        if places:
            rows[places] = view(images[[units[k].content["image"] for k in places]], domain)
    return rows.reshape(len(rows), -1)


class _Scores:
    """Gives all score to the digit it knows of a row, and to 0 where it knows none."""

    def __init__(self, answers: dict[bytes, int]) -> None:
        self.answers = answers

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        found = np.zeros((len(inputs), 10))
        for row, values in enumerate(inputs):
            found[row, self.answers.get(values.tobytes(), 0)] = 1.0
        return found
