"""Copy-on-write modules: a new structure over the same tensors, replaced one by one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TypeVar

from torch import Tensor, nn

_Module = TypeVar("_Module", bound=nn.Module)


def copy_module(module: _Module) -> _Module:
    """Return a module with its own structure that shares every parameter and buffer.

    Submodules, hooks and configuration are copied; tensors are not. Replace a
    tensor or a submodule of the copy (``copy.weight = nn.Parameter(...)``) and
    the original keeps its own. Never write into a tensor of the copy in place:
    the original would change with it.

    Examples
    --------
    >>> import torch
    >>> control = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> treated = copy_module(control)
    >>> treated[0].weight is control[0].weight
    True
    >>> treated[0].weight = nn.Parameter(torch.zeros(2, 2))
    >>> bool((control[0].weight == 0).all())
    False
    """
    shared: dict[int, object] = {}
    for part in module.modules():
        tensors = (*part._parameters.values(), *part._buffers.values())
        shared |= {id(tensor): tensor for tensor in tensors if tensor is not None}
    return copy.deepcopy(module, shared)


def replace_modules(module: nn.Module, replacements: Mapping[str, nn.Module]) -> nn.Module:
    """Put submodules in place by dotted name and return the root.

    The module is changed, so hand in a copy of your own. The name ``""`` is the
    root itself: the replacement is then what is returned.

    Raises
    ------
    AttributeError
        If there is no submodule of that name.
    """
    if "" in replacements:
        if len(replacements) > 1:
            raise ValueError("The root cannot be replaced together with its submodules.")
        return replacements[""]
    for name, new in replacements.items():
        module.get_submodule(name)  # refuses a name that is not there
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, new)
    return module


def linear_layers(module: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers by dotted name, without a language model's output head."""
    head = output_head(module)
    return {
        name: part
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and part is not head
    }


def output_head(module: nn.Module) -> nn.Module | None:
    """Return the output layer of a transformers language model, or None."""
    getter = getattr(module, "get_output_embeddings", None)
    return getter() if callable(getter) else None


def shared_tensors(one: nn.Module, other: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that two modules have in common, by their name in ``one``."""
    theirs = {id(tensor) for tensor in (*other.parameters(), *other.buffers())}
    for name, tensor in (*one.named_parameters(), *one.named_buffers()):
        if id(tensor) in theirs:
            yield name, tensor
