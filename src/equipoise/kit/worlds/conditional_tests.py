r"""Worlds for tests given covariates: outliers, labels and pairs of samples with known truth.

The scenarios are those of Conditional Testing based on Localized Conformal p-values, ICLR 2025:
``A1`` and ``B1`` have outliers, ``A2`` has labels, ``A3`` and ``B3`` have two samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays.examples import Examples

SLOPES = np.array([0.5, -0.5, 0.5, -0.5, 0.5, 0.0, 0.0, 0.0, 0.0])
_EVEN_AREA = 2 / math.pi  # half of the square [-1, 1]² has |s|² below it


@dataclass(frozen=True, slots=True)
class OutlierDraw:
    """One data set with outliers among its test rows.

    Parameters
    ----------
    examples
        Train and calibration rows, free of outliers.
    inputs, targets
        Test rows, ``(m, features)`` and ``(m,)``.
    outlier
        ``(m,)``, true where a row is one.
    quiet
        ``(m,)``, true in the half of the covariates where noise is low.
    """

    examples: Examples
    inputs: np.ndarray
    targets: np.ndarray
    outlier: np.ndarray
    quiet: np.ndarray


def outlier_draw(
    scenario: str, rng: Rng, *, n: int = 800, m: int = 2000, share: float = 0.1
) -> OutlierDraw:
    r"""Draw a data set with outliers; how much a row may stray depends on its covariates.

    ``A1``: column 0 is :math:`t \sim U(0,1)`, nine more are :math:`X_k \sim U(-1,1)`, and
    :math:`y = X^\top \beta + (3 + 2 \sin 2\pi t)\, \varepsilon`, with :math:`\beta` the `SLOPES`;
    outliers are shifted by :math:`\pm 3 (3 + 1.5 \sin 2\pi t)`. Noise is low for
    :math:`t > 1/2`.

    ``B1``: columns 0 and 1 are :math:`s \sim U(-1,1)^2`, 48 more are
    :math:`\sqrt{0.2 + 0.9 |s|^2}\; N(0, I)`; those of outliers are doubled, and targets are 0.
    Noise is low where :math:`|s|^2` is below its median.

    Parameters
    ----------
    scenario
        ``"A1"`` or ``"B1"``.
    rng
        Stream of the draw.
    n
        Train rows, and as many calibration rows.
    m
        Test rows.
    share
        Share of the test rows that are outliers, in [0, 1].

    Examples
    --------
    >>> draw = outlier_draw("A1", Rng(0), n=50, m=40)
    >>> draw.inputs.shape, int(draw.outlier.sum()), len(draw.examples.of("train"))
    ((40, 10), 4, 50)
    """
    g, total = rng.numpy(), 2 * n + m
    outlier = np.zeros(m, bool)
    outlier[g.choice(m, round(share * m), replace=False)] = True
    strange = np.concatenate([np.zeros(2 * n, bool), outlier])
    if scenario == "A1":
        t, x = g.random(total), g.uniform(-1, 1, (total, 9))
        wave = np.sin(2 * np.pi * t)
        y = x @ SLOPES + (3 + 2 * wave) * g.normal(size=total)
        shift = 3 * (3 + 1.5 * wave) * g.choice([-1.0, 1.0], total)
        y += np.where(strange, shift, 0.0)
        inputs, quiet = np.column_stack([t, x]), t > 0.5
    elif scenario == "B1":
        s = g.uniform(-1, 1, (total, 2))
        size = (s**2).sum(axis=1)
        x = np.sqrt(0.2 + 0.9 * size)[:, None] * g.normal(size=(total, 48))
        x[strange] *= 2
        inputs, y, quiet = np.column_stack([s, x]), np.zeros(total), size < _EVEN_AREA
    else:
        raise UsageError(f'There is no outlier scenario "{scenario}": A1 or B1.')
    split = np.repeat(["train", "calibration"], n)
    return OutlierDraw(
        Examples(inputs[: 2 * n], y[: 2 * n], split),
        inputs[2 * n :], y[2 * n :], outlier, quiet[2 * n :],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LabelDraw:
    """One data set with labels.

    Parameters
    ----------
    examples
        Train and calibration rows; targets are labels, ``(n, 2)`` of 0 and 1.
    inputs, labels
        Test rows, ``(m, 4)``, and their labels, ``(m, 2)``.
    quadrant
        ``(m,)``: 0 to 3 by the signs of columns 0 and 2, in the order (-,-), (+,-), (-,+),
        (+,+).
    """

    examples: Examples
    inputs: np.ndarray
    labels: np.ndarray
    quadrant: np.ndarray


def label_draw(rng: Rng, *, n: int = 1000, m: int = 500) -> LabelDraw:
    r"""Draw scenario ``A2``: two labels that are much more common in some quadrants.

    :math:`X \sim U(-1,1)^4`, label 1 holds where
    :math:`-2x_1 + 7x_2^3 + 3e^{x_3 + 2x_4^2} + \varepsilon_1` is above its 70 % quantile in the
    draw, and label 2 where :math:`-6x_1 + 5x_2^3 + 2e^{2x_3 + x_4^2} + \varepsilon_2` is.

    Parameters
    ----------
    rng
        Stream of the draw.
    n
        Train rows, and as many calibration rows.
    m
        Test rows.

    Examples
    --------
    >>> draw = label_draw(Rng(0), n=400, m=200)
    >>> every = np.concatenate([draw.examples.targets, draw.labels])
    >>> every.mean(axis=0).round(2)
    array([0.3, 0.3])
    """
    g, total = rng.numpy(), 2 * n + m
    x = g.uniform(-1, 1, (total, 4))
    one, two, three, four = x.T
    y = np.column_stack(
        [
            -2 * one + 7 * two**3 + 3 * np.exp(three + 2 * four**2),
            -6 * one + 5 * two**3 + 2 * np.exp(2 * three + four**2),
        ]
    ) + g.normal(size=(total, 2))
    labels = (y > np.quantile(y, 0.7, axis=0)).astype(int)
    split = np.repeat(["train", "calibration"], n)
    quadrant = (one > 0) + 2 * (three > 0)
    return LabelDraw(
        Examples(x[: 2 * n], labels[: 2 * n], split),
        x[2 * n :], labels[2 * n :], quadrant[2 * n :],
    )  # fmt: skip


Sample = tuple[np.ndarray, np.ndarray]
"""Rows ``(n, 5)`` and values ``(n,)``."""


def two_sample_draw(
    scenario: str, rng: Rng, *, n: int = 200, alternative: bool = True
) -> tuple[Sample, Sample]:
    r"""Draw two samples whose covariates differ, and whose :math:`Y | X` differs or not.

    ``A3``: :math:`X_1 \sim N(0, I_5)`, :math:`X_2 \sim N((1,1,-1,-1,0), I_5)`,
    :math:`Y = X^\top (1,1,1,-1,-1) + \varepsilon`; the alternative adds 0.5 to sample 2.

    ``B3``: both mix :math:`N(0, I_5)` half and half, the first with
    :math:`N(\tfrac12 (1,1,-1,-1,0), I_5)`, the second with :math:`N(0, \tfrac32 I_5)`;
    :math:`Y = X_1 + X_2 + X_3^2 - X_4^2 - X_5^3 + t_5`; the alternative adds
    :math:`0.8\,(1 - |X|^2 / 10)` to sample 2.

    Parameters
    ----------
    scenario
        ``"A3"`` or ``"B3"``.
    rng
        Stream of the draw.
    n
        Rows of each sample.
    alternative
        Whether Y given X differs.

    Examples
    --------
    >>> (x, y), (z, w) = two_sample_draw("A3", Rng(0), n=4000)
    >>> bool(abs((w - z @ [1, 1, 1, -1, -1]).mean() - 0.5) < 0.05)
    True
    """
    g = rng.numpy()
    first, second = g.normal(size=(2, n, 5))
    direction = np.array([1.0, 1.0, -1.0, -1.0, 0.0])
    if scenario == "A3":
        second = second + direction
        slopes = np.array([1.0, 1.0, 1.0, -1.0, -1.0])
        y, w = (x @ slopes + g.normal(size=n) for x in (first, second))
        shift = np.full(n, 0.5)
    elif scenario == "B3":
        moved, wide = g.random((2, n)) < 0.5
        first = first + np.where(moved, 0.5, 0.0)[:, None] * direction
        second = second * np.where(wide, math.sqrt(1.5), 1.0)[:, None]
        y, w = (_cubic(x) + g.standard_t(5, n) for x in (first, second))
        shift = 0.8 * (1 - (second**2).sum(axis=1) / 10)
    else:
        raise UsageError(f'There is no two-sample scenario "{scenario}": A3 or B3.')
    return (first, y), (second, w + shift if alternative else w)


def _cubic(x: np.ndarray) -> np.ndarray:
    one, two, three, four, five = x.T
    found: np.ndarray = one + two + three**2 - four**2 - five**3
    return found
