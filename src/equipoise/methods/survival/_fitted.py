"""Fitted survival models behind one face: curves and quantiles, all rows and levels at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from scipy.special import expit, ndtr, ndtri

from equipoise.core import Rng, UsageError, nearest
from equipoise.kit.arrays.survival import quantiles_of_curves
from equipoise.kit.data.source import one_line

LIFELINES = ("CoxPHFitter", "LogNormalAFTFitter", "WeibullAFTFitter", "LogLogisticAFTFitter")
SKSURV = {
    "CoxPHSurvivalAnalysis": "linear_model",
    "CoxnetSurvivalAnalysis": "linear_model",
    "ComponentwiseGradientBoostingSurvivalAnalysis": "ensemble",
    "ExtraSurvivalTrees": "ensemble",
    "GradientBoostingSurvivalAnalysis": "ensemble",
    "RandomSurvivalForest": "ensemble",
    "SurvivalTree": "tree",
}
_BLOCK = 1 << 22  # entries of curves at a time


class Fitted(Protocol):
    """Curves and quantiles of rows."""

    def survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray: ...

    def quantiles(self, inputs: np.ndarray, levels: np.ndarray) -> np.ndarray: ...


def fit_lifelines(
    name: str,
    parameters: Mapping[str, Any],
    inputs: np.ndarray,
    times: np.ndarray,
    events: np.ndarray,
) -> tuple[Fitted, list[str]]:
    """Return a fitted model of lifelines, and what lifelines warned of."""
    lifelines = _package("lifelines", "equipoise[survival]")
    maker = getattr(lifelines, name)
    try:
        model = maker(**parameters)
    except TypeError as error:
        raise UsageError(f"{name} cannot be made ({one_line(error)}).") from error
    _check_features(inputs, name, bool(parameters.get("penalizer")))
    if name != "CoxPHFitter" and not (times > 0).all():
        raise UsageError(
            f"{name}: row {int((times <= 0).argmax())} has time 0, which this model cannot take; "
            f"use CoxPHFitter, or give it a time above 0."
        )
    import pandas as pd

    columns = _columns(inputs)
    frame = pd.DataFrame(inputs, columns=columns).assign(time=times, event=events.astype(float))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            model.fit(frame, "time", "event")
        except (ValueError, TypeError, ArithmeticError, lifelines.exceptions.ConvergenceError) as e:
            raise UsageError(f"{name} could not be trained ({one_line(e)}).") from e
    if any("failed to converge" in str(each.message) for each in warned):
        raise UsageError(
            f"{name} could not be trained: its fit did not converge; give the parameter penalizer "
            f"a larger value, such as 0.01."
        )
    notes = [
        f"{name} warned when it was trained: {one_line(each.message)}."
        for each in warned
        if isinstance(each.message, lifelines.exceptions.ConvergenceWarning)
    ]
    return _of_lifelines(model, name, columns), notes


def _of_lifelines(model: Any, name: str, columns: list[str]) -> Fitted:
    if name in _FAMILIES:
        family = _FAMILIES[name]
        weights, shape = (model.params_[each] for each in family["parameters"])
        if set(shape.index) == {"Intercept"}:  # else it hangs on features too
            return _Accelerated(
                weights[columns].to_numpy(float), float(weights.get("Intercept", 0.0)),
                float(np.exp(shape["Intercept"])), family,
            )  # fmt: skip
    if name == "CoxPHFitter" and model.baseline_estimation_method == "breslow" and not model.strata:
        import pandas as pd

        hazard = model.baseline_cumulative_hazard_
        origin = pd.DataFrame(np.zeros((1, len(columns))), columns=columns)
        return _Proportional(
            model.params_[columns].to_numpy(float),
            float(model.predict_log_partial_hazard(origin).iloc[0]),
            hazard.index.to_numpy(float),
            hazard.to_numpy(float)[:, 0],
        )
    times = np.unique(model.durations.to_numpy(float))

    def curves(inputs: np.ndarray, at: np.ndarray) -> np.ndarray:
        import pandas as pd

        frame = pd.DataFrame(inputs, columns=columns)
        found = model.predict_survival_function(frame, times=at).to_numpy(float).T
        return np.asarray(np.minimum.accumulate(np.clip(found, 0, 1), axis=1))

    return _Curves(curves, times[times > 0])


def fit_estimator_of_sksurv(
    name: str,
    maker: Callable[..., Any],
    parameters: Mapping[str, Any],
    inputs: np.ndarray,
    times: np.ndarray,
    events: np.ndarray,
    rng: Rng,
) -> Fitted:
    """Return a fitted estimator with scikit-survival's interface."""
    from equipoise.kit.arrays.learners import fit_estimator

    if name == "CoxnetSurvivalAnalysis":  # its curves need the baseline
        parameters = {"fit_baseline_model": True, **parameters}
    try:
        bare = maker(**parameters)
    except TypeError as error:
        raise UsageError(f"{name} cannot be made ({one_line(error)}).") from error
    target = np.array(
        list(zip(events, times, strict=True)), dtype=[("event", bool), ("time", float)]
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=FutureWarning)
            model = fit_estimator(bare, inputs, target, rng)
    except ArithmeticError as error:
        raise UsageError(f"{name} could not be trained ({one_line(error)}).") from error
    if not hasattr(model, "predict_survival_function"):
        raise UsageError(f"{name} gives no survival curves, as scikit-survival's models do.")
    grid = np.asarray(model.unique_times_, float)

    def curves(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
        found = np.asarray(model.predict_survival_function(rows, return_array=True), float)
        whole = np.concatenate([np.ones((len(found), 1)), found], axis=1)
        return np.asarray(whole[:, np.searchsorted(grid, at, side="right")])

    return _Curves(curves, grid)


def sksurv_maker(name: str) -> Callable[..., Any]:
    """Return the class of scikit-survival of this name."""
    package = _package(f"sksurv.{SKSURV[name]}", "equipoise[scikit-survival]")
    maker: Callable[..., Any] = getattr(package, name)
    return maker


def known(name: str) -> None:
    """Refuse a name that is neither of lifelines nor of scikit-survival."""
    names = (*LIFELINES, *SKSURV)
    if name not in names:
        raise UsageError(
            f'There is no survival model "{name}".{nearest(name, names)} All: {", ".join(names)}; '
            f"others with scikit-survival's interface are named by import path, as in "
            f"package.module:Name."
        )


def _package(module: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        package = "lifelines" if module == "lifelines" else "scikit-survival"
        raise UsageError(
            f"This survival model comes with the package {package}, which is not installed: "
            f"pip install '{extra}'."
        ) from error


def _columns(inputs: np.ndarray) -> list[str]:
    return [f"x{place}" for place in range(inputs.shape[1])]


def _check_features(inputs: np.ndarray, name: str, penalised: bool) -> None:
    spread = np.ptp(inputs, axis=0)
    if (spread == 0).any():
        raise UsageError(
            f"{name}: feature {int((spread == 0).argmax())} (from 0) is constant in the training "
            f"rows; leave it out."
        )
    scaled = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    if not penalised and np.linalg.matrix_rank(scaled) < inputs.shape[1]:
        raise UsageError(
            f"{name}: the features are collinear in the {len(inputs)} training rows; leave some "
            f"out, or give the parameter penalizer a value such as 0.01."
        )


# The parameter that hangs on the features and the one that does not, both as logarithms; the
# quantile at p, and the survival, of the time as a multiple of the row's own scale.
_FAMILIES: dict[str, Any] = {
    "LogNormalAFTFitter": {
        "parameters": ("mu_", "sigma_"),
        "quantile": lambda p, s: np.exp(s * ndtri(p)),
        "survival": lambda ratio, s: ndtr(-np.log(ratio) / s),
    },
    "WeibullAFTFitter": {
        "parameters": ("lambda_", "rho_"),
        "quantile": lambda p, s: (-np.log1p(-p)) ** (1 / s),
        "survival": lambda ratio, s: np.exp(-(ratio**s)),
    },
    "LogLogisticAFTFitter": {
        "parameters": ("alpha_", "beta_"),
        "quantile": lambda p, s: (p / (1 - p)) ** (1 / s),
        "survival": lambda ratio, s: expit(-s * np.log(ratio)),
    },
}


class _Accelerated:
    """Times are a standard time, stretched by a factor of the features."""

    def __init__(self, weights: np.ndarray, intercept: float, shape: float, family: Any) -> None:
        self._weights, self._intercept, self._shape = weights, intercept, shape
        self._family = family

    def survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            ratio = times / self._factor(inputs)[:, None]
            found: np.ndarray = self._family["survival"](ratio, self._shape)
        return found

    def quantiles(self, inputs: np.ndarray, levels: np.ndarray) -> np.ndarray:
        standard = self._family["quantile"](levels, self._shape)
        return np.asarray(self._factor(inputs)[:, None] * standard)

    def _factor(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(inputs @ self._weights + self._intercept))


class _Proportional:
    """A hazard of all rows, as steps, times a factor of the features."""

    def __init__(
        self, weights: np.ndarray, origin: float, times: np.ndarray, hazard: np.ndarray
    ) -> None:
        self._weights, self._origin = weights, origin
        self._times, self._hazard = times, hazard

    def survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        steps = np.concatenate([[0.0], self._hazard])
        hazard = steps[np.searchsorted(self._times, times, side="right")]
        return np.asarray(np.exp(-self._factor(inputs)[:, None] * hazard))

    def quantiles(self, inputs: np.ndarray, levels: np.ndarray) -> np.ndarray:
        wanted = -np.log1p(-levels) / self._factor(inputs)[:, None]
        place = np.searchsorted(self._hazard, wanted * (1 - 1e-12), side="left")
        return np.asarray(np.append(self._times, np.inf)[place])

    def _factor(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(inputs @ self._weights + self._origin))


class _Curves:
    """Any model that gives curves; quantiles are read off them at its own times."""

    def __init__(
        self, curves: Callable[[np.ndarray, np.ndarray], np.ndarray], grid: np.ndarray
    ) -> None:
        self._curves, self._grid = curves, grid

    def survival(self, inputs: np.ndarray, times: np.ndarray) -> np.ndarray:
        return np.concatenate([self._curves(part, times) for part in self._parts(inputs)])

    def quantiles(self, inputs: np.ndarray, levels: np.ndarray) -> np.ndarray:
        return np.concatenate([
            quantiles_of_curves(self._grid, self._curves(part, self._grid), levels)
            for part in self._parts(inputs)
        ])  # fmt: skip

    def _parts(self, inputs: np.ndarray) -> list[np.ndarray]:
        size = max(1, _BLOCK // len(self._grid))
        return [inputs[start : start + size] for start in range(0, len(inputs), size)]
