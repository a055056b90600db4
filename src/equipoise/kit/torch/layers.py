r"""Blocks of any torch module by number, and factors that grow from the first to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.torch.copies import copy_module


def layer_factor(block: int | None, blocks: int, alpha: float, beta: float) -> float:
    r"""Return $\lambda(l) = \alpha + \beta (l - 1) / (L - 1)$ with ``block`` $= l - 1$ from 0.

    Outside the blocks (None), and where there is a single one, it is $\alpha$.

    Examples
    --------
    >>> [round(layer_factor(block, 12, 0.1, 0.9), 4) for block in (None, 0, 1, 11)]
    [0.1, 0.1, 0.1818, 1.0]
    """
    return alpha + beta * (block or 0) / max(1, blocks - 1)


def layer_factors(
    module: nn.Module,
    alpha: float,
    beta: float,
    containers: Sequence[str] = (),
    *,
    from_last: bool = False,
) -> dict[str, float]:
    """Return the factor of every parameter, by name; tied ones stand once.

    Parameters
    ----------
    module
        Of which the parameters are.
    alpha, beta
        As for `layer_factor`.
    containers
        As for `block_numbers`; not looked for where ``beta`` is 0.
    from_last
        Whether blocks are counted from the last one.

    Examples
    --------
    >>> module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    >>> layer_factors(module, 0.2, 0.8)
    {'0.weight': 0.2, '1.weight': 1.0}
    """
    names = [name for name, _ in module.named_parameters()]
    if not beta:
        return dict.fromkeys(names, float(alpha))
    numbers, count = block_numbers(module, containers)
    if from_last:
        numbers = {name: count - 1 - block for name, block in numbers.items()}
    return {name: layer_factor(numbers.get(name), count, alpha, beta) for name in names}


def block_numbers(module: nn.Module, containers: Sequence[str] = ()) -> tuple[dict[str, int], int]:
    """Return the block of each parameter that lies in one, from 0, and how many there are.

    A language model's blocks are its layers. Any other module's are the
    children of its only list (`torch.nn.ModuleList` or `torch.nn.Sequential`)
    of several parts of one type that holds parameters; lists inside a block do
    not count.

    Parameters
    ----------
    module
        A torch module.
    containers
        Dotted names of the lists, where they cannot be told; those of several
        are numbered on, one list after the other.

    Raises
    ------
    UsageError
        If there is no such list, or more than one and none is named.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> numbers, count = block_numbers(tiny_model().module)
    >>> count, numbers["model.layers.1.mlp.down_proj.weight"], "lm_head.weight" in numbers
    (2, 1, False)
    """
    lists = list(containers) or _lists(module)
    numbers: dict[str, int] = {}
    count = 0
    for container in lists:
        try:
            part = module.get_submodule(container)
        except AttributeError:
            part = nn.Module()
        children = list(part.named_children())
        if not children:
            known = ", ".join(_candidates(module)) or "none"
            raise UsageError(f'blocks: "{container}" is no list of blocks; there are: {known}.')
        for label, child in children:
            start = f"{container}.{label}." if container else f"{label}."
            numbers |= {start + name: count for name, _ in child.named_parameters()}
            count += 1
    return numbers, count


def _lists(module: nn.Module) -> list[str]:
    if hasattr(module, "get_output_embeddings"):
        from equipoise.kit.language.structure import structure_of

        return [structure_of(module).container]
    found = _candidates(module)
    if len(found) != 1:
        what = f"has several lists of blocks ({', '.join(found)})" if found else "has no blocks"
        raise UsageError(
            f"{type(module).__name__} {what}, so its layers cannot be numbered; name the list in"
            " the parameter blocks."
        )
    return found


def _candidates(module: nn.Module) -> list[str]:
    found: list[str] = []
    for name, part in module.named_modules():  # outer ones first
        if any(not outer or name.startswith(f"{outer}.") for outer in found):
            continue
        if isinstance(part, (nn.ModuleList, nn.Sequential)) and len(part) > 1:
            alike = len({type(child) for child in part}) == 1
            if alike and all(any(True for _ in child.parameters()) for child in part):
                found.append(name)
    return found


def with_tensors(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a module with other parameters, that shares no tensor with it.

    Parameters
    ----------
    module
        Left as it is.
    tensors
        New parameters by name; a tied one is given once, by its first name.
        Parameters that are not named, and buffers, are copied.

    Examples
    --------
    >>> import torch
    >>> control = nn.Linear(1, 1)
    >>> with_tensors(control, {"weight": torch.ones(1, 1)}).weight.item()
    1.0
    """
    made = copy_module(module)
    fresh: dict[int, nn.Parameter] = {}
    for name, old in module.named_parameters():
        tensor = tensors[name] if name in tensors else old.detach().clone()
        fresh[id(old)] = nn.Parameter(tensor, requires_grad=old.requires_grad)
    buffers = {id(buffer): buffer.detach().clone() for buffer in module.buffers()}
    for part in made.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = fresh[id(parameter)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffers[id(buffer)]
    return made
