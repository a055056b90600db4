r"""Draws of right-censored data with known truth, on which lower bounds are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from equipoise.core import (
    Outcome,
    PredictsInterval,
    Rng,
    ScoreSpec,
    Task,
    Trains,
    Unit,
    UnitError,
    UsageError,
    between,
)
from equipoise.kit.arrays.examples import Examples
from equipoise.kit.worlds.right_censored import RightCensored


@dataclass(frozen=True)
class RightCensoredSynthetic(Task):
    r"""Bound survival times from below, in worlds whose law is known.

    A unit is one whole draw: the subject learns from training rows, calibrates on calibration
    rows, both with time and event only, and its lower bounds $L$ are held against the true
    survival times $T$ of new rows. The scores are

    - ``relative_lpb``: mean bound over the mean of the true $\alpha$ quantile, the ideal bound;
      above 1 it misses more than it should;
    - ``lpb_coverage``: share of new rows with $T \ge L$;
    - ``valid``: 1 when that share is at least $1 - \alpha$;
    - ``mean_lpb``: mean bound;
    - ``tau``: the level that was chosen, where the subject tells it.

    With $x$ uniform on $[0, 4]^d$, $\ln T \sim N(\mu, \sigma^2)$ and $b = 0.632$ the settings are

    1. $\mu = b x$, $\sigma = 2$, $C \sim \mathrm{Exp}(0.1)$;
    2. $\mu = 3$ if $x > 2$ else $x$, $\sigma = 0.5$, $C \sim \mathrm{Exp}(0.1)$;
    3. $\mu = 2$ if $x > 2$ else $x$, $\sigma = 0.5$, $C \sim \mathrm{Exp}(0.25 + (6 + x)/100)$;
    4. $\mu = 3$ if $x > 2$ else $1.5 x$, $\sigma = 0.5$, $\ln C \sim N(2 + (2 - x)/50, 0.5^2)$;
    5. $d = 10$, $\mu = b (x_1 + \sqrt{x_3 x_5})/5 + 1$, $\sigma = 1$,
       $C \sim \mathrm{Exp}(0.1 (x_{10} + 0.5))$;
    6. as 5 with $\sigma = (x_2 + 2)/4$.

    Parameters
    ----------
    setting
        1 to 6.
    draws
        How many units.
    train, calibration, test
        Rows of each draw.
    alpha
        Share of rows that may last shorter than their bound.
    censored
        False: no time is cut short.

    Examples
    --------
    >>> from equipoise.methods.survival import CalibrateSurvival, SurvivalModel
    >>> task = RightCensoredSynthetic(setting=2, draws=1)
    >>> model = SurvivalModel("LogNormalAFTFitter").load(Rng(0))
    >>> fused = CalibrateSurvival("fused").apply(model, Rng(0))
    >>> (outcome,) = task.perform(fused, list(task.units(Rng(0))), Rng(0))
    >>> outcome.scores["valid"]
    1.0
    """

    setting: int = between(1, 6, default=1)
    draws: int = between(1, 100_000, default=20)
    train: int = between(20, 1_000_000, default=1000)
    calibration: int = between(20, 1_000_000, default=1000)
    test: int = between(1, 10_000_000, default=5000)
    alpha: float = between(0.001, 0.999, default=0.1)
    censored: bool = True

    needs = frozenset({Trains, PredictsInterval})
    scores = (
        ScoreSpec("relative_lpb"),
        ScoreSpec("lpb_coverage", low=0.0, high=1.0, share=True),
        ScoreSpec("valid", low=0.0, high=1.0),
        ScoreSpec("mean_lpb"),
        ScoreSpec("tau", higher_is_better=None, low=0.0, high=1.0),
    )
    batch = 1

    @classmethod
    def tiny(cls) -> Self:
        return cls(setting=2, draws=3, train=200, calibration=200, test=500)

    @property
    def world(self) -> RightCensored:
        """The law that draws come from."""
        return RightCensored(self.setting, self.censored)

    def units(self, rng: Rng) -> Iterator[Unit]:
        """Yield the draws; a unit holds its seed."""
        for index in range(self.draws):
            seed = rng.child("draw", index).seed_for_request()
            yield Unit(f"draw-{index}-{seed}", {"seed": seed})

    def perform(self, subject: Any, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Draw, train, calibrate and score, one unit after another."""
        return [self._one(subject, unit, rng.child(unit.id)) for unit in units]

    def _one(self, subject: Any, unit: Unit, rng: Rng) -> Outcome:
        given, new = self.draw(unit)
        fitted = subject.fit(given, rng)
        found = np.asarray(fitted.predict_interval(new.inputs, self.alpha), float)
        if found.shape != (len(new.times), 2) or not np.isfinite(found[:, 0]).all():
            raise UnitError("The subject gave lower bounds that are not finite.", "garbage")
        bound = found[:, 0]
        ideal = float(self.world.quantiles(new.inputs, [self.alpha]).mean())
        coverage = float((new.times >= bound).mean())
        scores = {
            "relative_lpb": float(bound.mean()) / ideal,
            "lpb_coverage": coverage,
            "valid": float(coverage >= 1 - self.alpha),
            "mean_lpb": float(bound.mean()),
        }
        if hasattr(fitted, "chosen_level"):
            scores["tau"] = float(fitted.chosen_level(self.alpha))
        return Outcome(unit.id, scores, output=dict(scores))

    def draw(self, unit: Unit) -> tuple[Examples, Any]:
        """Return what a unit's subject may learn from, and the new rows with their truth."""
        if not isinstance(unit.content, dict) or "seed" not in unit.content:
            raise UsageError("RightCensoredSynthetic: a unit must hold its seed.")
        rng = Rng(int(unit.content["seed"]))
        seen = self.world.draw(self.train + self.calibration, rng.child("seen"))
        split = np.repeat(["train", "calibration"], [self.train, self.calibration])
        new = self.world.draw(self.test, rng.child("new"))
        return Examples(seen.inputs, seen.targets, split), new

    def constant(self) -> Any:
        """Return a live subject whose bound is always 0."""
        return _Bound(None)

    def oracle(self) -> Any:
        """Return a live subject that knows the true quantiles."""
        return _Bound(self.world)


class _Bound:
    def __init__(self, world: RightCensored | None) -> None:
        self._world = world

    def fit(self, data: Any, rng: Rng) -> _Bound:
        return self

    def predict_interval(self, inputs: np.ndarray, alpha: float) -> np.ndarray:
        low = np.zeros(len(inputs))
        if self._world is not None:
            low = self._world.quantiles(inputs, [alpha])[:, 0]
        return np.column_stack([low, np.full(len(inputs), np.inf)])
