"""Models to merge: read from their folders where they have one, loaded where not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.core import HasModule, Rng, Subject, UsageError
from equipoise.kit.torch.layers import with_tensors
from equipoise.kit.torch.weight_files import ADAPTER, WeightFiles


@dataclass(frozen=True)
class Source:
    """A model of the shape of the one it is merged into: its weights, by parameter name."""

    weights: Mapping[str, Tensor]
    live: Any = None

    def subject(self, base: Any) -> Any:
        """Return it as a live subject; ``base`` gives the structure where it is in files."""
        if self.live is not None:
            return self.live
        tensors = {
            name: self.weights[name].to(own.device, own.dtype, copy=True)
            for name, own in base.module.named_parameters()
        }
        return base.with_module(with_tensors(base.module, tensors))


def from_part(part: Subject, base: Any, rng: Rng, label: str) -> Source:
    """Return the model that a subject part stands for, checked against the base.

    Parameters
    ----------
    part
        A subject; one with a method ``folder()`` is read from there, tensor by
        tensor, where the files have the base's parameters.
    base
        The live subject it is merged into.
    rng
        Stream of a subject that draws.
    label
        What messages call it.

    Raises
    ------
    UsageError
        If it is of another family, shape or vocabulary.
    """
    place = getattr(part, "folder", None)
    folder = place() if callable(place) else None
    if folder is not None:
        found = _from_folder(Path(folder), base, label)
        if found is not None:
            return found
    return from_live(part.load(rng), base, label)


def from_live(live: Any, base: Any, label: str) -> Source:
    """Return a live subject as a model to merge, checked against the base."""
    if not isinstance(live, HasModule):
        raise UsageError(f"{label} has no torch module to merge.")
    own, other = base.module, live.module
    _same_family(_family(own), _family(other), label)
    _same_vocabulary(base.tokenizer, live.tokenizer, label)
    names = dict(other.named_parameters(remove_duplicate=False))
    weights = _Named(names, _aliases(own), label)
    _same_parameters(weights, own, {name: tuple(p.shape) for name, p in names.items()}, label)
    return Source(weights, live)


def _from_folder(folder: Path, base: Any, label: str) -> Source | None:
    """Return the files as a model, or None where loading must make sense of them."""
    if not (folder / "config.json").is_file() and (folder / ADAPTER).is_file():
        raise UsageError(
            f"{label} ({folder}) is an adapter, not a whole model; merge it into its base model"
            " and save that first."
        )
    if not any(folder.glob("model*.safetensors*")):
        return None
    files = WeightFiles(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        family = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{folder}: config.json cannot be read.") from error
    _same_family(_family(base.module), family, label)
    aliases = _aliases(base.module)
    known = {alias for each in aliases.values() for alias in each}
    whole = all(any(alias in files for alias in each) for each in aliases.values())
    if not whole or set(files) - known:
        return None
    _same_vocabulary_in(folder, base.tokenizer, label)
    weights = _Named(files, aliases, label)
    _same_parameters(weights, base.module, files.shapes, label)
    return Source(weights)


class _Named(Mapping[str, Tensor]):
    """Tensors by the base's names for them; tied ones under whichever name is there."""

    def __init__(
        self, tensors: Mapping[str, Any], aliases: Mapping[str, list[str]], label: str
    ) -> None:
        self._tensors = tensors
        self._names = {
            name: [each for each in others if each in tensors] for name, others in aliases.items()
        }
        self._label = label

    def __getitem__(self, name: str) -> Tensor:
        first, *others = (self._tensors[each] for each in self._names[name] or [name])
        for other in others:
            if other is not first and not torch.equal(first, other):
                tied = " and ".join(self._names[name])
                raise UsageError(
                    f"{self._label} has {tied} apart, which are one tensor in the subject."
                )
        found: Tensor = first.detach()
        return found

    def names(self, name: str) -> list[str]:
        """Return what a parameter is called here."""
        return self._names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _aliases(module: nn.Module) -> dict[str, list[str]]:
    """Return every parameter's first name, with all of its names."""
    first: dict[int, str] = {}
    found: dict[str, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        found.setdefault(first.setdefault(id(parameter), name), []).append(name)
    return found


def _same_parameters(
    weights: _Named, module: nn.Module, shapes: Mapping[str, tuple[int, ...]], label: str
) -> None:
    own = dict(module.named_parameters())
    known = {alias for each in _aliases(module).values() for alias in each}
    for name, parameter in own.items():
        here = weights.names(name)
        if not here:
            raise UsageError(f"{label} has no {name}, which the subject has; {_WHOLE}.")
        wanted = tuple(parameter.shape)
        for each in here:
            if shapes[each] != wanted:
                raise UsageError(
                    f"{label} has {each} of shape {shapes[each]}, and the subject of {wanted};"
                    f" {_WHOLE}."
                )
    extra = sorted(set(shapes) - known)
    if extra:
        raise UsageError(f"{label} has {extra[0]}, which the subject has not; {_WHOLE}.")


_WHOLE = "only models of one architecture and size can be merged"


def _family(module: nn.Module) -> str | None:
    return getattr(getattr(module, "config", None), "model_type", None)


def _same_family(own: str | None, other: str | None, label: str) -> None:
    if own != other:
        raise UsageError(
            f"{label} is a {other or 'module without a configuration'} and the subject a"
            f" {own or 'module without a configuration'}; {_WHOLE}."
        )


def _same_vocabulary(own: Any, other: Any, label: str) -> None:
    known, given = _vocabulary(own), _vocabulary(other)
    if known is None or given is None or known == given:
        return
    different = sorted(set(known.items()) ^ set(given.items()), key=lambda each: each[1])
    raise UsageError(
        f"{label} has another vocabulary than the subject ({len(given)} tokens and {len(known)},"
        f" first different at {different[0][1]}); models merge token by token."
    )


def _vocabulary(tokenizer: Any) -> dict[str, int] | None:
    getter = getattr(tokenizer, "get_vocab", None)
    return dict(getter()) if callable(getter) else None


def _same_vocabulary_in(folder: Path, own: Any, label: str) -> None:
    known = _vocabulary(own)
    if known is None:
        return
    file = folder / "tokenizer.json"
    if file.is_file():  # quicker than asking transformers, and nearly always enough
        from tokenizers import Tokenizer

        try:
            if Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True) == known:
                return
        except Exception as error:  # tokenizers raise bare exceptions
            raise UsageError(f"{file}: cannot be read.") from error
    from transformers import AutoTokenizer

    from equipoise.kit.language._pretrained import quiet

    try:
        with quiet():
            found = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        raise UsageError(f"{folder}: the tokenizer cannot be opened.") from error
    _same_vocabulary(own, found, label)
