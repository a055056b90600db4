r"""Merging models tensor by tensor: task vectors are joined by a rule and scaled by layer.

A task vector is $\tau = \theta_t - \theta_0$, a model less the base it was made
from. Models are mappings from name to tensor, such as a state dict or
`weight_files.WeightFiles`, and are read a tensor at a time. Sums are in float32,
or float64 where the base is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from equipoise.core import UsageError
from equipoise.kit.torch.merge_rules import Rule

Weights = Mapping[str, Tensor]
Rules = Rule | Mapping[str, Rule]
"""One rule for all tensors, or each tensor's own by its name."""

_CHUNK = 1 << 16  # entries at a time, so that several models' fit the processor's cache
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class _Piece:
    name: str
    place: slice
    base: Tensor
    taus: Tensor


def mergeable(base: Weights) -> list[str]:
    """Return the names of floating-point tensors, less the statistics of batch norms."""
    return [
        name
        for name, tensor in base.items()
        if tensor.is_floating_point() and name.rpartition(".")[2] not in _STATISTICS
    ]


def _pieces(base: Weights, models: Sequence[Weights], names: Sequence[str]) -> Iterator[_Piece]:
    for name in names:
        whole = base[name].detach()
        exact = torch.float64 if whole.dtype == torch.float64 else torch.float32
        one, others = whole.reshape(-1), [_flat(name, model, whole, k) for k, model in
                                          enumerate(models)]  # fmt: skip
        for start in range(0, one.numel(), _CHUNK):
            place = slice(start, start + _CHUNK)
            own = one[place].to(exact)
            taus = own.new_empty(len(others), len(own))
            for row, other in zip(taus, others, strict=True):
                torch.sub(other[place].to(own.device, exact), own, out=row)
            if not bool(torch.isfinite(taus.sum())):
                _blame(name, taus)
            yield _Piece(name, place, own, taus)


def _flat(name: str, model: Weights, like: Tensor, number: int) -> Tensor:
    try:
        found = model[name].detach()
    except KeyError as error:
        raise UsageError(f"model {number + 1} has no {name}, which the base has.") from error
    if found.shape != like.shape:
        raise UsageError(
            f"{name} is {tuple(found.shape)} in model {number + 1} and {tuple(like.shape)} in the"
            " base; only models of one shape can be merged."
        )
    return found.reshape(-1)


def _blame(name: str, taus: Tensor) -> None:
    bad = [number + 1 for number, tau in enumerate(taus) if not bool(torch.isfinite(tau).all())]
    who = f"model {bad[0]}" if len(bad) == 1 else "the base or several models"
    raise UsageError(f"{name} has entries that are not finite in {who}; nothing was merged.")


def merged_update(
    base: Weights, models: Sequence[Weights], rule: Rules, *, names: Sequence[str] | None = None
) -> dict[str, Tensor]:
    r"""Return the merged task vector $\tau$, tensor by tensor.

    Parameters
    ----------
    base
        The model the others were made from, $\theta_0$.
    models
        Of the same names and shapes.
    rule
        Such as `merge_rules.total`, `average` or `consensus`.
    names
        What to merge; by default `mergeable`.

    Returns
    -------
    dict of torch.Tensor
        By name, in float32, or float64 where the base is.

    Raises
    ------
    UsageError
        If there are no models, names or shapes differ, or entries are not finite.

    Examples
    --------
    >>> from equipoise.kit.torch.merge_rules import total
    >>> base, one, two = ({"w": torch.full((2,), x)} for x in (1.0, 2.0, 4.0))
    >>> merged_update(base, [one, two], total)
    {'w': tensor([4., 4.])}
    """
    _need(models)
    names = mergeable(base) if names is None else names
    found: dict[str, Tensor] = {}
    for name in names:
        like = base[name]
        exact = torch.float64 if like.dtype == torch.float64 else torch.float32
        found[name] = torch.empty_like(
            like, dtype=exact, memory_format=torch.contiguous_format, requires_grad=False
        )
        flat = found[name].view(-1)
        join = rule if callable(rule) else rule[name]
        for piece in _pieces(base, models, [name]):
            flat[piece.place] = join(piece.taus)
    return found


def scaled(
    base: Weights, update: Weights, factors: Mapping[str, float] | float
) -> dict[str, Tensor]:
    r"""Return $\theta_0 + \lambda \tau$ in the base's number format.

    Parameters
    ----------
    base
        $\theta_0$.
    update
        $\tau$; its names are those returned.
    factors
        $\lambda$ by name, as `layers.layer_factors` gives it, or one for all.

    Examples
    --------
    >>> scaled({"w": torch.ones(1)}, {"w": torch.ones(1)}, 0.5)
    {'w': tensor([1.5000])}
    """
    found = {}
    for name, tau in update.items():
        own = base[name].detach()
        factor = factors if isinstance(factors, (int, float)) else factors[name]
        found[name] = torch.add(own.to(tau), tau, alpha=float(factor)).to(own.dtype)
    return found


def merged(
    base: Weights,
    models: Sequence[Weights],
    rule: Rules,
    factors: Mapping[str, float] | float = 1.0,
    *,
    names: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    r"""Return $\theta_0 + \lambda \tau$ in one pass; see `merged_update` and `scaled`.

    Examples
    --------
    >>> from equipoise.kit.torch.merge_rules import average
    >>> base, one, two = ({"w": torch.full((2,), x)} for x in (1.0, 2.0, 4.0))
    >>> merged(base, [one, two], average)
    {'w': tensor([3., 3.])}
    """
    _need(models)
    names = mergeable(base) if names is None else names
    found: dict[str, Tensor] = {}
    for name in names:
        factor = factors if isinstance(factors, (int, float)) else factors[name]
        like = base[name].detach()
        found[name] = torch.empty_like(like, memory_format=torch.contiguous_format)
        flat = found[name].view(-1)
        join = rule if callable(rule) else rule[name]
        for piece in _pieces(base, models, [name]):
            # The piece of the base may be a view of it, so nothing is added in place.
            flat[piece.place] = torch.add(piece.base, join(piece.taus), alpha=float(factor))
    return found


def _need(models: Sequence[Weights]) -> None:
    if not models:
        raise UsageError("there are no models to merge; give at least one.")


def update_scale(base: Weights, models: Sequence[Weights], update: Weights) -> float:
    r"""Return $\frac{1}{N}\, \|\sum_t \tau_t\|_1 / \|\tau\|_1$, LiNeS' $\alpha$ for merges.

    For a plain sum it is $1 / N$, and for anything smaller it makes up for what
    the rule took away.

    Parameters
    ----------
    base, models
        As for `merged_update`.
    update
        $\tau$, what the rule made of them.

    Raises
    ------
    UsageError
        If the update is zero.

    Examples
    --------
    >>> from equipoise.kit.torch.merge_rules import total
    >>> base, one, two = ({"w": torch.full((2,), x)} for x in (1.0, 2.0, 4.0))
    >>> update_scale(base, [one, two], merged_update(base, [one, two], total))
    0.5
    """
    plain = kept = 0.0
    for piece in _pieces(base, models, list(update)):
        plain += float(piece.taus.sum(0).abs().sum(dtype=torch.float64))
    for tau in update.values():
        kept += float(tau.abs().sum(dtype=torch.float64))
    if kept == 0:
        raise UsageError("the merged update is zero, so no scale makes up for it.")
    return plain / kept / len(models)


def trim_thresholds(
    base: Weights,
    models: Sequence[Weights],
    density: float,
    *,
    names: Sequence[str] | None = None,
    by_tensor: bool = False,
) -> dict[str, Tensor]:
    """Return the least magnitude that each task vector keeps, ``(models,)``, for every tensor.

    It is the exact order statistic, found in two walks over the models by
    counting bit patterns: magnitudes of float32 are in the order of their bits.

    Parameters
    ----------
    base, models, names
        As for `merged_update`.
    density
        Share that is kept, in (0, 1].
    by_tensor
        Whether the share is of each tensor's entries, not of all together.

    Examples
    --------
    >>> base, one = {"w": torch.zeros(4)}, {"w": torch.tensor([4.0, -3.0, 2.0, 1.0])}
    >>> trim_thresholds(base, [one], 0.5)
    {'w': tensor([3.])}
    """
    _need(models)
    names = mergeable(base) if names is None else list(names)
    if by_tensor:
        return {name: _threshold(base, models, density, [name]) for name in names}
    return dict.fromkeys(names, _threshold(base, models, density, names))


def _threshold(
    base: Weights, models: Sequence[Weights], density: float, names: Sequence[str]
) -> Tensor:
    size = sum(base[name].numel() for name in names)
    keep = torch.full((len(models),), max(1, int(density * size)))
    if not size:
        return torch.zeros(len(models))
    upper = torch.zeros(len(models), 1 << 15, dtype=torch.int64)
    for bits in _magnitudes(base, models, names):
        for row, each in zip(upper, bits >> 16, strict=True):
            row += torch.bincount(each, minlength=1 << 15)
    high, left = _reached(upper, keep)
    lower = torch.zeros(len(models), 1 << 16, dtype=torch.int64)
    for bits in _magnitudes(base, models, names):
        for row, each, top in zip(lower, bits, high, strict=True):
            row += torch.bincount(each[(each >> 16) == top] & 0xFFFF, minlength=1 << 16)
    low, _ = _reached(lower, left)
    return ((high << 16) | low).to(torch.int32).view(torch.float32)


def _magnitudes(base: Weights, models: Sequence[Weights], names: Sequence[str]) -> Iterator[Tensor]:
    for piece in _pieces(base, models, names):
        yield piece.taus.float().abs_().view(torch.int32).cpu()


def _reached(counts: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bin where a count from the top reaches ``wanted``, and what is left in it."""
    above = counts.flip(1).cumsum(1)
    place = (above < wanted[:, None]).sum(1)
    bins = counts.shape[1] - 1 - place
    before = above.gather(1, place[:, None])[:, 0] - counts.gather(1, bins[:, None])[:, 0]
    return bins, wanted - before
