"""What measures that rate arms share: arms compared unit by unit, and the figure of ratings."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.core import Estimate, Figure, Outcomes, Series, UsageError
from equipoise.kit.statistics.columns import first_score
from equipoise.kit.statistics.comparisons import Comparisons


def compared(part: str, outcomes: Mapping[str, Outcomes], score: str | None) -> Comparisons:
    """Return how arms compare unit by unit, by a score or the first; see `between_arms`."""
    if not outcomes:
        raise UsageError(f"{part}: there are no arms.")
    if len(outcomes) < 2:
        raise UsageError(f"{part}: one arm cannot be compared; at least two are needed.")
    return Comparisons.between_arms(outcomes, first_score(next(iter(outcomes.values())), score))


def ladder(found: Mapping[str, Estimate], title: str, axis: str, caption: str) -> Figure:
    """Return the arms from best to worst, with the intervals they have."""
    ordered = sorted(found.items(), key=lambda each: -each[1].value)
    series = []
    for place, (name, each) in enumerate(ordered, 1):
        ends: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
        if each.has_interval:
            ends = ((each.low,), (each.high,))
        series.append(Series(name, (place,), (each.value,), *ends, look="points"))
    return Figure(title, "place", axis, tuple(series), caption)
