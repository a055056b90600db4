r"""Evaluation as a game of three players: a prompt, a king and a rebel.

The prompt's actions are prompts, king and rebel both choose among the models. With the margin
:math:`S_{tij} = 2 w_{tij} - 1` by which model :math:`i` beats :math:`j` on prompt :math:`t`, the
prompt is paid :math:`|S_{tij}|`, the king :math:`w_{tij}` and the rebel :math:`w_{tji}`. A payoff
may have any constant added: that moves no rating. So one tensor says everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError
from equipoise.kit.statistics.comparisons import Comparisons

Array = npt.NDArray[Any]

DOUBLE = 2**25
"""Tensors of more numbers than this are kept in single precision."""

BLOCK = 2**18
"""Numbers that a block of a tensor holds at once, about."""

Normalisation = Literal["range", "spread", "rank", "none"]
Actions = Literal["prompts", "clusters"]
Missing = Literal["refuse", "even"]


@dataclass(frozen=True, slots=True)
class Game:
    r"""Margins of models against each other on prompts.

    Parameters
    ----------
    margin
        :math:`S`, shape ``(prompts, models, models)``, skew-symmetric in the last two.
    gain
        The king is paid ``gain`` times the margin and a constant: 0.5 for win rates, 1 for
        differences of scores.
    prompts, models
        Names.
    """

    margin: Array
    gain: float
    prompts: tuple[str, ...]
    models: tuple[str, ...]

    def blocks(self) -> Iterator[slice]:
        """Yield the prompts in runs that fit into fast memory."""
        step = max(1, BLOCK // self.margin[0].size)
        for start in range(0, len(self.margin), step):
            yield slice(start, start + step)

    def against(self, y: Array) -> tuple[Array, Array]:
        r"""Return :math:`S_t y` and :math:`|S_t| y`, both of shape ``(prompts, models)``."""
        ahead = np.empty(self.margin.shape[:2])
        apart = np.empty_like(ahead)
        for block in self.blocks():
            part = self.margin[block].astype(np.float64, copy=False)
            ahead[block] = part @ y
            apart[block] = np.abs(part) @ y
        return ahead, apart

    def mixed(self, x: Array) -> Array:
        r"""Return :math:`\sum_t x_t S_t`, shape ``(models, models)``."""
        p, m, _ = self.margin.shape
        return np.asarray(x.astype(self.margin.dtype) @ self.margin.reshape(p, m * m)).reshape(m, m)

    def restrict(self, prompts: Array) -> Game:
        """Return the game with some of the prompts, in double precision where it fits."""
        part = self.margin[prompts]
        if part.size <= DOUBLE:
            part = part.astype(np.float64)
        names = tuple(self.prompts[t] for t in np.flatnonzero(prompts))
        return Game(part, self.gain, names, self.models)


@dataclass(frozen=True, slots=True)
class Merged:
    """A game without exact copies, and which of its actions each of the old ones is."""

    game: Game
    prompt: Array
    model: Array


def merged(game: Game) -> Merged:
    """Leave one of every prompt, and of every model, that others repeat to nine digits."""
    keep_prompt, prompt = _classes(game.margin[t] for t in range(len(game.prompts)))
    kept = game.margin if len(keep_prompt) == len(prompt) else game.margin[keep_prompt]
    keep_model, model = _classes(np.ascontiguousarray(kept[:, i]) for i in range(len(game.models)))
    if len(keep_model) < len(model):
        kept = kept[:, keep_model][:, :, keep_model]
    prompts = tuple(game.prompts[t] for t in keep_prompt)
    models = tuple(game.models[i] for i in keep_model)
    return Merged(Game(kept, game.gain, prompts, models), prompt, model)


def _classes(rows: Iterator[Array]) -> tuple[list[int], Array]:
    """Return the first place of each different row, and the class of every row."""
    seen: dict[bytes, int] = {}
    first: list[int] = []
    found = []
    for place, row in enumerate(rows):
        same = np.round(row, 9) + 0.0  # no negative zeros
        digest = hashlib.blake2b(same.tobytes(), digest_size=16).digest()
        if digest not in seen:
            seen[digest] = len(first)
            first.append(place)
        found.append(seen[digest])
    return first, np.array(found)


def king_of_the_hill_game(
    played: Comparisons | npt.ArrayLike,
    *,
    actions: Actions = "prompts",
    smoothing: float = 0.0,
    missing: Missing = "refuse",
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
) -> Game:
    r"""Return the game of who beats whom on which prompt.

    Parameters
    ----------
    played
        `Comparisons`, or win rates :math:`w_{tij}`, the share of times model :math:`i` beats
        :math:`j` on prompt :math:`t`, ties half; of shape ``(prompts, models, models)``, or
        ``(models, models)`` for one prompt. Comparisons without prompts make one of all.
    actions
        Of comparisons: whether the prompt player chooses single prompts, or clusters, whose
        prompts are pooled.
    smoothing
        Of comparisons: how many ties every pair is imagined to have had on every prompt, :math:`a`
        in :math:`w = (\text{wins} + a/2) / (\text{games} + a)`.
    missing
        Of comparisons: what a pair is that never met on a prompt. ``"refuse"`` raises, ``"even"``
        takes it as a tie, which says that the prompt does not tell the two apart.
    prompts, models
        Names for win rates; by default their places.

    Raises
    ------
    UsageError
        If one model is left alone, a model has no comparison, pairs are missing, a rate is
        outside [0, 1], or :math:`w_{tij} + w_{tji} \neq 1`.

    Examples
    --------
    >>> met = Comparisons.of(["a", "a"], ["b", "b"], [1, 0.5], prompt=["p", "q"])
    >>> king_of_the_hill_game(met).margin[:, 0, 1].tolist()
    [1.0, 0.0]
    >>> king_of_the_hill_game([[0.5, 0.8], [0.2, 0.5]]).margin.round(3).tolist()
    [[[0.0, 0.6], [-0.6, 0.0]]]
    """
    if isinstance(played, Comparisons):
        net, games, names, arms = tables(played, actions)
        return game_of_tables(net, games, names, arms, smoothing=smoothing, missing=missing)
    rates = np.asarray(played)
    if rates.dtype != np.float32:
        rates = rates.astype(np.float64)
    if rates.ndim == 2:
        rates = rates[None]
    if rates.ndim != 3 or rates.shape[1] != rates.shape[2] or not rates.size:
        raise UsageError(
            "king_of_the_hill_game: win rates must have the shape (prompts, models, models), got"
            f" {rates.shape}."
        )
    if not ((rates >= 0) & (rates <= 1)).all():
        raise UsageError("king_of_the_hill_game: win rates must be from 0 to 1, without gaps.")
    back = rates.transpose(0, 2, 1)
    apart = max(float(np.abs(a + b - 1).max()) for a, b in zip(rates, back, strict=True))
    if apart > 1e-5:
        raise UsageError(
            "king_of_the_hill_game: the win rates of i against j and of j against i must add up"
            f" to 1; one pair misses it by {apart:.3g}."
        )
    who = "king_of_the_hill_game"
    return _game(who, rates - back, 0.5, prompts, models)  # the transpose keeps it exactly skew


def tables(
    comparisons: Comparisons, actions: Actions, times: Array | None = None
) -> tuple[Array, Array, tuple[str, ...], tuple[str, ...]]:
    """Return wins less losses and games, shape ``(actions, models, models)``, and the names.

    Rows count ``times`` over, by default once; an action that no row is left of is gone.
    """
    models, m = comparisons.models, len(comparisons.models)
    if m < 2:
        raise UsageError("king_of_the_hill_game: one model cannot be compared; give at least two.")
    idle = [models[i] for i in np.flatnonzero(comparisons.games() == 0)]
    if idle:
        raise UsageError(
            f"king_of_the_hill_game: {', '.join(idle[:5])} {_are(idle)} in no comparison; leave"
            " out what was not compared."
        )
    code, names = comparisons.prompt, comparisons.prompts
    if actions == "clusters":
        if comparisons.cluster is None:
            raise UsageError(
                "king_of_the_hill_game: the comparisons have no clusters to choose among; use"
                " actions: prompts."
            )
        groups, code = np.unique(comparisons.cluster, return_inverse=True)
        names = tuple(map(str, groups))
    if code is None:
        code, names = np.zeros(len(comparisons), np.int64), ("all",)
    p = len(names)
    at = (code * m + comparisons.first) * m + comparisons.second
    kind = np.float64 if p * m * m <= DOUBLE else np.float32
    ahead = 2 * comparisons.score - 1
    if times is not None:
        ahead = ahead * times
    net = np.bincount(at, ahead, p * m * m).astype(kind).reshape(p, m, m)
    games = np.bincount(at, times, p * m * m).astype(kind).reshape(p, m, m)
    for t in range(p):
        net[t] -= net[t].T.copy()
        games[t] += games[t].T.copy()
    if times is not None:
        drawn = np.flatnonzero(games.any(axis=(1, 2)))
        names = tuple(names[t] for t in drawn)
        net, games = net[drawn], games[drawn]
    return net, games, names, models


def game_of_tables(
    net: Array,
    games: Array,
    prompts: tuple[str, ...],
    models: tuple[str, ...],
    *,
    smoothing: float = 0.0,
    missing: Missing = "refuse",
) -> Game:
    """Return the game of wins less losses, and games, as `tables` gives them."""
    p, m, _ = net.shape
    cells = p * m * (m - 1)
    absent = cells - int(np.count_nonzero(games))
    if absent and missing == "refuse":
        raise UsageError(
            f"king_of_the_hill_game: {absent // 2} of {cells // 2} pairs never met on their prompt;"
            " compare them, leave those prompts or models out, or take them as ties with"
            " missing: even."
        )
    total = games + smoothing
    margin = np.divide(net, total, out=np.zeros_like(net), where=total > 0)
    return _game("king_of_the_hill_game", margin, 0.5, prompts, models)


def win_rate_game(
    scores: npt.ArrayLike,
    errors: npt.ArrayLike | None = None,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
) -> Game:
    r"""Return the game of win rates between scores with standard errors.

    .. math:: w_{tij} = \Phi\big((s_{it} - s_{jt}) / \sqrt{e_{it}^2 + e_{jt}^2}\big),

    with errors of at least :math:`10^{-6}`.

    Parameters
    ----------
    scores
        Shape ``(models, prompts)``; higher is better.
    errors
        Standard errors of the same shape, or None for exact scores.
    prompts, models
        Names; by default their places.

    Raises
    ------
    UsageError
        If a score is missing, shapes differ or an error is negative.

    Examples
    --------
    >>> win_rate_game([[1.0], [0.0]], [[0.5], [0.5]]).margin[0, 0, 1].round(3)
    np.float64(0.843)
    """
    from scipy.special import ndtr

    who = "win_rate_game"
    s = _scores(who, scores)
    e = np.zeros_like(s) if errors is None else np.asarray(errors, float).T
    if e.shape != s.shape or not (e >= 0).all():
        raise UsageError(f"{who}: standard errors must be at least 0, one for every score.")
    variance = np.maximum(e, 1e-6) ** 2
    p, m = s.shape
    margin = np.empty((p, m, m), np.float64 if p * m * m <= DOUBLE else np.float32)
    for t in range(p):
        z = (s[t][:, None] - s[t]) / np.sqrt(variance[t][:, None] + variance[t])
        w = ndtr(z)
        margin[t] = w - w.T
    return _game(who, margin, 0.5, prompts, models)


def difference_game(
    scores: npt.ArrayLike,
    normalise: Normalisation = "range",
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
) -> Game:
    r"""Return the game of differences, where the king is paid :math:`s_{it} - s_{jt}`.

    Parameters
    ----------
    scores
        Shape ``(models, prompts)``; higher is better.
    normalise
        What is done to each prompt's scores first: ``"range"`` stretches them to [0, 1],
        ``"spread"`` to a standard deviation of 1, ``"rank"`` takes ranks from 0 to 1 (ties share
        their mean), ``"none"`` leaves them.
    prompts, models
        Names; by default their places.

    Raises
    ------
    UsageError
        If a score is missing or the normalisation unknown.

    Examples
    --------
    >>> difference_game([[3.0], [1.0], [2.0]]).margin[0, 0].tolist()
    [0.0, 1.0, 0.5]
    """
    from scipy.stats import rankdata

    who = "difference_game"
    s = _scores(who, scores)
    if normalise == "rank":
        s = rankdata(s, axis=1) - 1
        s = s / max(s.shape[1] - 1, 1)
    elif normalise != "none":
        if normalise not in ("range", "spread"):
            raise UsageError(
                f"{who}: normalise must be 'range', 'spread', 'rank' or 'none', got {normalise!r}."
            )
        scale = np.ptp(s, axis=1) if normalise == "range" else s.std(axis=1)
        s = s / np.where(scale > 0, scale, 1)[:, None]
    p, m = s.shape
    kind = np.float64 if p * m * m <= DOUBLE else np.float32
    s = np.asarray(s, kind)
    return _game(who, s[:, :, None] - s[:, None, :], 1.0, prompts, models)


def _scores(who: str, scores: npt.ArrayLike) -> Array:
    s = np.asarray(scores, float)
    if s.ndim != 2 or not s.size or not np.isfinite(s).all():
        raise UsageError(f"{who}: scores must be finite numbers of the shape (models, prompts).")
    return s.T


def _game(
    who: str,
    margin: Array,
    gain: float,
    prompts: Sequence[str] | None,
    models: Sequence[str] | None,
) -> Game:
    p, m, _ = margin.shape
    if m < 2 or not p:
        raise UsageError(f"{who}: a game needs a prompt and two models, got {p} and {m}.")
    names = tuple(map(str, range(p) if prompts is None else prompts))
    arms = tuple(map(str, range(m) if models is None else models))
    if (len(names), len(arms)) != (p, m):
        raise UsageError(
            f"{who}: {len(names)} prompts and {len(arms)} models are named, there are {p} and {m}."
        )
    return Game(margin, gain, names, arms)


def _are(names: Sequence[object]) -> str:
    return "is" if len(names) == 1 else "are"
