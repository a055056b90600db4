"""What every treatment that makes linear layers run quantised has in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from equipoise.core import Capability, HasModule, Rng, Treatment
from equipoise.kit.torch.quantized import Scheme, quantize_module


class Quantiser(Treatment):
    """A treatment that hands `scheme` to `quantize_module`."""

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})

    @abstractmethod
    def scheme(self) -> Scheme:
        """Return what is done to a module, for `quantize_module`."""

    def batches(self, subject: Any, rng: Rng) -> list[Any]:
        """Return calibration data for the subject's module, where it takes any."""
        return []

    @property
    def edits(self) -> frozenset[str]:  # type: ignore[override]
        return self.scheme().touches

    @property
    def replaces(self) -> frozenset[str]:  # type: ignore[override]
        return self.scheme().touches

    def apply(self, subject: Any, rng: Rng) -> Any:
        module = quantize_module(subject.module, self.scheme(), rng, self.batches(subject, rng))
        return subject.with_module(module)

    def skeleton(self, subject: Any) -> Any:
        return subject.with_module(quantize_module(subject.module, self.scheme()))
