"""How well the inputs of a language model's linear layers fill the grid they are rounded to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from equipoise.core import (
    Capability,
    HasModule,
    Json,
    Outcome,
    Rng,
    ScoreSpec,
    Task,
    Unit,
    UnitError,
    UsageError,
    between,
    setting,
)
from equipoise.kit.data import content_hash, read_texts
from equipoise.kit.language.talk import error_outcome

if TYPE_CHECKING:
    import torch

    from equipoise.kit.language.structure import Structure

PLACES = ("attention", "output", "feed_forward", "down")
"""What reads an input: query, key and value; output; gate and up; down."""


@dataclass(frozen=True)
class QuantizationSpace(Task):
    r"""Space utilisation (QSUR) and rounding error of what linear layers read.

    A unit is one input in one block: what query, key and value layers read, the
    output layer, the feed-forward part, or its down layer. The first block's
    attention is left out: it reads embeddings of single tokens, which may be fewer
    than channels and then take no volume. Text goes through the
    model, and the input is looked at as its quantiser sees it, after rotation and
    scales; in an unquantised model, as it is. Scores are

    - ``utilization``: $(\ln V_X - \ln V_S) / d$ with the volume $V_X$ of the ellipsoid
      that holds the data and $V_S$ of the smallest cube around it;
    - ``leading_utilization``: the same with the paper's cube, by the longest axis;
    - ``relative_error``: $\lVert Q(X) - X \rVert_F / \lVert X \rVert_F$ of rounding, one
      step per token. Outliers count for most of the size, so it can fall where
      they drown the rest.

    Volumes of two inputs can be compared where they have as many channels, as the
    same input in two arms has.

    Parameters
    ----------
    blocks
        How many, from the first.
    windows
        Of text.
    length
        Tokens in a window; there must be more tokens than channels.
    bits
        Of rounding.
    data
        Text (see `equipoise.kit.data.read_texts`).

    References
    ----------
    OSTQuant, ICLR 2025.

    Examples
    --------
    >>> task = QuantizationSpace.tiny()
    >>> found = task.perform(task.oracle(), list(task.units(Rng(0))), Rng(0))
    >>> sorted(found[0].scores)
    ['leading_utilization', 'relative_error', 'utilization']
    """

    blocks: int = between(1, 10_000, default=4)
    windows: int = between(1, 100_000, default=16)
    length: int = between(2, 1_000_000, default=256)
    bits: int = between(2, 16, default=4)
    data: str = setting("builtin:sklearn_descriptions")

    needs: ClassVar[frozenset[Capability]] = frozenset({HasModule})
    batch: ClassVar[int] = 100_000  # one pass over the text serves all units
    scores: ClassVar[tuple[ScoreSpec, ...]] = (
        ScoreSpec("utilization", True, unit="nats per channel"),
        ScoreSpec("leading_utilization", True, unit="nats per channel"),
        ScoreSpec("relative_error", False, low=0.0),
    )

    def content(self) -> Json:
        return content_hash(self.data)

    @classmethod
    def tiny(cls) -> Self:
        return cls(blocks=2, windows=2, length=64)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield inputs, whose number depends on no subject; ``rng`` is not used."""
        for block in range(self.blocks):
            for place in PLACES if block else PLACES[1:]:
                content = {"block": block, "place": place}
                yield Unit(f"block-{block:03d}-{place}", content=content, stratum=place)

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        from equipoise.kit.language.structure import structure_of

        structure = structure_of(subject.module)
        wanted = {(unit.content["block"], unit.content["place"]) for unit in units}
        inputs = self._read(subject, structure, wanted)
        found = []
        for unit in units:
            key = unit.content["block"], unit.content["place"]
            try:
                if key not in inputs:
                    raise UnitError(
                        f"QuantizationSpace: the model has {len(structure.blocks)} blocks; ask"
                        " for no more.",
                        "too_short",
                    )
                found.append(Outcome(unit.id, inputs[key].scores()))
            except UsageError as error:
                found.append(error_outcome(unit, UnitError(str(error), "degenerate")))
            except UnitError as error:
                found.append(error_outcome(unit, error))
        return found

    def oracle(self) -> Any:
        """Return a small model."""
        from equipoise.kit.language.tiny import tiny_model

        return tiny_model()

    def constant(self) -> Any:
        """Return the same model with outliers that waste the grid."""
        from equipoise.kit.worlds.small_llama import with_outliers

        plain = self.oracle()
        return plain.with_module(with_outliers(plain.module, 2, 100.0, Rng(0)))

    def _read(
        self, subject: Any, structure: Structure, wanted: set[tuple[int, str]]
    ) -> dict[tuple[int, str], _Input]:
        """Run the text through the model and sum up its layers' inputs."""
        import torch

        ids = subject.tokenize("\n\n".join(read_texts(self.data)))
        if len(ids) < self.windows * self.length:
            raise UsageError(
                f"QuantizationSpace: {self.data} has {len(ids)} tokens, too few for"
                f" {self.windows} windows of {self.length}."
            )
        inputs: dict[tuple[int, str], _Input] = {}
        hooks = []
        for block in structure.blocks:
            for place, stage in zip(PLACES, block.stages(), strict=True):
                if (block.index, place) in wanted:
                    seen = inputs[block.index, place] = _Input(self.bits)
                    layer = subject.module.get_submodule(stage[0])
                    hooks.append(layer.register_forward_pre_hook(seen.watch()))
        try:
            with torch.inference_mode():
                for start in range(0, self.windows * self.length, self.length):
                    window = torch.tensor(ids[start : start + self.length])[None]
                    subject.module(window.to(subject.device), use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        return inputs


class _Input:
    """First and second moments of one input, and what rounding it loses."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.count = 0
        self.sum: Any = 0.0
        self.squares: Any = 0.0
        self.lost = self.size = 0.0

    def watch(self) -> Callable[[Any, tuple[torch.Tensor, ...]], None]:
        from equipoise.kit.torch.quantizers import fake_quantize

        def hook(layer: Any, given: tuple[torch.Tensor, ...]) -> None:
            smoothed = getattr(layer, "smoothed", None)
            rows = (given[0] if smoothed is None else smoothed(given[0])).flatten(0, -2).double()
            self.count += len(rows)
            self.sum = self.sum + rows.sum(0)
            self.squares = self.squares + rows.T @ rows
            self.lost += float((fake_quantize(rows, self.bits) - rows).square().sum())
            self.size += float(rows.square().sum())

        return hook

    def scores(self) -> dict[str, float]:
        from equipoise.kit.torch.utilization import ellipsoid_utilization

        if self.count <= len(self.sum):
            raise UsageError(
                f"QuantizationSpace: {self.count} tokens are too few for an input of"
                f" {len(self.sum)} channels; ask for more windows."
            )
        mean = (self.sum / self.count).cpu().numpy()
        second = (self.squares / self.count).cpu().numpy()
        covariance = second - mean[:, None] * mean
        return {
            "utilization": ellipsoid_utilization(mean, covariance, per_dimension=True),
            "leading_utilization": ellipsoid_utilization(
                mean, covariance, box="leading", per_dimension=True
            ),
            "relative_error": float((self.lost / self.size) ** 0.5) if self.size else 0.0,
        }
