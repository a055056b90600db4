"""Folders of treated language models: plain ones for everyone, others for equipoise.

A treated model whose layers are the model's own kind is written as transformers
writes it. One that acts while it runs is written as its tensors, its first
configuration and the recipe of its treatments, under names that transformers
does not take for a model: opened without the treatment it would be another model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from equipoise.core import HasModule, Rng, Treatment, UsageError
from equipoise.kit.about import about, annotate
from equipoise.kit.language.tensors import fill_tensors, save_tensors
from equipoise.kit.recipes import as_recipe, from_recipe
from equipoise.kit.torch.plain import NotPlain, plain_module

NOTE = "equipoise_treatment.json"
TENSORS = "equipoise.safetensors"
VECTORS = "bare.safetensors"
"""Gains and biases before the edit: a skeleton may be built one way or another by them."""

_FORMAT = 1


@dataclass(frozen=True)
class Saved:
    """What was written: whether plain transformers opens it, and if not, why."""

    plain: bool
    reason: str = ""


Step = tuple[Treatment, Rng]
"""A treatment and the stream it was applied with."""


def save_treated(bare: Any, treated: Any, steps: Sequence[Step], folder: Path) -> Saved:
    """Write a treated language model into a folder that is there and empty.

    Parameters
    ----------
    bare
        The live subject before any treatment.
    treated
        The one after ``steps``.
    steps
        Treatments in order, with their streams.
    folder
        Where to.

    Raises
    ------
    UsageError
        If the subject is no transformers model, or a treatment acts while the
        model runs and cannot be put back from a folder.
    """
    if not hasattr(getattr(bare, "module", None), "config"):
        raise UsageError(
            f"{type(bare).__name__} is no language model of transformers, so there is no folder"
            " to write; `--with` keeps it in a trial."
        )
    asked = [type(step).__name__ for step, _ in steps if HasModule not in step.needs]
    earlier = list(getattr(bare, "equipoise_steps", ()))
    try:
        if asked or _asks(earlier):
            raise NotPlain(f"{' and '.join(asked) or 'It'} changes what the model is asked.")
        treated.with_module(plain_module(treated.module)).save(folder)
        return Saved(plain=True)
    except NotPlain as fault:
        reason = str(fault)
    for step, _ in steps:
        if HasModule in step.needs and type(step).skeleton is Treatment.skeleton:
            raise UsageError(
                f"{type(step).__name__} acts while the model runs and gives no skeleton to put"
                f" its tensors back into, so no folder can hold it: {reason}"
            )
    source = getattr(bare, "equipoise_config", bare.module.config)
    for part in (source, getattr(bare.module, "generation_config", None), bare.tokenizer):
        writer = getattr(part, "save_pretrained", None)
        if writer is not None:
            writer(folder)
    save_tensors(treated.module, folder / TENSORS)
    save_file(_vectors(bare), str(folder / VECTORS), metadata={"format": "pt"})
    made = [
        {"treatment": as_recipe(step), "seed": rng.seed, "stream": list(rng.path)}
        for step, rng in [*earlier, *steps]
    ]
    first = next(bare.module.parameters())
    note = {"format": _FORMAT, "dtype": str(first.dtype).removeprefix("torch."), "steps": made}
    text = json.dumps(note | about(treated), indent=2, ensure_ascii=False)
    (folder / NOTE).write_text(text + "\n", encoding="utf-8")
    return Saved(plain=False, reason=reason)


def is_treated(folder: Path) -> bool:
    """Say whether a folder holds a treated model that only equipoise opens."""
    return (folder / NOTE).is_file()


def open_treated(folder: Path, *, dtype: str, device: str, **settings: Any) -> Any:
    """Return the live subject that `save_treated` wrote.

    Parameters
    ----------
    folder
        Of the treated model.
    dtype
        Number format; the one it was written in gives the same numbers.
    device
        As torch names it.
    **settings
        To `LanguageModel`.

    Raises
    ------
    UsageError
        If the folder is damaged, or of a later version.
    """
    from transformers import AutoConfig, AutoTokenizer

    from equipoise.kit.language._pretrained import check_device, quiet
    from equipoise.kit.language.local import LanguageModel

    check_device(device)
    note = _note(folder)
    with quiet():
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        hollow = _hollow(config, getattr(torch, note["dtype"]))
        vectors = _fill_vectors(hollow, folder / VECTORS)
    live: Any = LanguageModel(hollow, tokenizer, **settings)
    steps: list[Step] = []
    for each in note["steps"]:
        step = from_recipe(each["treatment"])
        if not isinstance(step, Treatment):
            raise UsageError(f"{folder / NOTE}: {type(step).__name__} is no treatment.")
        rng = Rng(each["seed"]).child(*each["stream"])
        live = step.skeleton(live) if HasModule in step.needs else step.apply(live, rng)
        steps.append((step, rng))
    fill_tensors(live.module, folder / TENSORS)
    if dtype != note["dtype"]:
        live.module.to(getattr(torch, dtype))
    live.module.to(device)
    live = annotate(live, notes=note["notes"], curves=note["curves"])
    live.equipoise_steps, live.equipoise_config = tuple(steps), config
    live.equipoise_vectors = vectors
    return live


def _note(folder: Path) -> dict[str, Any]:
    path = folder / NOTE
    try:
        note: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = note["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the note of a treated model.") from error
    if version != _FORMAT:
        raise UsageError(f"{path}: of format {version}; this version of equipoise reads {_FORMAT}.")
    return note


def _hollow(config: Any, dtype: torch.dtype) -> nn.Module:
    """Return a model of this configuration whose weights are not drawn."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    maker: Any = AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]), no_init_weights():
        found: Any = maker.from_config(config, dtype=dtype)
    found.tie_weights()
    module: nn.Module = found.eval()
    return module


def _vectors(bare: Any) -> dict[str, Tensor]:
    found = getattr(bare, "equipoise_vectors", None)
    if found is not None:
        return dict(found)
    return {
        name: each.detach().clone()
        for name, each in bare.module.named_parameters()
        if each.dim() < 2
    }


def _fill_vectors(module: nn.Module, path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path}: missing or not whole.") from error
    for name, tensor in tensors.items():
        owner, _, label = name.rpartition(".")
        setattr(module.get_submodule(owner), label, nn.Parameter(tensor, requires_grad=False))
    return tensors


def _asks(steps: Sequence[Step]) -> bool:
    return any(HasModule not in step.needs for step, _ in steps)
