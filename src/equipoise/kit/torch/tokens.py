"""Which positions of a padded batch are real tokens, for modules that pool over tokens.

A module that computes a statistic over the tokens of a sequence while it runs
(a smoothing scale, a dynamic range) must leave padding out, or its results
would depend on what else is in the batch. The language model says here which
positions of the batch in hand are real, for as long as a forward pass lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_active: ContextVar[Tensor | None] = ContextVar("equipoise_token_mask", default=None)


def current_mask() -> Tensor | None:
    """Return the mask of the forward pass under way, or None.

    The mask is Boolean, of shape ``(batch, tokens)``: true at real tokens and
    false at padding, for the tokens that go through the module now. With a
    key-value cache these are the new tokens only, not those in the cache.
    None means that every position is real, or that no one said.

    Examples
    --------
    >>> current_mask() is None
    True
    """
    return _active.get()


@contextmanager
def token_mask(mask: Tensor | None) -> Iterator[None]:
    """Say which positions are real for the forward passes inside the block.

    Parameters
    ----------
    mask
        Boolean ``(batch, tokens)``, or None when nothing is padding.

    Examples
    --------
    >>> import torch
    >>> with token_mask(torch.tensor([[False, True, True]])):
    ...     current_mask().sum().item()
    2
    """
    token = _active.set(mask)
    try:
        yield
    finally:
        _active.reset(token)
