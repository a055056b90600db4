"""One way to run any causal language model: padding, positions, cache, output layer."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.kit.torch.tokens import token_mask

LOGITS_AT_ONCE = 1 << 23  # numbers in one block of logits: 32 MiB in float32


class Forward:
    """Runs a causal module and gives logits at chosen positions only.

    ``states`` are what the output layer takes; `logits` applies it to the rows
    that are needed. A module whose logits are more than its output layer of its
    last hidden state (soft caps, scales, hooks on the whole) is found out by one
    comparison; its states are then the logits themselves.

    Parameters
    ----------
    module
        A transformers causal model, or a module called like one.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        config = getattr(module, "config", None)
        get_text_config = getattr(config, "get_text_config", None)
        self.config: Any = get_text_config(decoder=True) if get_text_config else config

    @property
    def device(self) -> torch.device:
        first = next(self.module.parameters(), next(self.module.buffers(), None))
        return first.device if first is not None else torch.device("cpu")

    @property
    def whole_sequence(self) -> bool:
        """Whether results depend on the whole sequence seen at once."""
        return bool(getattr(self.module, "equipoise_whole_sequence", False))

    @property
    def limit(self) -> int | None:
        """Most tokens a sequence can have, None when the module does not say."""
        found = getattr(self.config, "max_position_embeddings", None)
        return found if isinstance(found, int) and found > 0 else None

    @property
    def cache_bytes(self) -> int:
        """Bytes of key-value cache a token takes, by the configuration."""
        config = self.config
        layers = getattr(config, "num_hidden_layers", None) or 1
        heads = getattr(config, "num_attention_heads", None) or 1
        pairs = getattr(config, "num_key_value_heads", None) or heads
        width = getattr(config, "head_dim", None)
        width = width or (getattr(config, "hidden_size", None) or 1024) // heads
        first = next(self.module.parameters(), None)
        return int(2 * layers * pairs * width * (first.element_size() if first is not None else 4))

    @cached_property
    def spreads(self) -> bool:
        """Whether rows of its cache can be chosen and repeated; recurrent states cannot."""
        return all(hasattr(layer, "batch_select_indices") for layer in self.new_cache().layers)

    def new_cache(self) -> Any:
        """Return an empty key-value cache for this module."""
        from transformers import DynamicCache

        whole = getattr(self.module, "config", None)
        return DynamicCache(config=whole) if whole is not None else DynamicCache()

    def states(
        self,
        ids: Tensor,
        *,
        seen: Tensor | None = None,
        real: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """Run the module on new tokens and return their states ``(batch, tokens, width)``.

        Parameters
        ----------
        ids
            New tokens, shape ``(batch, tokens)``.
        seen
            Boolean ``(batch, cached + tokens)``, true at what may be attended
            to; None when all of it may, or when padding comes last and is seen
            by no real token.
        real
            Boolean ``(batch, tokens)``, true at real new tokens; by default the
            end of ``seen``.
        cache
            Key-value cache, which grows by the new tokens.
        """
        if real is None and seen is not None:
            real = seen[:, -ids.shape[1] :]
        runner = self._base if self._base is not None else self.module
        found = self._call(runner, ids, seen, real, cache)
        states: Tensor = found[0] if self._base is not None else found.logits
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Return float32 logits ``(rows, vocabulary)`` for states ``(rows, width)``."""
        if self._base is None:
            return states.float()
        with torch.no_grad():
            found: Tensor = self.module.get_output_embeddings()(states)  # type: ignore[operator]
        return found.float()

    def hidden(self, ids: Tensor, real: Tensor) -> Tensor:
        """Return last hidden states ``(batch, tokens, width)``; padding comes last."""
        base = _base_of(self.module)
        if base is not None:
            states: Tensor = self._call(base, ids, None, real, None)[0]
            return states
        with torch.no_grad(), token_mask(real):
            found: Tensor = self.module(ids, output_hidden_states=True).hidden_states[-1]
        return found

    @cached_property
    def _base(self) -> nn.Module | None:
        """The module below the output layer, None when the two do not make up the whole."""
        base = _base_of(self.module)
        head = getattr(self.module, "get_output_embeddings", lambda: None)()
        if base is None or head is None:
            return None
        if self.module._forward_hooks or self.module._forward_pre_hooks:
            return None
        ids = torch.arange(3, device=self.device)[None]
        real = torch.ones_like(ids, dtype=torch.bool)
        whole = self._call(self.module, ids, None, real, None).logits
        with torch.no_grad():
            parts = head(self._call(base, ids, None, real, None)[0])
        same = whole.shape == parts.shape and torch.allclose(whole, parts, rtol=1e-5, atol=1e-5)
        return base if same else None

    def _call(
        self, runner: nn.Module, ids: Tensor, seen: Tensor | None, real: Tensor | None, cache: Any
    ) -> Any:
        names = _names(runner)
        given: dict[str, Any] = {"input_ids": ids}
        if "use_cache" in names:
            given["use_cache"] = cache is not None
        if cache is not None:
            # transformers renamed the argument in 5.2x
            given["cache" if "cache" in names else "past_key_values"] = cache
        if seen is not None:
            given["attention_mask"] = seen.long()
            if "position_ids" in names:
                positions = (seen.cumsum(1) - 1).clamp_min(0)
                given["position_ids"] = positions[:, -ids.shape[1] :]
        padded = real is not None and not bool(real.all())
        with torch.no_grad(), token_mask(real if padded else None):
            return runner(**given)


def _base_of(module: nn.Module) -> nn.Module | None:
    base = getattr(module, "base_model", None)
    return base if isinstance(base, nn.Module) and base is not module else None


def _names(module: nn.Module) -> frozenset[str]:
    return frozenset(inspect.signature(module.forward).parameters)
