"""The parts of any decoder-only language model, found by shape and signature.

Methods that edit a model ask here where its attention heads, feed-forward channels,
norms and blocks are, and need know nothing of model families. Names of modules are
looked at only where shapes cannot tell: which of several layers is the query, the
key, the value, or the gate.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from equipoise.core import UsageError
from equipoise.kit.torch.copies import refuse_closed
from equipoise.kit.torch.linear import is_linear, is_transposed, weight_of

Layout = Literal["apart", "stacked", "by_head"]


@dataclass(frozen=True)
class Attention:
    """The attention of one block, by dotted names of modules.

    Parameters
    ----------
    name
        The attention module.
    query, key, value
        Linear layers; all the same one where they are fused.
    output
        The linear layer after the heads.
    heads, key_value_heads, head_size
        ``heads`` is a multiple of ``key_value_heads``.
    layout
        ``apart`` for three layers, ``stacked`` for one whose output is all of
        the query, then the key, then the value (GPT-2), ``by_head`` for one
        that holds query, key and value of a head together (GPT-NeoX).
    rotary
        Whether positions are turned into queries and keys.
    query_norm, key_norm
        Norms on each head of queries and keys, where there are any (Qwen3).
    """

    name: str
    query: str
    key: str
    value: str
    output: str
    heads: int
    key_value_heads: int
    head_size: int
    layout: Layout
    rotary: bool
    query_norm: str | None = None
    key_norm: str | None = None

    def rows(self, what: Literal["query", "key", "value"]) -> Tensor:
        """Return which outputs of the layer belong to the query, key or value, head by head.

        Examples
        --------
        >>> fused = Attention("a", "a.q", "a.q", "a.q", "a.o", 2, 2, 2, "by_head", True)
        >>> fused.rows("key")
        tensor([2, 3, 8, 9])
        """
        heads = self.heads if what == "query" else self.key_value_heads
        size, place = self.head_size, ("query", "key", "value").index(what)
        if self.layout == "apart":
            return torch.arange(heads * size)
        if self.layout == "stacked":
            before = (0, self.heads, self.heads + self.key_value_heads)[place]
            return torch.arange(before * size, (before + heads) * size)
        every = torch.arange(3 * self.heads * size).view(self.heads, 3, size)
        return every[:, place].flatten()


@dataclass(frozen=True)
class FeedForward:
    """The feed-forward part of one block, by dotted names of modules.

    Parameters
    ----------
    name
        The module, or the block itself where the layers lie in it.
    gate
        The layer that goes through the activation and multiplies ``up``; None
        where ``up`` goes through it itself.
    up, down
        Into the channels and out of them.
    channels
        How many there are.
    """

    name: str
    gate: str | None
    up: str
    down: str
    channels: int


@dataclass(frozen=True)
class Block:
    """One layer of a decoder.

    Parameters
    ----------
    name, index
        The module and its number from 0.
    attention, feed_forward
        Its parts.
    norms
        Norms of the residual stream, in the order they are registered.
    parallel
        Whether both parts read the block's input (GPT-NeoX), not one the
        output of the other.
    """

    name: str
    index: int
    attention: Attention
    feed_forward: FeedForward
    norms: tuple[str, ...]
    parallel: bool

    def stages(self) -> list[list[str]]:
        """Return linear layers that share an input, in the order they run."""
        attention, mlp = self.attention, self.feed_forward
        into = [attention.query, attention.key, attention.value]
        up = [mlp.up] if mlp.gate is None else [mlp.gate, mlp.up]
        return [list(dict.fromkeys(into)), [attention.output], up, [mlp.down]]


@dataclass(frozen=True)
class Structure:
    """What there is to know of a decoder-only causal language model.

    Parameters
    ----------
    blocks
        In the order they run.
    embeddings
        The token embedding.
    positions
        The learned position embedding, where there is one (GPT-2).
    norm
        The norm after the last block.
    head
        The output layer.
    hidden
        Width of the residual stream.
    tied
        Whether output layer and embedding are one tensor.
    centred
        Whether norms subtract the mean (LayerNorm) or not (RMS norm).
    """

    blocks: tuple[Block, ...]
    embeddings: str
    positions: str | None
    norm: str | None
    head: str
    hidden: int
    tied: bool
    centred: bool

    @cached_property
    def container(self) -> str:
        """Dotted name of the list of blocks."""
        return self.blocks[0].name.rpartition(".")[0]

    def block_of(self, name: str) -> int | None:
        """Return the number of the block that a parameter or module lies in, or None.

        The whole name of the list of blocks must match, so that a number
        deeper in the name is not taken for a block's.
        """
        start = f"{self.container}."
        if not name.startswith(start):
            return None
        number = name[len(start) :].partition(".")[0]
        return int(number) if number.isdigit() else None

    def linear_layers(self) -> list[str]:
        """Return the names of all linear layers inside blocks, in the order they run."""
        return [name for block in self.blocks for stage in block.stages() for name in stage]


def structure_of(module: nn.Module) -> Structure:
    """Return the structure of a transformers causal language model.

    Parameters
    ----------
    module
        Such as Llama, Mistral, Qwen2, Qwen3, GPT-NeoX, GPT-2 or OPT.

    Raises
    ------
    UsageError
        If it is no decoder-only language model, or one whose attention or
        feed-forward layers are of a kind that is not known here.

    Examples
    --------
    >>> from equipoise.kit.language.tiny import tiny_model
    >>> found = structure_of(tiny_model().module)
    >>> found.container, found.blocks[1].feed_forward.down, found.tied
    ('model.layers', 'model.layers.1.mlp.down_proj', True)
    >>> found.block_of("model.layers.1.mlp.down_proj.weight"), found.block_of("lm_head.weight")
    (1, None)
    """
    refuse_closed(module)
    config = getattr(module, "config", None)
    reader = getattr(config, "get_text_config", None)
    config = reader(decoder=True) if reader else config
    inner, outer = _layer(module, "input"), _layer(module, "output")
    if config is None or inner is None or outer is None:
        raise UsageError(f"{type(module).__name__} is not a decoder-only language model.")
    names = {id(part): name for name, part in module.named_modules()}
    container, layers = _blocks(module)
    hidden = int(inner.embedding_dim)
    blocks = tuple(
        _block(part, f"{container}.{index}", index, config, hidden)
        for index, part in enumerate(layers)
    )
    outside = [
        (name, part) for name, part in module.named_modules() if not name.startswith(container)
    ]
    norms = [name for name, part in outside if _is_norm(part, hidden)]
    positions = [
        name for name, part in outside if isinstance(part, nn.Embedding) and part is not inner
    ]
    some = module.get_submodule(blocks[0].norms[0]) if blocks[0].norms else None
    return Structure(
        blocks=blocks,
        embeddings=names[id(inner)],
        positions=positions[0] if positions else None,
        norm=norms[-1] if norms else None,
        head=names[id(outer)],
        hidden=hidden,
        tied=outer.weight is inner.weight,
        centred=isinstance(some, nn.LayerNorm),
    )


def _layer(module: nn.Module, which: str) -> Any:
    getter = getattr(module, f"get_{which}_embeddings", None)
    try:
        return getter() if callable(getter) else None
    except (NotImplementedError, AttributeError):
        return None


def _blocks(module: nn.Module) -> tuple[str, nn.ModuleList]:
    for name, part in module.named_modules():
        if (
            isinstance(part, nn.ModuleList)
            and len(part)
            and len({type(each) for each in part}) == 1
            and any(_attends(child) for child in part[0].children())
        ):
            return name, part
    raise UsageError(
        f"{type(module).__name__} has no list of blocks with attention; only decoder-only"
        " transformers can be edited block by block."
    )


def _attends(part: nn.Module) -> bool:
    return "attention_mask" in inspect.signature(part.forward).parameters and any(_linears(part))


def _linears(part: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, each in part.named_modules():
        if is_linear(each):
            yield name, each


def _is_norm(part: nn.Module, size: int) -> bool:
    weight = getattr(part, "weight", None)
    return (
        isinstance(weight, Tensor)
        and weight.shape == (size,)
        and not is_linear(part)
        and not isinstance(part, nn.Embedding)
        and not any(True for _ in part.children())
    )


def _block(part: nn.Module, name: str, index: int, config: Any, hidden: int) -> Block:
    children = dict(part.named_children())
    inside = next(label for label, child in children.items() if _attends(child))
    attention = _attention(children[inside], f"{name}.{inside}", config, hidden)
    return Block(
        name=name,
        index=index,
        attention=attention,
        feed_forward=_feed_forward(children, name, inside, hidden),
        norms=tuple(f"{name}.{k}" for k, child in children.items() if _is_norm(child, hidden)),
        parallel=bool(getattr(config, "use_parallel_residual", False)),
    )


def _attention(part: nn.Module, name: str, config: Any, hidden: int) -> Attention:
    heads = int(config.num_attention_heads)
    groups = int(getattr(config, "num_key_value_heads", None) or heads)
    size = int(getattr(config, "head_dim", None) or hidden // heads)
    shapes = {label: tuple(weight_of(each).shape) for label, each in _linears(part)}
    outputs = [label for label, shape in shapes.items() if shape == (hidden, heads * size)]
    inputs: dict[str, str] = {}
    layout: Layout = "apart"
    fused = [k for k, shape in shapes.items() if shape == ((heads + 2 * groups) * size, hidden)]
    if len(shapes) == 2 and fused:
        inputs = dict.fromkeys(("query", "key", "value"), fused[0])
        both = part.get_submodule(fused[0])
        # A layer that a treatment put in place of GPT-2's says so.
        stacked = is_transposed(both) or getattr(both, "transposed", False)
        layout = "stacked" if stacked else "by_head"
        outputs = [label for label in outputs if label != fused[0]]
    elif len(shapes) == 4:
        for what in ("query", "key", "value"):
            named = [label for label in shapes if label.startswith(what[0])]
            inputs |= dict.fromkeys([what], named[0]) if len(named) == 1 else {}
        outputs = [label for label in outputs if label not in inputs.values()]
        if len(inputs) == 3:  # a configuration may name groups that its family does not have
            groups = shapes[inputs["key"]][0] // size
    if len(inputs) != 3 or len(outputs) != 1:
        raise UsageError(
            f"{name}: {type(part).__name__} is no attention of a known kind; it has the linear"
            f" layers {', '.join(shapes) or 'none'}."
        )
    norms = {
        what: next(
            (f"{name}.{k}" for k, each in part.named_children() if k[0] == what[0] and _gain(each)),
            None,
        )
        for what in ("query", "key")
    }
    return Attention(
        name=name,
        query=f"{name}.{inputs['query']}",
        key=f"{name}.{inputs['key']}",
        value=f"{name}.{inputs['value']}",
        output=f"{name}.{outputs[0]}",
        heads=heads,
        key_value_heads=groups,
        head_size=size,
        layout=layout,
        rotary="position_embeddings" in inspect.signature(part.forward).parameters,
        query_norm=norms["query"],
        key_norm=norms["key"],
    )


def _gain(part: nn.Module) -> bool:
    weight = getattr(part, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 1 and not is_linear(part)


def _feed_forward(
    children: dict[str, nn.Module], name: str, attention: str, hidden: int
) -> FeedForward:
    """Find the layers outside attention: one out of the channels, one or two into them."""
    found: dict[str, tuple[int, ...]] = {}
    for label, child in children.items():
        if label != attention:
            for inner, each in _linears(child):
                whole = f"{label}.{inner}" if inner else label
                found[whole] = tuple(weight_of(each).shape)
    downs = [label for label, shape in found.items() if shape[0] == hidden]
    if len(downs) > 1:  # as wide inside as outside: the last layer is the one that leads out
        downs = downs[-1:]
    channels = found[downs[0]][1] if downs else 0
    ups = [k for k, shape in found.items() if k not in downs and shape == (channels, hidden)]
    gates = [label for label in ups if "gate" in label.rpartition(".")[2]]
    rest = [label for label in ups if label not in gates]
    if len(downs) != 1 or len(rest) != 1 or len(gates) > 1 or len(found) != len(ups) + 1:
        raise UsageError(
            f"{name}: its feed-forward part is of no known kind; it has the linear layers"
            f" {', '.join(found) or 'none'}."
        )
    inner = rest[0].rpartition(".")[0]
    return FeedForward(
        name=f"{name}.{inner}" if inner else name,
        gate=f"{name}.{gates[0]}" if gates else None,
        up=f"{name}.{rest[0]}",
        down=f"{name}.{downs[0]}",
        channels=channels,
    )
