r"""The bootstrap over units or whole clusters: percentile, BCa and studentised.

With draws $\theta^*$ of the statistic, $\hat\theta$ its value and tails $\alpha$:

- percentile: the $\alpha$ quantiles of $\theta^*$;
- BCa (Efron 1987): the quantiles at
  $\Phi(z_0 + \frac{z_0 + z_\alpha}{1 - a(z_0 + z_\alpha)})$, where $z_0$ is the bias (ties count
  half) and $a$ the acceleration, from a jackknife over clusters;
- studentised: $\hat\theta - s\, t^*_{1-\alpha}$, where $t^* = (\theta^* - \hat\theta)/s^*$.

The p-value against zero is found by inverting the interval of the same method: it is the
smallest $1 - level$ at which the interval leaves zero out, and at least $1/(draws + 1)$.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Rng, UsageError
from equipoise.kit.statistics._common import (
    Array,
    Codes,
    check_draws,
    check_level,
    cluster_codes,
    column,
)
from equipoise.kit.statistics._law import Law, Method
from equipoise.kit.statistics.permutation import BLOCK

Statistic = Callable[..., float]

JACKKNIFE = 1000
"""Groups a jackknife leaves out in turn, at most: more would not sharpen the acceleration."""

INNER_JACKKNIFE = 25
"""Groups of the jackknife inside each draw of the studentised bootstrap."""


def bootstrap(
    statistic: Statistic,
    columns: Sequence[npt.ArrayLike],
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng,
    method: Method = "bca",
) -> Estimate:
    """Estimate any statistic of rows by resampling rows, or whole clusters.

    Parameters
    ----------
    statistic
        Maps the columns to a number; NaN means undefined on that resample.
    columns
        Arrays with one row a unit, resampled together.
    clusters
        Cluster of each row; whole clusters are drawn.
    level
        Coverage aimed for, in (0, 1).
    draws
        Resamples, at least 100.
    rng
        Stream for the draws.
    method
        ``"bca"``, ``"percentile"`` or ``"studentized"``. The last calls the
        statistic about 26 times a draw.

    Returns
    -------
    Estimate
        With ``p_value`` against zero, by inversion of the interval; ``details``
        has ``se`` and, for BCa, ``bias`` and ``acceleration``.

    Raises
    ------
    UsageError
        On NaN, empty or unequal columns, one row or cluster, a statistic that is
        undefined on the data or on more than a tenth of the resamples.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(100.0)
    >>> print(bootstrap(np.median, (x,), rng=Rng(0), method="percentile"))
    49.500 [40.500, 58.500]
    """
    who = "bootstrap"
    check_level(level, who)
    check_draws(draws, who)
    if method not in ("bca", "percentile", "studentized"):
        raise UsageError(
            f"{who}: method must be 'bca', 'percentile' or 'studentized', got {method!r}."
        )
    data, sample = _prepare(columns, clusters, who)
    value = float(statistic(*data))
    if not np.isfinite(value):
        raise UsageError(f"{who}: the statistic of the data is {value}, so there is no interval.")
    generator = rng.numpy()
    star, star_se = np.empty(draws), np.full(draws, np.nan)
    for i in range(draws):
        pick = generator.integers(sample.groups, size=sample.groups, dtype=np.intp)
        rows = sample.rows(pick)
        drawn = [each[rows] for each in data]
        star[i] = statistic(*drawn)
        if method == "studentized":
            inner = sample.drawn(pick)
            star_se[i] = _se(_jackknife(statistic, drawn, inner, INNER_JACKKNIFE, generator))
    acceleration, se = 0.0, float("nan")
    if method == "bca":
        acceleration = _acceleration(_jackknife(statistic, data, sample, JACKKNIFE, generator))
    elif method == "studentized":
        se = _se(_jackknife(statistic, data, sample, INNER_JACKKNIFE, generator))
    law = Law(value, star, method, acceleration, se, star_se)
    return law.estimate(level, sample.n, sample.clusters, who)


def bootstrap_difference(
    statistic: Statistic,
    a_columns: Sequence[npt.ArrayLike],
    b_columns: Sequence[npt.ArrayLike],
    *,
    clusters: npt.ArrayLike | None = None,
    level: float = 0.95,
    draws: int = 2000,
    rng: Rng,
    method: Method = "bca",
) -> Estimate:
    """Estimate the statistic of ``a`` minus that of ``b``, whose rows are paired.

    Both are computed on the same resampled rows, so what the pairs share
    cancels. Parameters, errors and the p-value are those of `bootstrap`.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.arange(100.0)
    >>> print(bootstrap_difference(np.mean, (a + 1,), (a,), rng=Rng(0)))
    1.000 [1.000, 1.000]
    """
    a, b = tuple(a_columns), tuple(b_columns)

    def difference(*columns: Any) -> float:
        return float(statistic(*columns[: len(a)])) - float(statistic(*columns[len(a) :]))

    return bootstrap(
        difference, a + b, clusters=clusters, level=level, draws=draws, rng=rng, method=method
    )


def bootstrap_mean(
    d: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    draws: int = 10_000,
    level: float = 0.95,
    rng: Rng,
    method: Method = "bca",
) -> Estimate:
    """Estimate a mean as `bootstrap` does, many draws at a time.

    Parameters
    ----------
    d
        Values or paired differences, shape ``(n,)``.
    clusters
        Cluster of each row; whole clusters are drawn.
    draws
        Resamples, at least 100.
    level
        Coverage aimed for, in (0, 1).
    rng
        Stream for the draws.
    method
        As for `bootstrap`; the standard error inside a draw has a closed form
        here, so ``"studentized"`` costs little more.

    Raises
    ------
    UsageError
        On NaN, an empty column, one unit or one cluster.

    Examples
    --------
    >>> print(bootstrap_mean(range(100), rng=Rng(0), draws=2000))
    49.500 [43.890, 55.050]
    """
    who = "bootstrap_mean"
    check_level(level, who)
    check_draws(draws, who)
    (x,), sample = _prepare((column(d, who, "d"),), clusters, who)
    value = float(x.mean())
    size = sample.size.astype(np.float64)
    left = sample.sums(x - value)  # centred, so that squares lose no digits
    base = [left] if sample.clusters is None else [left, size]
    squares = [left * left, left * size, size * size] if method == "studentized" else []
    if sample.clusters is None and squares:
        squares = squares[:1]
    found = resampled_sums([*base, *squares], draws, rng.numpy())
    rows = found[:, 1] if sample.clusters is not None else np.full(draws, float(sample.n))
    shift = found[:, 0] / rows
    acceleration, se, star_se = 0.0, float("nan"), np.full(draws, np.nan)
    if method == "studentized":
        if sample.clusters is None:
            spread = found[:, 1] - shift**2 * rows
        else:
            spread = found[:, 2] - 2 * shift * found[:, 3] + shift**2 * found[:, 4]
        stretch = sample.groups / (sample.groups - 1)
        star_se = np.sqrt(np.maximum(spread, 0) * stretch) / rows
        se = float(np.sqrt((left**2).sum() * stretch)) / sample.n
    elif method == "bca":
        acceleration = _acceleration(-left / (sample.n - size))
    law = Law(value, value + shift, method, acceleration, se, star_se)
    return law.estimate(level, sample.n, sample.clusters, who)


def resampled_sums(columns: Sequence[Array], draws: int, generator: np.random.Generator) -> Array:
    """Return the column sums of resampled rows, shape ``(draws, columns)``.

    Rows that take few different values are drawn as multinomial counts of
    those values, which costs nothing by comparison and has the same law.
    """
    groups = columns[0].size
    table = np.stack(columns, axis=1)
    table = np.asfortranarray(
        table[np.lexsort(table.T)]
    )  # the same draws whatever the order of rows
    if groups >= 1000 and np.unique(table[:200, 0]).size <= 100:
        different, times = np.unique(table, axis=0, return_counts=True)
        if different.shape[0] <= groups // 100:
            counts = generator.multinomial(groups, times / groups, size=draws)
            return np.asarray(counts @ different, dtype=np.float64)
    sums = np.empty((draws, len(columns)))
    step = max(1, BLOCK // groups)
    for start in range(0, draws, step):
        pick = generator.integers(groups, size=(min(step, draws - start), groups))
        for k, each in enumerate(table.T):
            sums[start : start + step, k] = each.take(pick).sum(axis=1)
    return sums


@dataclass(frozen=True, slots=True)
class _Sample:
    """Where each resampled group of rows begins and how many rows it has."""

    size: Codes
    first: Codes
    clusters: int | None

    @classmethod
    def of(cls, size: Codes, clusters: int | None) -> _Sample:
        return cls(size, (np.cumsum(size) - size).astype(np.intp), clusters)

    @property
    def n(self) -> int:
        return int(self.size.sum())

    @property
    def groups(self) -> int:
        return self.size.size

    def rows(self, pick: Codes) -> Codes:
        """Return the rows of the picked groups, group after group."""
        if self.clusters is None:
            return pick
        size = self.size[pick]
        before = np.cumsum(size) - size
        inside = np.arange(size.sum()) - np.repeat(before, size)
        found: Codes = np.repeat(self.first[pick], size) + inside
        return found

    def drawn(self, pick: Codes) -> _Sample:
        """Return the sample that the picked groups make, each a group of its own."""
        return _Sample.of(self.size[pick], self.clusters)

    def sums(self, x: Array) -> Array:
        if self.clusters is None:
            return x
        return np.asarray(np.add.reduceat(x, self.first), dtype=np.float64)


def _prepare(
    columns: Sequence[npt.ArrayLike], clusters: npt.ArrayLike | None, who: str
) -> tuple[list[npt.NDArray[Any]], _Sample]:
    data = [np.asarray(each) for each in columns]
    if not data or any(each.ndim == 0 for each in data):
        raise UsageError(f"{who}: columns must be a tuple of arrays.")
    sizes = {len(each) for each in data}
    if len(sizes) > 1:
        raise UsageError(f"{who}: columns must be equally long, got {sorted(sizes)} rows.")
    n = sizes.pop()
    if n == 0:
        raise UsageError(f"{who}: the columns are empty, and no data give no estimate.")
    if any(each.dtype.kind == "f" and not np.isfinite(each).all() for each in data):
        raise UsageError(
            f"{who}: a column has values that are NaN or infinite; drop or replace them first."
        )
    keys = [key for each in data for key in each.reshape(n, -1).T[:8]]
    if clusters is None:
        if n < 2:
            raise UsageError(f"{who}: one unit gives no interval; at least two are needed.")
        sample = _Sample.of(np.ones(n, dtype=np.intp), None)
    else:
        group, count = cluster_codes(clusters, n, who)
        keys.append(group)
        sample = _Sample.of(np.bincount(group, minlength=count).astype(np.intp), count)
    try:
        order = np.lexsort(keys)  # the same draws whatever the order of rows
    except TypeError:
        raise UsageError(f"{who}: a column mixes kinds of values, which have no order.") from None
    return [each[order] for each in data], sample


def _jackknife(
    statistic: Statistic,
    data: Sequence[npt.NDArray[Any]],
    sample: _Sample,
    most: int,
    generator: np.random.Generator,
) -> Array:
    """Return the statistic with each group left out; many groups go in random bundles."""
    bundles = min(sample.groups, most)
    bundle = np.arange(sample.groups)
    if bundles < sample.groups:
        bundle = generator.permutation(bundle % bundles)
    owner = np.repeat(bundle, sample.size)
    found = np.empty(bundles)
    for j in range(bundles):
        keep = owner != j
        found[j] = statistic(*(each[keep] for each in data))
    return found[np.isfinite(found)]


def _se(left_out: Array) -> float:
    count = left_out.size
    return float(np.sqrt(left_out.var() * (count - 1))) if count > 1 else float("nan")


def _acceleration(left_out: Array) -> float:
    if left_out.size < 2:
        return 0.0
    pull = left_out.mean() - left_out
    spread = float((pull**2).sum())
    return float((pull**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0
