"""Copy-on-write modules: a new structure over the same tensors, replaced one by one."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.torch.linear import is_linear, is_transposed

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
    parts = list(module.modules())
    known: dict[int, Any] = {}
    for part in parts:
        tensors = (*part._parameters.values(), *part._buffers.values())
        known |= {id(tensor): tensor for tensor in tensors if tensor is not None}
    if any(hasattr(type(part), "__deepcopy__") for part in parts):
        return copy.deepcopy(module, known)
    # What follows is what deepcopy does, without a detour through pickling for each of the
    # dozen containers a module has, most of them empty.
    for part in parts:
        known[id(part)] = type(part).__new__(type(part))
    for part in parts:
        for name, value in vars(part).items():
            empty = type(value) in (dict, set, list, OrderedDict) and not value
            own = type(value)() if empty else copy.deepcopy(value, known)
            known[id(part)].__dict__[name] = own
    copied: _Module = known[id(module)]
    return copied


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


def linear_layers(module: nn.Module) -> dict[str, nn.Module]:
    """Return the linear layers by dotted name, without a language model's output head.

    They are `torch.nn.Linear` and GPT-2's layers with their weight transposed (see
    `equipoise.kit.torch.linear.weight_of`).

    Raises
    ------
    UsageError
        If a treatment has put another kind of layer in the place of one, or one
        is a kind of its own, such as the output layer of torch's attention.

    Examples
    --------
    >>> list(linear_layers(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))))
    ['0', '2']
    """
    refuse_closed(module)
    head = output_head(module)
    found = {
        name: part for name, part in module.named_modules() if is_linear(part) and part is not head
    }
    for name, part in found.items():
        if type(part) is not nn.Linear and not is_transposed(part):
            raise UsageError(
                f"{name or 'The module'} is a {type(part).__name__} and no ordinary linear layer;"
                " treat the model as it was before its linear layers were replaced."
            )
    return found


def refuse_closed(module: nn.Module) -> None:
    """Raise `UsageError` where a module says that its layers cannot be edited, and why."""
    said = getattr(module, "equipoise_closed", None)
    if said:
        raise UsageError(said)


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
