"""Adapters of the package peft, put onto their base model as peft does."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from equipoise.core import UsageError
from equipoise.kit.language._folders import ModelFolder

_NAME = "default"
_INSTALL = "pip install 'equipoise[language]'"


def adapt(module: Any, folder: ModelFolder, *, tokens: int | None, plain: bool) -> Any:
    """Return the base model with the adapter of a folder in its layers.

    Parameters
    ----------
    module
        The base, which no one else uses: its layers are replaced.
    folder
        Of the adapter.
    tokens
        Size of the tokenizer beside the adapter, None where there is none.
    plain
        Whether to merge the adapter into the weights.

    Raises
    ------
    UsageError
        If peft is not installed, the adapter belongs to another model or is of
        a kind that acts outside the model's layers.
    """
    try:
        from peft import PeftConfig, PeftModelForCausalLM
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{folder.path}: an adapter needs the package {error.name}, which is not installed:"
            f" {_INSTALL}."
        ) from error
    if hasattr(module, "peft_config"):
        raise UsageError(
            f"{folder.path}: the base has an adapter already; give it `plain: true` as well."
        )
    try:
        config: Any = PeftConfig.from_pretrained(str(folder.path))
    except Exception as error:  # peft raises whatever a strange file leads to
        raise _cannot(folder, error) from error
    _check_kind(folder, config)
    _make_room(module, folder, tokens)
    config.inference_mode = True
    given: dict[str, Any] = {"torch_device": str(module.device)}
    try:
        with torch.random.fork_rng(devices=_accelerators(module)):  # adapters are drawn, then read
            adapted: Any = PeftModelForCausalLM(module, config, _NAME)
            if "key_mapping" in inspect.signature(adapted.load_adapter).parameters:
                given["key_mapping"] = getattr(module, "_checkpoint_conversion_mapping", {})
            found = adapted.load_adapter(str(folder.path), _NAME, **given)
    except Exception as error:
        if "size mismatch" in str(error):
            raise _other_model(folder, "its tensors have other shapes") from error
        if "arget modules" in str(error):
            raise _other_model(folder, "none of its layers is there") from error
        raise _cannot(folder, error) from error
    for names, fault in (
        (found.unexpected_keys, "{} of its tensors belong to no layer, such as {}"),
        (found.missing_keys, "{} of its layers have no tensors, such as {}"),
    ):
        if names:
            raise _other_model(folder, fault.format(len(names), sorted(names)[0]))
    adapted.eval()
    _check_whole(adapted, folder, config)
    if plain:
        return adapted.merge_and_unload(safe_merge=True)
    return adapted.get_base_model()


def closed(source: str) -> str:
    """Why a treatment cannot edit adapted layers, as a sentence."""
    return f"{source}: its layers carry an adapter; open it with `plain: true` to edit them."


def _check_kind(folder: ModelFolder, config: Any) -> None:
    kind = getattr(config.peft_type, "value", config.peft_type)
    if config.task_type not in (None, "CAUSAL_LM"):
        raise UsageError(
            f"{folder.path}: the adapter is for the task {config.task_type}, not for a causal"
            " language model."
        )
    if config.is_prompt_learning or kind == "XLORA" or _invoked(config):
        raise UsageError(
            f"{folder.path}: adapters of the kind {kind} act outside the model's layers, which is"
            " not supported."
        )


def _invoked(config: Any) -> bool:
    """Say whether tokens of the prompt decide where the adapter acts."""
    return bool(getattr(config, "alora_invocation_tokens", None))


def _make_room(module: Any, folder: ModelFolder, tokens: int | None) -> None:
    """Give the base the rows that the adapter's new tokens take, which it then fills."""
    if tokens is None or tokens <= module.get_input_embeddings().num_embeddings:
        return
    rows = _saved_rows(folder)
    if rows is not None and rows >= tokens:
        with torch.random.fork_rng(devices=_accelerators(module)):
            module.resize_token_embeddings(rows, mean_resizing=False)


def _accelerators(module: Any) -> list[int]:
    return [module.device.index or 0] if module.device.type == "cuda" else []


def _saved_rows(folder: ModelFolder) -> int | None:
    path = folder.path / "adapter_model.safetensors"
    if not path.is_file():
        return None
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            if "lora_" not in name and name.endswith(("embed_tokens.weight", "wte.weight")):
                return int(file.get_slice(name).get_shape()[0])
    return None


@torch.no_grad()
def _check_whole(adapted: Any, folder: ModelFolder, config: Any) -> None:
    """Refuse an adapter that does something when the whole is called, which its layers do not."""
    module: nn.Module = adapted.get_base_model()
    ids = torch.arange(3, device=adapted.device)[None]
    if not torch.equal(adapted(input_ids=ids).logits, module(input_ids=ids).logits):
        kind = getattr(config.peft_type, "value", config.peft_type)
        raise UsageError(
            f"{folder.path}: adapters of the kind {kind} act outside the model's layers, which is"
            " not supported."
        )


def _other_model(folder: ModelFolder, fault: str) -> UsageError:
    return UsageError(f"{folder.path}: the adapter does not fit its base: {fault}.")


def _cannot(folder: ModelFolder, error: Exception) -> UsageError:
    fault = " ".join(str(error).split())[:200].rstrip(".")
    return UsageError(f"{folder.path}: the adapter cannot be opened: {fault}.")
