"""Win rates at equal length, and how far a metric can be gamed by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, UsageError
from equipoise.kit.statistics import single


@dataclass(frozen=True)
class _LengthModel:
    rate: float
    coefficients: np.ndarray
    influence: np.ndarray


def length_controlled_win_rate(
    preference: npt.ArrayLike,
    length_difference: npt.ArrayLike,
    *,
    difficulty: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    r"""Win rate that a logistic model predicts for responses as long as the baseline's.

    .. math:: \operatorname{logit} P(m \succ b \mid x) = \theta
              + \phi \tanh\!\Big(\frac{\ell_m - \ell_b}{s}\Big) + \psi \gamma_x,
              \qquad W = \frac1n \sum_x \sigma(\theta + \psi \gamma_x),

    with :math:`s` the standard deviation of the length differences. AlpacaEval 2.0 fits the same
    model with a slight penalty whose strength it cross-validates; here there is none.

    Parameters
    ----------
    preference
        For the model over the baseline, from 0 to 1, shape ``(n,)``.
    length_difference
        Length of the model's response minus that of the baseline's.
    difficulty
        :math:`\gamma_x` of each instruction, known beforehand; None leaves the term out.
    clusters
        Cluster of each row, where rows are not independent.
    level
        Coverage of the interval, which is Student's (clusters: CR2) on the influence of each row.

    Returns
    -------
    Estimate
        In [0, 1]; ``details`` has ``theta``, ``phi`` and with difficulties ``psi``.

    Raises
    ------
    UsageError
        If preferences leave [0, 1] or all are 0 or all 1, if lengths never differ, or if the
        model cannot be told from the data.

    References
    ----------
    Dubois et al.: Length-Controlled AlpacaEval, 2024.

    Examples
    --------
    >>> length = np.tile([-300.0, -100, 100, 300], 50)
    >>> won = np.tile([0, 0, 1, 1, 0, 1, 0, 1], 25)
    >>> print(length_controlled_win_rate(won, length))
    0.500 [0.406, 0.594]
    """
    p, d = np.asarray(preference, float), np.asarray(length_difference, float)
    g = None if difficulty is None else np.asarray(difficulty, float)
    model = length_model(p, d, g)
    found = single.mean(model.rate + model.influence, clusters=clusters, level=level)
    names = ("theta", "phi", "psi")
    return replace(
        found,
        value=model.rate,
        low=max(found.low, 0.0),
        high=min(found.high, 1.0),
        method="length-controlled",
        details={
            **found.details,
            **dict(zip(names, map(float, model.coefficients), strict=False)),
        },
    )


def length_model(p: np.ndarray, d: np.ndarray, g: np.ndarray | None) -> _LengthModel:
    """Fit the model and return the win rate with each row's influence on it."""
    import warnings

    import statsmodels.api as sm

    who = "length_controlled_win_rate"
    if p.shape != d.shape or p.ndim != 1 or (g is not None and g.shape != p.shape):
        raise UsageError(f"{who}: give one length difference a preference.")
    if not np.isfinite(d).all() or (g is not None and not np.isfinite(g).all()):
        raise UsageError(f"{who}: length differences and difficulties must be finite.")
    if not ((p >= 0) & (p <= 1)).all():
        raise UsageError(f"{who}: preferences must be from 0 to 1.")
    if len(p) < 3 or np.ptp(d) == 0:
        raise UsageError(f"{who}: length differences must vary, over at least three rows.")
    if (p == p[0]).all() and p[0] in (0.0, 1.0):
        raise UsageError(f"{who}: all {len(p)} comparisons went the same way; there is no model.")
    columns = [np.ones(len(p)), np.tanh(d / d.std(ddof=1))] + ([] if g is None else [g])
    design = np.column_stack(columns)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise UsageError(f"{who}: difficulties must vary and not follow the length differences.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit: Any = sm.GLM(p, design, family=sm.families.Binomial()).fit()
    beta = np.asarray(fit.params)
    steep = beta.copy()  # in units that do not hang on how difficulties are measured
    if g is not None:
        steep[0] += beta[2] * g.mean()
        steep[2] *= g.std()
    # Where outcomes can be told apart, fitting ends at a log-odds of about 20.
    if not fit.converged or np.abs(steep).max() > 20:
        raise UsageError(
            f"{who}: length tells every outcome, so that there is no telling what it hides; give"
            " more comparisons."
        )
    still = design.copy()
    still[:, 1] = 0.0
    told, even = (1 / (1 + np.exp(-x @ beta)) for x in (design, still))
    bread = np.linalg.inv((design * (told * (1 - told))[:, None]).T @ design / len(p))
    slope = ((even * (1 - even))[:, None] * still).mean(axis=0)
    influence = even - even.mean() + (design * (p - told)[:, None]) @ bread @ slope
    return _LengthModel(float(even.mean()), beta, influence)


def gameability(
    metric: Mapping[str, float],
    reference: Mapping[str, float] | None = None,
    *,
    variants: Sequence[str] = ("_verbose", "_concise"),
) -> float:
    r"""How far asking a model to be verbose or concise moves a metric, in percent.

    Over models :math:`m` with all variants, and with standard deviations over a model's variants,
    itself among them,

    .. math:: G = 100 \cdot \frac1M \sum_m \frac{\mathrm{sd}_m}{\mathrm{mean}_m}
              \cdot \frac{\mathrm{sd}(reference)}{\mathrm{sd}(metric)},

    the last over models without variants' names: a metric gains nothing by being narrow.

    Parameters
    ----------
    metric
        By name of the model; ``NAME_verbose`` and ``NAME_concise`` are variants of ``NAME``.
    reference
        A win rate of the same models that sets the scale, GPT-4's in AlpacaEval; None leaves the
        last factor out.
    variants
        Endings of the names; a single one gives the gameability by verbosity alone.

    Raises
    ------
    UsageError
        If no model has all variants, a mean is 0, or fewer than two models set the scale.

    References
    ----------
    Dubois et al.: Length-Controlled AlpacaEval, 2024.

    Examples
    --------
    >>> rates = {"a": 0.5, "a_verbose": 0.6, "a_concise": 0.4, "b": 0.3}
    >>> round(gameability(rates), 6)
    20.0
    """
    who = "gameability"
    own = [name for name in metric if not name.endswith(tuple(variants))]
    gamed = [name for name in own if all(name + each in metric for each in variants)]
    if not gamed:
        raise UsageError(
            f"{who}: no model has all of {', '.join('NAME' + each for each in variants)}. There"
            f" are: {', '.join(metric)}."
        )
    spreads = []
    for name in gamed:
        values = np.array([metric[name], *(metric[name + each] for each in variants)])
        if values.mean() == 0:
            raise UsageError(f"{who}: the mean over the variants of {name} is 0.")
        spreads.append(values.std(ddof=1) / values.mean())
    if reference is None:
        return float(100 * np.mean(spreads))
    both = [name for name in own if name in reference]
    scale = (
        [np.std([each[name] for name in both], ddof=1) for each in (reference, metric)]
        if (len(both) > 1)
        else [0.0, 0.0]
    )
    if scale[1] == 0:
        raise UsageError(f"{who}: at least two models with different values must set the scale.")
    return float(100 * np.mean(spreads) * scale[0] / scale[1])
