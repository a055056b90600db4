r"""What a causal model loses on tokens, with gradients, without holding all logits at once.

A vocabulary of 49,152 makes the logits of 512 tokens 100 MB, their softmax and its
gradient as much again. Here they exist for a block of tokens at a time.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from equipoise.kit.language._forward import LOGITS_AT_ONCE, Forward
from equipoise.kit.torch.tokens import token_mask


@dataclass(frozen=True)
class TokenBatch:
    """Sequences side by side, padded at the end.

    Parameters
    ----------
    ids
        Tokens, shape ``(sequences, length)``.
    learned
        Boolean, the same shape: true at tokens to be predicted from those
        before them; false at prompts, at padding and at each first token.
    real
        Boolean, the same shape: false at padding.
    """

    ids: Tensor
    learned: Tensor
    real: Tensor

    @property
    def count(self) -> float:
        """How many tokens are to be predicted."""
        return float(self.learned.sum())


class NextToken:
    r"""The negative log-likelihood $-\sum_t \log p(t \mid \text{tokens before})$ of a batch.

    Made from a module as it is before training; then asked about copies of it.

    Parameters
    ----------
    module
        A transformers causal model in evaluation mode.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> module = tiny_model().module
    >>> ids = torch.tensor([[72, 105, 33]])
    >>> learned = torch.tensor([[False, True, True]])
    >>> batch = TokenBatch(ids, learned, torch.ones_like(learned))
    >>> total = NextToken(module).total(module, batch)
    >>> each = NextToken(module).each(module, batch)
    >>> bool(torch.isclose(total, -each.sum()))
    True
    """

    def __init__(self, module: nn.Module) -> None:
        forward = Forward(module)
        self._blocks = forward._base is not None and isinstance(_head(module), nn.Linear)
        first = next((p for p in module.parameters() if p.is_floating_point()), None)
        self._half = first is not None and first.dtype == torch.bfloat16
        runner: Any = module.base_model if self._blocks else module
        names = inspect.signature(runner.forward).parameters
        self._given = {"use_cache": False} if "use_cache" in names else {}

    def total(self, module: nn.Module, batch: TokenBatch) -> Tensor:
        """Return the sum over all learned tokens, in nats."""
        with self._precision(batch):
            states, targets = self._run(module, batch)
            if not self._blocks:
                return functional.cross_entropy(states.float(), targets, reduction="sum")
            head = _head(module)
            found: Tensor = _Surprise.apply(  # type: ignore[no-untyped-call]
                states, head.weight, head.bias, targets
            )
            return found

    def each(self, module: nn.Module, batch: TokenBatch) -> Tensor:
        """Return the log-likelihood of each sequence's learned tokens, ``(sequences,)``.

        Its gradient may be weighted in any way; logits are made a second time
        for it.
        """
        with self._precision(batch):
            states, targets = self._run(module, batch)
            if self._blocks:
                rows = max(1, LOGITS_AT_ONCE // _head(module).weight.shape[0])
                parts = zip(torch.split(states, rows), torch.split(targets, rows), strict=True)
                losses = torch.cat(
                    [
                        checkpoint(_surprise, _head(module), *part, use_reentrant=False)
                        for part in parts
                    ]
                )
            else:
                losses = functional.cross_entropy(states.float(), targets, reduction="none")
        owner = batch.learned[:, 1:].nonzero()[:, 0]
        return losses.new_zeros(len(batch.ids)).index_add(0, owner, -losses)

    def _run(self, module: nn.Module, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return what precedes each learned token (states, or logits), and the tokens."""
        padded = not bool(batch.real.all())
        # No real token sees padding that comes after it, so no mask is needed.
        with token_mask(batch.real if padded else None):
            if self._blocks:
                states = module.base_model(input_ids=batch.ids, **self._given)[0]  # type: ignore[operator]
            else:
                states = module(input_ids=batch.ids, **self._given).logits
        learned = batch.learned[:, 1:]
        return states[:, :-1][learned], batch.ids[:, 1:][learned]

    def _precision(self, batch: TokenBatch) -> AbstractContextManager[Any]:
        # Weights to be trained are float32; products are made in the model's own type.
        if not self._half:
            return nullcontext()
        return torch.autocast(batch.ids.device.type, torch.bfloat16)


def _head(module: nn.Module) -> Any:
    return module.get_output_embeddings()  # type: ignore[operator]


def _surprise(head: nn.Module, states: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(head(states).float(), targets, reduction="none")


class _Surprise(torch.autograd.Function):
    """Sum of cross-entropies of a linear layer's outputs, whose gradient is made on the way.

    With $p$ the softmax and $y$ the one-hot target, the gradient by a logit is $p - y$: it is
    multiplied with weights and states while the block's logits are at hand.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
    ) -> Tensor:
        wanted = ctx.needs_input_grad
        ctx.types = states.dtype, weight.dtype
        own = weight.to(states.dtype)
        by_state = torch.empty_like(states, dtype=torch.float32) if wanted[0] else None
        by_weight = torch.zeros_like(weight, dtype=torch.float32) if wanted[1] else None
        by_bias = None
        if bias is not None and wanted[2]:
            by_bias = torch.zeros_like(bias, dtype=torch.float32)
        total = torch.zeros((), dtype=torch.float32, device=states.device)
        rows = max(1, LOGITS_AT_ONCE // len(weight))
        for begin in range(0, len(states), rows):
            some, right = states[begin : begin + rows], targets[begin : begin + rows]
            logits = functional.linear(some, own, None if bias is None else bias.to(some.dtype))
            logits = logits.float()
            hit = logits.gather(1, right[:, None])
            top = logits.amax(1, keepdim=True)
            powers = logits.sub_(top).exp_()
            sums = powers.sum(1, keepdim=True)
            total += (sums.log() + top - hit).sum()
            if by_state is not None:
                mean = powers.to(own.dtype) @ own
                by_state[begin : begin + rows] = mean.float() / sums - own[right]
            if by_weight is not None:
                shares = (some / sums).to(own.dtype)
                if own.dtype == torch.float32:
                    by_weight.addmm_(powers.T, shares)
                else:
                    by_weight += powers.to(own.dtype).T @ shares
                by_weight.index_add_(0, right, some.float(), alpha=-1)
            if by_bias is not None:
                by_bias += (powers / sums).sum(0)
                by_bias.index_add_(0, right, torch.ones_like(sums[:, 0]), alpha=-1)
        ctx.gradients = by_state, by_weight, by_bias
        return total

    @staticmethod
    @once_differentiable  # type: ignore[misc, untyped-decorator]
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        by_state, by_weight, by_bias = (
            None if each is None else each.mul_(scale) for each in ctx.gradients
        )
        del ctx.gradients  # they were written over, so there is no second time
        states, weight = ctx.types
        return (
            None if by_state is None else by_state.to(states),
            None if by_weight is None else by_weight.to(weight),
            by_bias,
            None,
        )
