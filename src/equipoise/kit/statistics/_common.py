"""Checks of what comes in, quantiles of the usual laws, and the notes on what goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from scipy import special

from equipoise.core import UsageError

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]

FEW_UNITS = 30
FEW_CLUSTERS = 10


def column(x: npt.ArrayLike, who: str, name: str = "x") -> Array:
    """Return a one-dimensional float array, or refuse with one sentence."""
    try:
        found = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{who}: {name} must be a list of numbers.") from None
    if found.ndim != 1:
        raise UsageError(f"{who}: {name} must have one dimension, got one of shape {found.shape}.")
    if found.size == 0:
        raise UsageError(f"{who}: {name} is empty, and no data give no estimate.")
    if not np.isfinite(found).all():
        bad = int(np.count_nonzero(~np.isfinite(found)))
        raise UsageError(
            f"{who}: {name} has {bad} values that are NaN or infinite; drop or replace them first."
        )
    return found


def same_length(who: str, **columns: npt.NDArray[np.generic] | None) -> None:
    """Refuse columns of different lengths; None is skipped."""
    sizes = {name: len(each) for name, each in columns.items() if each is not None}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise UsageError(f"{who}: columns must be equally long, but {told} rows.")


def codes(labels: npt.ArrayLike, rows: int, who: str, name: str) -> tuple[Codes, int]:
    """Return labels as integers from 0 and how many different ones there are."""
    found = np.asarray(labels)
    if found.ndim != 1 or found.size != rows:
        raise UsageError(f"{who}: {name} must name one label a row, {rows} in all.")
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise UsageError(f"{who}: {name} has missing labels (NaN).")
    try:
        labels_found, inverse = np.unique(found, return_inverse=True)
    except TypeError:
        raise UsageError(
            f"{who}: {name} mixes kinds of labels or has missing ones; use all text or all numbers."
        ) from None
    return inverse.astype(np.intp), int(labels_found.size)


def cluster_codes(labels: npt.ArrayLike, rows: int, who: str) -> tuple[Codes, int]:
    """Return cluster codes; one cluster is refused, for it shows no variation."""
    found, groups = codes(labels, rows, who, "clusters")
    if groups < 2:
        raise UsageError(f"{who}: one cluster gives no interval; at least two are needed.")
    return found, groups


def group_sums(x: Array, groups: Codes, count: int) -> Array:
    """Return the sum of ``x`` in each group."""
    return np.asarray(np.bincount(groups, weights=x, minlength=count), dtype=np.float64)


def check_level(level: float, who: str) -> None:
    """Refuse a level outside (0, 1)."""
    if not 0 < level < 1:
        raise UsageError(f"{who}: level must be between 0 and 1, got {level}.")


def check_draws(draws: int, who: str) -> None:
    """Refuse fewer than 100 draws, which can give no interval of use."""
    if draws < 100:
        raise UsageError(f"{who}: draws must be at least 100, got {draws}.")


def is_binary(*columns: Array) -> bool:
    """Say whether all values are 0 or 1."""
    return all(bool(((each == 0) | (each == 1)).all()) for each in columns)


def normal_quantile(p: float) -> float:
    """Return the standard normal quantile."""
    return float(special.ndtri(p))


def critical(level: float, df: float = np.inf) -> float:
    """Return the two-sided critical value of t, or of the normal for infinite ``df``."""
    upper = (1 + level) / 2
    return float(special.ndtri(upper) if np.isinf(df) else special.stdtrit(df, upper))


def two_sided(t: float, df: float) -> float:
    """Return the two-sided p-value of a t statistic."""
    return float(2 * special.stdtr(df, -abs(t)))


def bisect(f: Callable[[float], float], low: float, high: float, rounds: int = 80) -> float:
    """Return the root of a decreasing function between two ends."""
    for _ in range(rounds):
        middle = (low + high) / 2
        if f(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def size_note(n: int, clusters: int | None = None) -> str:
    """Warn of too few units or clusters to lean on."""
    if clusters is not None and clusters < FEW_CLUSTERS:
        return f"Only {clusters} clusters (fewer than {FEW_CLUSTERS}): read with care."
    if n < FEW_UNITS:
        return f"Only {n} units (fewer than {FEW_UNITS}): read with care."
    return ""


def join(notes: Iterable[str]) -> str:
    """Put notes that say something behind each other."""
    return " ".join(note for note in notes if note)
