"""Key-value caches whose rows can be spread, dropped and grown without copying all of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


def plain(cache: Any) -> bool:
    """Say whether every layer keeps all keys and values, so that rows of several lengths mix."""
    return all(type(layer) in (DynamicLayer, _RoomyLayer) for layer in cache.layers)


def spread(
    parts: Sequence[tuple[Any, Sequence[int]]], room: int, *, empty: bool = False
) -> DynamicCache:
    """Return a new cache made of chosen rows of others, one after another.

    Parameters
    ----------
    parts
        Caches, and for each the rows to take, which may repeat. Shorter caches
        are padded on the left. Unless all are `plain` there must be one only.
    room
        How many tokens will be added; more fit, at the price of a copy.
    empty
        Give up each layer of the caches once it is copied, so that no more than
        one layer is held twice.
    """
    if len(parts) == 1 and not plain(parts[0][0]):
        found = copy.deepcopy(parts[0][0])
        found.batch_select_indices(torch.tensor(parts[0][1]))
        return found  # type: ignore[no-any-return]
    made: list[Any] = []
    for number in range(len(parts[0][0].layers)):
        taken = [(cache.layers[number], rows) for cache, rows in parts]
        used = taken[0][0].keys is not None  # layers that borrow another's keys stay empty
        made.append(_RoomyLayer.gather(taken, room) if used else DynamicLayer())  # type: ignore[no-untyped-call]
        for cache, _ in parts if empty else ():
            cache.layers[number] = None
    whole = DynamicCache()
    whole.layers = made
    return whole


def keep(cache: Any, alive: Sequence[int], rows: int) -> list[int]:
    """Drop rows from a cache in place and return which old row each row now is.

    Rows that stay within the new size do not move; the others fill the holes.
    """
    size = len(alive)
    order = list(range(size))
    stay = set(alive)
    holes = [row for row in range(size) if row not in stay]
    movers = [row for row in alive if row >= size]
    for hole, mover in zip(holes, movers, strict=True):
        order[hole] = mover
    if plain(cache):
        for layer in cache.layers:
            if isinstance(layer, _RoomyLayer):
                layer.keep(holes, movers, size)
    elif size < rows:
        cache.batch_select_indices(torch.tensor(order))
    return order


class _RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A cache layer with room to grow, ``(rows, heads, room, width)``, written in place."""

    def __init__(self, all_keys: Tensor, all_values: Tensor, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._all_keys, self._all_values = all_keys, all_values
        self._rows, self._length = all_keys.shape[0], length
        self.device = all_keys.device
        self.is_initialized = True
        self._show()

    @classmethod
    def gather(cls, parts: Sequence[tuple[Any, Sequence[int]]], room: int) -> _RoomyLayer:
        length = max(layer.keys.shape[-2] for layer, _ in parts)
        rows = sum(len(chosen) for _, chosen in parts)

        def joined(name: str) -> Tensor:
            first: Tensor = getattr(parts[0][0], name)
            whole = first.new_empty(rows, first.shape[1], length + room, first.shape[3])
            start = 0
            for layer, chosen in parts:
                source: Tensor = getattr(layer, name)
                index = torch.tensor(chosen, device=source.device)
                block = whole[start : start + len(chosen)]
                pad = length - source.shape[-2]
                # Masked keys have no weight, but 0 x NaN is NaN, so no rubbish may stay.
                block[:, :, :pad].zero_()
                block[:, :, pad:length] = source[index]
                start += len(chosen)
            return whole

        return cls(joined("keys"), joined("values"), length)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        end = self._length + key_states.shape[-2]
        if end > self._all_keys.shape[-2]:
            self._grow(end)
        self._all_keys[: self._rows, :, self._length : end] = key_states
        self._all_values[: self._rows, :, self._length : end] = value_states
        self._length = end
        return self._show()

    def keep(self, holes: Sequence[int], movers: Sequence[int], size: int) -> None:
        if holes:
            for whole in (self._all_keys, self._all_values):
                whole[holes, :, : self._length] = whole[movers, :, : self._length]
        self._rows = size
        self._show()

    def _grow(self, end: int) -> None:
        for name in ("_all_keys", "_all_values"):
            old: Tensor = getattr(self, name)
            new = old.new_empty(*old.shape[:2], max(end, end + end // 2), old.shape[3])
            new[:, :, : self._length] = old[:, :, : self._length]
            setattr(self, name, new)

    def _show(self) -> tuple[Tensor, Tensor]:
        keys = self._all_keys[: self._rows, :, : self._length]
        values = self._all_values[: self._rows, :, : self._length]
        self.keys, self.values = keys, values
        return keys, values
