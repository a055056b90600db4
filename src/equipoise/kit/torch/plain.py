"""From a treated module back to one made of ordinary layers, where it has such a form.

A layer that a method put in place may have the method

    def make_plain(self, root: nn.Module, name: str) -> str | None

which changes ``root``, a copy that no one else uses, so that ordinary layers give
the same outputs without this one (its dotted name is ``name``), and returns None; or
returns why there is no such form, as a clause: "activations are rounded while it runs".
A module that is no layer but watches one (a forward hook's object) is a submodule
too, so that its tensors are saved, and undoes its hook in ``make_plain``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from equipoise.core import UsageError
from equipoise.kit.torch.copies import copy_module, refuse_closed


class NotPlain(UsageError):
    """The module has no form of ordinary layers; the text says why."""


def plain_module(module: nn.Module) -> nn.Module:
    """Return a copy made of the model's own kind of layers, with the same outputs.

    Parameters
    ----------
    module
        A treated transformers model; left as it is.

    Raises
    ------
    NotPlain
        If what was done acts only while the model runs.

    Examples
    --------
    >>> plain_module(nn.Linear(2, 2))
    Linear(in_features=2, out_features=2, bias=True)
    """
    refuse_closed(module)
    made = copy_module(module)
    reasons: dict[str, None] = {}
    for name, part in list(made.named_modules()):
        undo = getattr(part, "make_plain", None)
        if undo is not None:
            reason = undo(made, name)
            if reason:
                reasons[reason] = None
    if getattr(made, "equipoise_whole_sequence", False):
        reasons["results depend on the whole sequence seen at once"] = None
    if not reasons and hasattr(made, "config"):
        reasons |= dict.fromkeys(_strange(made))
    if reasons:
        raise NotPlain(f"{_name(module)} acts while it runs: {'; '.join(reasons)}.")
    return made


def _strange(module: Any) -> list[str]:
    """Return how a module differs from what its configuration describes."""
    from transformers.initialization import no_init_weights

    found = []
    with torch.device("meta"), torch.random.fork_rng(devices=[]), no_init_weights():
        whole = type(module)(module.config)
    theirs = {name: type(part) for name, part in whole.named_modules()}
    for name, part in module.named_modules():
        if theirs.get(name) is not type(part):
            found.append(f"{name} is a {type(part).__name__}")
        elif part._forward_hooks or part._forward_pre_hooks:
            found.append(f"{name} is hooked")
    wanted = {name: tensor.shape for name, tensor in whole.state_dict().items()}
    for name, tensor in module.state_dict().items():
        if wanted.get(name) != tensor.shape:
            found.append(f"{name} has the shape {tuple(tensor.shape)}")
    return found


def _name(module: nn.Module) -> str:
    return type(module).__name__


def open_biases(root: Any, where: str) -> None:
    """Give the layers of every block biases of zero, where the configuration knows of them.

    Parameters
    ----------
    root
        A transformers model that no one else uses.
    where
        ``"feed_forward"`` or ``"attention"``.

    Raises
    ------
    NotPlain
        If this family has no such biases.
    """
    from equipoise.kit.language.structure import structure_of

    structure = structure_of(root)
    stages = [block.stages() for block in structure.blocks]
    names = [
        name
        for stage in stages
        for part in (stage[2:] if where == "feed_forward" else stage[:2])
        for name in part
    ]
    layers = [root.get_submodule(name) for name in names]
    if all(layer.bias is not None for layer in layers):
        return
    key = "mlp_bias" if where == "feed_forward" else "attention_bias"
    if not hasattr(root.config, key):
        words = where.replace("_", "-")
        raise NotPlain(f"{_name(root)} knows no biases of {words} layers.")
    setattr(root.config, key, True)
    for layer in layers:
        if layer.bias is None:
            zeros = torch.zeros(layer.out_features, dtype=layer.weight.dtype)
            layer.bias = nn.Parameter(zeros.to(layer.weight.device), requires_grad=False)
