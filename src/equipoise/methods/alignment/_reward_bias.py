r"""What a reward owes to a characteristic of the response, estimated and taken away.

A reward is :math:`r(x) = r^*(x) + b(c(x))`, the true one and a bias that hangs on a
characteristic :math:`c`, such as the length. Where the margins of the true reward are independent
of :math:`c`,

.. math:: b(c_1) - b(c_2) = E[r \mid c = c_1] - E[r \mid c = c_2],

so that the calibrated margin needs no more than an estimate :math:`m(c)` of :math:`E[r \mid c]`:

.. math:: \Delta^*(x_1, x_2) = r(x_1) - r(x_2) - \lambda\,(m(c_1) - m(c_2)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError

ESTIMATORS = ("lowess", "local_mean", "penalty")

_WORK = 1e10  # weighted points that an exact LOWESS may visit: about a minute
_STEP = 1e-3  # distance between fits where it would visit more, as a share of the middle 98 %


def local_mean(
    rewards: npt.ArrayLike,
    characteristic: npt.ArrayLike,
    at: npt.ArrayLike | None = None,
    *,
    width: float,
    min_count: int = 1,
) -> np.ndarray:
    r"""Mean reward of responses whose characteristic is near (RC-Mean).

    .. math:: m(c) = \frac{1}{|N(c)|} \sum_{i \in N(c)} r_i, \qquad
              N(c) = \{i : |c_i - c| \le d\}

    Parameters
    ----------
    rewards, characteristic
        The fitting set, shape ``(n,)``.
    at
        Where to estimate; by default at ``characteristic``.
    width
        :math:`d`, at least 0, in units of the characteristic; both ends belong to the window.
    min_count
        Fewest rewards in a window; fewer give NaN.

    Raises
    ------
    UsageError
        On values that are not finite, unequal lengths, or fewer rewards than ``min_count``.

    References
    ----------
    Post-hoc Reward Calibration: A Case Study on Length Bias, ICLR 2025.

    Examples
    --------
    >>> local_mean([1, 2, 3, 9], [1, 2, 3, 10], width=1)
    array([1.5, 2. , 2.5, 9. ])
    """
    r, c = _columns("local_mean", rewards, characteristic)
    if not width >= 0:
        raise UsageError(f"local_mean: width must be at least 0, got {width!r}.")
    _enough("local_mean", len(r), min_count)
    order = np.argsort(c, kind="stable")
    c, r = c[order], r[order]
    level = r.mean()  # sums of centred rewards lose no digits
    sums = np.concatenate([[0.0], np.cumsum(r - level)])
    wanted = c if at is None else np.asarray(at, float)
    first = np.searchsorted(c, wanted - width, side="left")
    last = np.searchsorted(c, wanted + width, side="right")
    count = last - first
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.asarray(level + (sums[last] - sums[first]) / count, float)
    found[count < max(min_count, 1)] = np.nan
    if at is not None:
        return found
    back = np.empty_like(found)
    back[order] = found
    return back


def lowess(
    rewards: npt.ArrayLike,
    characteristic: npt.ArrayLike,
    at: npt.ArrayLike | None = None,
    *,
    frac: float = 0.5,
    delta: float | None = None,
) -> np.ndarray:
    r"""Mean reward at a characteristic by locally weighted regression (RC-LWR).

    Cleveland's LOWESS as statsmodels has it: at each :math:`c` a line through the nearest
    :math:`q = \lfloor n \cdot frac \rfloor` points with weights
    :math:`(1 - (|c_i - c|/h)^3)^3`, :math:`h` the distance to the farthest; then three passes
    that take weight from outliers, :math:`(1 - (e_i / 6\,\mathrm{MAD})^2)^2`. Between the points
    of the fitting set :math:`m` is interpolated; beyond them it stays what it is at the end.

    Parameters
    ----------
    rewards, characteristic
        The fitting set, shape ``(n,)``.
    at
        Where to estimate; by default at ``characteristic``.
    frac
        Share of the points in a window, in (0, 1]. Near 1 it is almost a straight line. Where
        more points than that share one value, all windows hold one point more than these: a
        window without width has no line.
    delta
        Points nearer than this to the last fit are interpolated, in units of the
        characteristic; 0 fits at each different value. By default 0 where that takes about a
        minute at most, as whole numbers such as lengths do; else a thousandth of the
        spread of the middle 98 %.

    Raises
    ------
    UsageError
        On values that are not finite, unequal lengths, or fewer than two points in a window.

    References
    ----------
    Cleveland: Robust locally weighted regression, 1979. Post-hoc Reward Calibration, ICLR 2025.

    Examples
    --------
    >>> lowess([1, 3, 5, 7, 9], [0, 1, 2, 3, 4], at=[1.5, 10], frac=0.8).round(6)
    array([4., 9.])
    """
    from statsmodels.nonparametric.smoothers_lowess import lowess as fit

    r, c = _columns("lowess", rewards, characteristic)
    if not 0 < frac <= 1:
        raise UsageError(f"lowess: frac must be above 0 and at most 1, got {frac!r}.")
    window = int(frac * len(r) + 1e-10)
    if window < 2:
        raise UsageError(
            f"lowess: frac {frac:g} of {len(r)} rewards is a window of {window}; two are needed, so"
            " raise frac or give more rewards."
        )
    order = np.argsort(c, kind="stable")
    c, r = c[order], r[order]
    points, first, ties = np.unique(c, return_index=True, return_counts=True)
    window = min(max(window, int(ties.max()) + 1), len(r))
    if delta is None:
        delta = _step(c) if 4.0 * len(points) * window > _WORK else 0.0
    level = r.mean()
    if len(points) == 1 or np.ptp(r) == 0:
        curve = np.full(len(points), level)
    else:
        share = min((window + 0.5) / len(r), 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):  # where residuals are all 0
            fitted = fit(
                r - level, c, frac=share, it=3, delta=delta, is_sorted=True, return_sorted=False
            )
        curve = np.asarray(fitted)[first] + level
    wanted = np.asarray(characteristic if at is None else at, float)
    return np.asarray(np.interp(wanted, points, curve))


@dataclass
class RewardCalibration:
    r"""Takes from rewards what characteristics of the responses explain, with fit and transform.

    Calibrated are :math:`r - \lambda\,(m(c) - \bar m)`: the mean :math:`\bar m` over the fitting
    set keeps the level of the rewards and changes no margin. Several characteristics are taken
    one after another, each fitted to what the last has left.

    Parameters
    ----------
    estimator
        ``"lowess"`` (RC-LWR), ``"local_mean"`` (RC-Mean), or ``"penalty"``, which takes a fixed
        amount for each unit of the characteristic and learns nothing.
    lam
        :math:`\lambda`, one for all characteristics or one each; 0 changes nothing.
    frac, delta
        Of `lowess`.
    ratio
        The width of `local_mean` is the mean difference of the characteristic within pairs over
        this ratio; where responses do not come in pairs, of any two.
    width
        The width itself, in place of ``ratio``.
    min_count
        Fewest rewards in a window of `local_mean`. A response with fewer keeps its reward, and so
        does the other one of its pair.
    weight
        What ``"penalty"`` takes for each unit.

    Attributes
    ----------
    curves_
        A function :math:`m` for each characteristic, after `fit`.
    levels_
        Its mean over the fitting set.

    References
    ----------
    Post-hoc Reward Calibration: A Case Study on Length Bias, ICLR 2025, section 3.

    Examples
    --------
    >>> length = np.array([10.0, 20, 30, 40, 50, 60])
    >>> reward = 0.1 * length + [1, 0, 1, 0, 1, 0]
    >>> calibrated = RewardCalibration(frac=1.0).fit_transform(reward, length)
    >>> bool(np.ptp(calibrated) < np.ptp(reward) / 3)
    True
    """

    estimator: str = "lowess"
    lam: float | Sequence[float] = 1.0
    frac: float = 0.5
    delta: float | None = None
    ratio: float = 4.0
    width: float | None = None
    min_count: int = 20
    weight: float = 0.001
    curves_: list[Any] = field(default_factory=list, init=False, repr=False)
    levels_: list[float] = field(default_factory=list, init=False, repr=False)

    def fit(
        self,
        rewards: npt.ArrayLike,
        characteristics: npt.ArrayLike,
        pairs: npt.ArrayLike | None = None,
    ) -> RewardCalibration:
        """Learn the curves; returns itself.

        Parameters
        ----------
        rewards
            Shape ``(n,)``.
        characteristics
            Shape ``(n,)``, or ``(n, k)`` for several.
        pairs
            Codes that two responses to one prompt share, shape ``(n,)``; None where there are
            no pairs.

        Raises
        ------
        UsageError
            On values that are not finite, a characteristic that is the same everywhere, or too
            few rewards.
        """
        if self.estimator not in ESTIMATORS:
            raise UsageError(
                f"RewardCalibration: estimator must be one of {', '.join(ESTIMATORS)}, got"
                f" {self.estimator!r}."
            )
        left, table, pair = self._read(rewards, characteristics, pairs)
        self.curves_, self.levels_ = [], []
        for c, lam in zip(table, self._lams(len(table)), strict=True):
            curve = self._curve(left, c, pair)
            found = curve(c)
            self.curves_.append(curve)
            self.levels_.append(float(np.nanmean(found)) if np.isfinite(found).any() else 0.0)
            left = self._less(left, found, self.levels_[-1], lam, pair)
        return self

    def transform(
        self,
        rewards: npt.ArrayLike,
        characteristics: npt.ArrayLike,
        pairs: npt.ArrayLike | None = None,
    ) -> np.ndarray:
        """Return calibrated rewards, of responses that may be others than it was fitted to."""
        left, table, pair = self._read(rewards, characteristics, pairs)
        if len(self.curves_) != len(table):
            raise UsageError(
                f"RewardCalibration: was fitted to {len(self.curves_)} characteristics and is given"
                f" {len(table)}; call fit first."
            )
        lams = self._lams(len(table))
        for c, curve, level, lam in zip(table, self.curves_, self.levels_, lams, strict=True):
            left = self._less(left, curve(c), level, lam, pair)
        return left

    def fit_transform(
        self,
        rewards: npt.ArrayLike,
        characteristics: npt.ArrayLike,
        pairs: npt.ArrayLike | None = None,
    ) -> np.ndarray:
        """Return the calibrated rewards of the fitting set itself."""
        return self.fit(rewards, characteristics, pairs).transform(rewards, characteristics, pairs)

    def _curve(self, r: np.ndarray, c: np.ndarray, pair: np.ndarray | None) -> Any:
        if self.estimator == "penalty":
            return lambda asked: self.weight * asked
        if np.ptp(c) == 0:
            raise UsageError(
                f"RewardCalibration: the characteristic is {c[0]:g} in all {len(c)} responses, so"
                " it explains nothing; name another."
            )
        if self.estimator == "lowess":
            points = np.unique(c)
            curve = lowess(r, c, at=points, frac=self.frac, delta=self.delta)
            return lambda asked: np.interp(asked, points, curve)
        width = self.width
        if width is None:
            width = _mean_difference(c, pair) / self.ratio
        return lambda asked: local_mean(r, c, asked, width=width, min_count=self.min_count)

    @staticmethod
    def _less(
        r: np.ndarray, m: np.ndarray, level: float, lam: float, pair: np.ndarray | None
    ) -> np.ndarray:
        known = np.isfinite(m)
        if pair is not None and not known.all():
            known &= ~np.isin(pair, pair[~known])
        return np.where(known, r - lam * (m - level), r)

    def _lams(self, count: int) -> list[float]:
        given: list[float] = np.atleast_1d(np.asarray(self.lam, float)).tolist()
        if len(given) not in (1, count):
            raise UsageError(
                f"RewardCalibration: lam must be one number or {count}, got {len(given)}."
            )
        return given if len(given) == count else given * count

    @staticmethod
    def _read(
        rewards: npt.ArrayLike, characteristics: npt.ArrayLike, pairs: npt.ArrayLike | None
    ) -> tuple[np.ndarray, list[np.ndarray], np.ndarray | None]:
        table = np.asarray(characteristics, float)
        columns = [table] if table.ndim == 1 else list(table.T)
        read = [_columns("RewardCalibration", rewards, each) for each in columns]
        pair = None if pairs is None else np.asarray(pairs)
        if pair is not None and pair.shape != read[0][0].shape:
            raise UsageError(
                f"RewardCalibration: give one pair a reward, got {pair.size} for {len(read[0][0])}."
            )
        return read[0][0], [c for _, c in read], pair


def _mean_difference(c: np.ndarray, pair: np.ndarray | None) -> float:
    """Return the mean absolute difference within pairs, or of any two."""
    if pair is not None:
        order = np.argsort(pair, kind="stable")
        codes, count = np.unique(pair, return_counts=True)
        if (count != 2).any():
            raise UsageError(
                f"RewardCalibration: {int((count != 2).sum())} of {len(codes)} pairs have not two"
                " responses; leave pairs out to take any two, or give width."
            )
        return float(np.abs(np.diff(c[order].reshape(-1, 2), axis=1)).mean())
    n = len(c)
    return float(2 * (2 * np.arange(1, n + 1) - n - 1) @ np.sort(c) / (n * (n - 1)))


def _step(c: np.ndarray) -> float:
    low, high = np.quantile(c, (0.01, 0.99))
    return float(_STEP * (high - low))


def _columns(who: str, rewards: npt.ArrayLike, c: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    r, c = np.asarray(rewards, float), np.asarray(c, float)
    if r.ndim != 1 or r.shape != c.shape:
        raise UsageError(f"{who}: give one characteristic a reward, got {c.shape} for {r.shape}.")
    if not len(r):
        raise UsageError(f"{who}: there are no rewards.")
    for name, each in (("rewards", r), ("characteristics", c)):
        bad = int((~np.isfinite(each)).sum())
        if bad:
            raise UsageError(
                f"{who}: {bad} of {len(each)} {name} are NaN or infinite; leave those responses"
                " out, with the other one of their pair."
            )
    return r, c


def _enough(who: str, count: int, least: int) -> None:
    if count < least:
        raise UsageError(
            f"{who}: min_count is {least} and there are {count} rewards, so no window is full;"
            " lower min_count or give more."
        )
