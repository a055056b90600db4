r"""Plackett-Luce on K-tuples: ranking probabilities, their sensitivities, and fitting.

.. math:: P(o_1 \succ \dots \succ o_K)
          = \prod_{u=1}^{K-1} \frac{e^{s_{o_u}}}{\sum_{v \ge u} e^{s_{o_v}}},

which is Bradley-Terry for K = 2. A sensitivity says what is held fixed: N - 1 reference
probabilities q determine the scores of N options up to a constant, and a target p moves by
$(\partial p / \partial s)(\partial q / \partial s)^{-1}$ with them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from equipoise.core import Estimate, Rng, UsageError

Array = npt.NDArray[np.float64]

_STEPS, _SHORT = 200, 1e-10
_WIDE = 2.5
"""Scale of the logistic law that scores are drawn from, wider than what matters."""


def ranking_probabilities(scores: npt.ArrayLike, rankings: npt.ArrayLike) -> Array:
    """Return the probability of each ranking of a tuple, shape ``(..., rankings)``.

    Parameters
    ----------
    scores
        Of the options, shape ``(..., options)``.
    rankings
        Places of options, best first, shape ``(rankings, K)``: which tuple, and in what order.

    Raises
    ------
    UsageError
        If a ranking has fewer than two options, one twice, or one that is not there.

    Examples
    --------
    >>> ranking_probabilities([0.0, 0.0, 0.0], [[0, 1, 2], [2, 1, 0]]).round(3)
    array([0.167, 0.167])
    """
    return np.exp(_log_ranking(*_checked(scores, rankings))[0])


def ranking_gradients(scores: npt.ArrayLike, rankings: npt.ArrayLike) -> Array:
    r"""Return $\partial P / \partial s$ of each ranking, shape ``(..., rankings, options)``.

    Parameters
    ----------
    scores, rankings
        As for `ranking_probabilities`, and the same errors.

    Examples
    --------
    >>> ranking_gradients([0.0, 0.0], [[0, 1]])
    array([[ 0.25, -0.25]])
    """
    s, r = _checked(scores, rankings)
    log_p, slopes = _log_ranking(s, r)
    return np.asarray(np.exp(log_p)[..., None] * slopes)


def ranking_sensitivity(
    scores: npt.ArrayLike, target: Sequence[int], references: Sequence[Sequence[int]]
) -> Array:
    """Return how the target moves with each reference, the others held, ``(..., references)``.

    Parameters
    ----------
    scores
        Of the N options, shape ``(..., N)``.
    target
        A ranking of some options.
    references
        N - 1 rankings, of any lengths, whose probabilities are what is given.

    Returns
    -------
    ndarray
        NaN where the references do not determine the scores.

    Raises
    ------
    UsageError
        If there are not N - 1 references; as for `ranking_probabilities`.

    Examples
    --------
    >>> logit = np.log(0.9 / 0.1)
    >>> ranking_sensitivity([0.0, 0.0, logit], (0, 1), [(0, 2), (2, 1)]).round(4)
    array([2.7778, 2.7778])
    """
    s = np.asarray(scores, float)
    count = s.shape[-1]
    if len(references) != count - 1:
        raise UsageError(
            f"ranking_sensitivity: {count} options need {count - 1} references, got"
            f" {len(references)}."
        )
    # One score is free; hold the last.
    p = ranking_gradients(s, [target])[..., 0, :-1]
    q = np.stack([ranking_gradients(s, [each])[..., 0, :-1] for each in references], axis=-2)
    return _solved(p, q)


def _solved(p: Array, q: Array) -> Array:
    """Return x with x q = p; NaN where q is singular."""
    sign = np.linalg.slogdet(q)[0]
    whole = np.where((sign != 0)[..., None, None], q, np.eye(q.shape[-1]))
    found = np.linalg.solve(np.swapaxes(whole, -1, -2), p[..., None])[..., 0]
    return np.asarray(np.where((sign != 0)[..., None], found, np.nan))


def tuple_region_areas(
    size: int, least: float, rng: Rng, *, draws: int = 100_000
) -> dict[tuple[tuple[int, ...], ...], Estimate]:
    r"""Return by Monte Carlo the area where a ranking amplifies what it is told by.

    Three options. Of a pair model, the target is i over j and the references are i over k and
    k over j; of triples, targets and references are rankings of all three, in each of the 20 ways
    that differ by more than names. Scores are drawn, and weighted by
    $|\det \partial q / \partial s|$ over their density: so the area is that of the reference
    probabilities themselves. Where several scores give the same references, each counts.

    Parameters
    ----------
    size
        Options in a tuple, 2 or 3.
    least
        The region is where the target moves more than so many times as far as the first reference.
    rng
        Stream for the draws.
    draws
        Scores drawn.

    Returns
    -------
    dict
        From (target, moved reference, held reference) to the area, with ``feasible`` in the
        details: the area of all references that some scores give.

    Examples
    --------
    >>> found = tuple_region_areas(2, 2.0, Rng(0))
    >>> [round(each.value, 2) for each in found.values()]
    [0.07]
    """
    if size not in (2, 3):
        raise UsageError(f"tuple_region_areas: size must be 2 or 3, got {size}.")
    u = rng.numpy().random((draws, 2))
    s = np.zeros((draws, 3))
    s[:, :2] = _WIDE * np.log(u / (1 - u))
    density = np.prod(u * (1 - u) / _WIDE, axis=1)
    if size == 2:
        ways: list[tuple[tuple[int, ...], ...]] = [((0, 1), (0, 2), (2, 1))]
    else:
        first, *others = itertools.permutations(range(3))
        ways = [(first, *pair) for pair in itertools.permutations(others, 2)]
    names = list(dict.fromkeys(itertools.chain.from_iterable(ways)))
    slopes = dict(zip(names, np.moveaxis(ranking_gradients(s, names)[..., :2], 1, 0), strict=True))
    found: dict[tuple[tuple[int, ...], ...], Estimate] = {}
    for way in ways:
        p, moved, held = (slopes[each] for each in way)
        det = moved[:, 0] * held[:, 1] - moved[:, 1] * held[:, 0]
        turn = p[:, 0] * held[:, 1] - p[:, 1] * held[:, 0]
        weight = np.abs(det) / density
        inside = weight * (np.abs(turn) > least * np.abs(det))
        area, se = float(inside.mean()), float(inside.std(ddof=1)) / math.sqrt(draws)
        found[way] = Estimate(
            area, area - 1.96 * se, area + 1.96 * se, n=draws, method="monte carlo",
            details={"se": se, "feasible": float(weight.mean())},
        )  # fmt: skip
    return found


def fit_rankings(
    rankings: npt.ArrayLike, counts: npt.ArrayLike, options: int, *, ridge: float = 1e-3
) -> Array:
    r"""Fit Plackett-Luce scores to counted rankings, one table or many at a time.

    The largest of $\sum_r n_r \log P_r(s) - \frac{\lambda}{2} \sum_i s_i^2$, by Newton's method.
    Scores have mean 0. The ridge keeps them finite where counts are one-sided, and then decides
    them: report it.

    Parameters
    ----------
    rankings
        Places of options, best first, shape ``(rankings, K)``. Pairs are K = 2.
    counts
        How often each was given, shape ``(..., rankings)``; soft labels are shares of a count.
    options
        How many there are.
    ridge
        $\lambda$, above 0.

    Raises
    ------
    UsageError
        If counts are negative, missing or all 0, or the ridge is not above 0; as for
        `ranking_probabilities`.

    Examples
    --------
    >>> s = fit_rankings([[0, 1], [1, 0]], [75, 25], 2, ridge=1e-9)
    >>> round(float(1 / (1 + np.exp(s[1] - s[0]))), 6)
    0.75
    """
    n = np.asarray(counts, float)
    if not ridge > 0:
        raise UsageError(f"fit_rankings: ridge must be above 0, got {ridge:g}.")
    if options < 2:
        raise UsageError(f"fit_rankings: at least two options are needed, got {options}.")
    r = _checked(np.zeros(options), rankings)[1]
    if n.shape[-1:] != (len(r),) or not ((n >= 0) & np.isfinite(n)).all() or not n.any(-1).all():
        raise UsageError(
            f"fit_rankings: counts must be at least 0, one of each of {len(r)} rankings and not"
            f" all 0, got shape {n.shape}."
        )
    s = np.zeros((*n.shape[:-1], options))

    def value(s: Array) -> Array:
        return np.asarray((n * _log_ranking(s, r)[0]).sum(-1) - ridge / 2 * (s**2).sum(-1))

    reached = value(s)
    for _ in range(_STEPS):
        slopes = _log_ranking(s, r)[1]
        up = (n[..., None] * slopes).sum(-2) - ridge * s
        bend = _bend(s, r, n, ridge)
        # The likelihood leaves the sum of the scores open: hold it at 0.
        bend += np.trace(bend, axis1=-2, axis2=-1)[..., None, None] / options**2
        step = np.linalg.solve(bend, up[..., None])[..., 0]
        step -= step.mean(-1, keepdims=True)
        if float(np.abs(step).max()) <= _SHORT:
            return s
        share = np.ones(n.shape[:-1])
        for _ in range(60):
            there = value(s + share[..., None] * step)
            worse = ~(there >= reached - 1e-12 * np.abs(reached))
            if not worse.any():
                break
            share = np.where(worse, share / 2, share)
        s = s + share[..., None] * step
        reached = there
    return s


def _bend(s: Array, r: npt.NDArray[np.intp], n: Array, ridge: float) -> Array:
    """Return minus the Hessian of the fit's objective, ``(..., options, options)``."""
    options = s.shape[-1]
    found = np.zeros((*s.shape, options)) + ridge * np.eye(options)
    for u in range(r.shape[1] - 1):
        rest = r[:, u:]
        w = _softmax(s[..., rest])
        each = w[..., None] * (np.eye(rest.shape[1]) - w[..., None, :])
        each *= n[..., None, None]
        for row, left in enumerate(rest):
            found[..., left[:, None], left[None, :]] += each[..., row, :, :]
    return np.asarray(found)


def _log_ranking(s: Array, r: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Return log-probabilities ``(..., rankings)`` and their slopes by score."""
    count, size = r.shape
    log_p = np.zeros((*s.shape[:-1], count))
    slopes = np.zeros((*s.shape[:-1], count, s.shape[-1]))
    rows = np.arange(count)
    for u in range(size - 1):
        rest = s[..., r[:, u:]]
        top = rest.max(-1)
        log_p += rest[..., 0] - top - np.log(np.exp(rest - top[..., None]).sum(-1))
        slopes[..., rows, r[:, u]] += 1
        slopes[..., rows[:, None], r[:, u:]] -= _softmax(rest)
    return log_p, slopes


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _checked(scores: npt.ArrayLike, rankings: npt.ArrayLike) -> tuple[Array, npt.NDArray[np.intp]]:
    s, r = np.asarray(scores, float), np.asarray(rankings)
    if r.ndim != 2 or r.dtype.kind not in "iu" or r.shape[1] < 2:
        raise UsageError(
            "ranking_probabilities: rankings must be whole numbers of shape (rankings, K), K at"
            " least 2: the places of options, best first."
        )
    if (np.diff(np.sort(r, axis=1), axis=1) == 0).any():
        raise UsageError("ranking_probabilities: a ranking has an option twice.")
    if not s.ndim or r.min(initial=0) < 0 or r.max(initial=0) >= s.shape[-1]:
        raise UsageError("ranking_probabilities: a ranking has an option that has no score.")
    if not np.isfinite(s).all():
        raise UsageError("ranking_probabilities: scores must be finite.")
    return s, r.astype(np.intp)
