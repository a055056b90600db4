r"""How far two language models are apart: in their next tokens and in their weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def next_token_logits(module: nn.Module, ids: Tensor) -> Tensor:
    """Return the logits after each token, float32, shape ``(tokens, vocabulary)``.

    Parameters
    ----------
    module
        A transformers causal model.
    ids
        Token ids, shape ``(tokens,)``.
    """
    first = next(module.parameters())
    found: Tensor = module(ids[None].to(first.device), use_cache=False).logits[0].float()
    return found


def kl_divergence(reference: Tensor, other: Tensor) -> Tensor:
    r"""Return $\mathrm{KL}(p \| q) = \sum_v p_v \ln (p_v / q_v)$ of each row, in nats.

    Parameters
    ----------
    reference, other
        Logits of p and q, shape ``(n, vocabulary)``.

    Returns
    -------
    torch.Tensor
        Shape ``(n,)``, never negative.

    Examples
    --------
    >>> kl_divergence(torch.log(torch.tensor([[0.5, 0.5]])), torch.zeros(1, 2))
    tensor([0.])
    >>> found = kl_divergence(torch.log(torch.tensor([[0.75, 0.25]])), torch.zeros(1, 2))
    >>> bool((found - (0.75 * torch.log(torch.tensor(1.5)) + 0.25 * torch.log(torch.tensor(0.5)))
    ...       ).abs().max() < 1e-6)
    True
    """
    p, q = reference.log_softmax(-1), other.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).clamp_min(0)


def share_changed(reference: nn.Module, other: nn.Module) -> float:
    """Return the share of the reference's weights that are no longer the same.

    A weight that is gone, or whose tensor has another shape, counts as changed;
    new ones do not count. Tied tensors count once.

    Examples
    --------
    >>> one, two = nn.Linear(3, 1), nn.Linear(3, 1)
    >>> two.load_state_dict(one.state_dict())
    <All keys matched successfully>
    >>> two.bias = nn.Parameter(two.bias + 1)
    >>> share_changed(one, two)
    0.25
    """
    theirs = dict(other.named_parameters(remove_duplicate=False))
    total = changed = 0
    for name, mine in reference.named_parameters():
        total += mine.numel()
        new = theirs.get(name)
        if new is mine:
            continue
        if new is None or new.shape != mine.shape:
            changed += mine.numel()
        elif new.data_ptr() != mine.data_ptr():
            changed += int((new.to(mine.device, mine.dtype) != mine).sum())
    return changed / total if total else 0.0


def size_in_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's parameters and buffers, shared storage counted once.

    Examples
    --------
    >>> size_in_bytes(nn.Linear(3, 1))
    16
    """
    stores: dict[int, int] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        store = tensor.untyped_storage()
        # A view of a larger tensor counts for what it shows, unless its base is here as well.
        kept = stores.get(store.data_ptr(), 0)
        stores[store.data_ptr()] = max(kept, tensor.numel() * tensor.element_size())
    return sum(stores.values())
