"""Opening transformers models quietly, with one sentence for each thing that goes wrong."""

from __future__ import annotations

import logging as standard
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from equipoise.core import UsageError
from equipoise.kit.language._folders import ADAPTER, ModelFolder, local_path, model_folder

CLOSED = "equipoise_closed"
"""Attribute of a module that treatments cannot edit: the sentence that says why."""

_OF_ADAPTERS = ["adapter_*", "*.json", "*.model", "*.txt", "*.tiktoken", "*.jinja"]


def open_model(
    source: str,
    *,
    dtype: str,
    device: str,
    revision: str | None = None,
    base: tuple[Any, Any] | None = None,
    plain: bool = False,
) -> tuple[Any, Any]:
    """Return the module and the tokenizer of a folder, a GGUF file or a hub name.

    An adapter is put onto its base model. A module whose layers are not
    ordinary ones says so in its attribute ``equipoise_closed``.

    Parameters
    ----------
    source
        What to open.
    dtype, device
        As torch names them.
    revision
        Of a name on the hub.
    base
        Module and tokenizer of an adapter's base, which no one else uses; the
        one that the adapter names when None.
    plain
        Whether to make ordinary layers of quantised and of adapted ones.

    Raises
    ------
    UsageError
        If there is no such folder, or it lacks configuration, weights or
        tokenizer; the name cannot be reached; the model is no causal language
        model; the device is not there.
    """
    path = local_path(source)
    if path is not None and path.is_file():
        from equipoise.kit.language.gguf import converted

        path = converted(path, standard.getLogger("equipoise").warning)
    folder = model_folder(path) if path is not None else None
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"A local language model needs the package {error.name}, which is not installed:"
            " pip install 'equipoise[language]'."
        ) from error
    check_device(device)
    with quiet():
        if folder is None:
            folder = _hub_adapter(source, revision)
        if folder is not None and folder.is_adapter:
            return _open_adapter(source, folder, base, dtype, device, plain)
        if base is not None:
            raise UsageError(f"{source}: holds a whole model, and `base` is for adapters.")
        where = str(folder.path) if folder is not None else source
        return _open_whole(source, where, folder is not None, dtype, device, revision, plain)


def _open_whole(
    source: str,
    where: str,
    local: bool,
    dtype: str,
    device: str,
    revision: str | None,
    plain: bool,
) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from equipoise.kit.language._quantized import Quantized

    given: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    if revision and not local:
        given["revision"] = revision
    try:
        config = AutoConfig.from_pretrained(where, **given)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(_why(source, local, error)) from error
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UsageError(
            f"{source}: {config.model_type} is not a causal language model; name one that is."
        )
    tokenizer = _tokenizer(source, where, given)
    said = getattr(config, "quantization_config", None)
    quantized = Quantized(source, said) if said else None
    more = quantized.arguments(device, plain) if quantized else {}
    number = getattr(torch, dtype)
    try:
        # transformers draws from the global generator even where every weight is read.
        with torch.random.fork_rng(devices=[]):
            found: Any = AutoModelForCausalLM.from_pretrained(
                where, config=config, dtype=number, output_loading_info=True, **more, **given
            )
    except Exception as error:  # safetensors, pickle and torch each raise their own
        raise UsageError(_why(source, local, error)) from error
    module, loaded = found
    for key, fault in (("missing_keys", "are missing"), ("mismatched_keys", "do not fit")):
        if loaded.get(key):
            names = sorted(str(name) for name in loaded[key])
            raise UsageError(
                f"{source}: {len(names)} of the weights {fault}, such as {names[0]}; the folder"
                " must hold all that its config.json describes."
            )
    if quantized:
        module = quantized.opened(module.eval(), number, plain)
        if not plain:
            setattr(module, CLOSED, quantized.closed)
    else:
        module.to(device)
    _check_tokens(source, module, tokenizer)
    return module.eval(), tokenizer


def _open_adapter(
    source: str,
    folder: ModelFolder,
    base: tuple[Any, Any] | None,
    dtype: str,
    device: str,
    plain: bool,
) -> tuple[Any, Any]:
    from equipoise.kit.language._adapted import adapt, closed

    given = {"trust_remote_code": False, "local_files_only": True}
    own = None
    if (folder.path / "tokenizer_config.json").is_file():
        own = _tokenizer(source, str(folder.path), given)
    if base is None:
        place = folder.base_place()
        try:
            base = open_model(
                place, dtype=dtype, device=device, revision=folder.base_revision, plain=plain
            )
        except UsageError as error:
            raise UsageError(f"{source}: the base of this adapter: {error}") from error
    module, tokenizer = base
    reason = getattr(module, CLOSED, None)
    module = adapt(module, folder, tokens=len(own) if own is not None else None, plain=plain)
    tokenizer = own if own is not None else tokenizer
    if not plain:
        setattr(module, CLOSED, closed(source))
    elif reason:
        setattr(module, CLOSED, reason)
    _check_tokens(source, module, tokenizer)
    return module.eval(), tokenizer


def _hub_adapter(source: str, revision: str | None) -> ModelFolder | None:
    """Return the folder of an adapter on the hub, None for a whole model or nothing."""
    from transformers.utils.peft_utils import find_adapter_config_file

    try:
        if find_adapter_config_file(source, revision=revision) is None:
            return None
        from huggingface_hub import snapshot_download

        place = snapshot_download(source, revision=revision, allow_patterns=_OF_ADAPTERS)
    except (OSError, ValueError):  # said better when the model itself is asked for
        return None
    return model_folder(Path(place)) if (Path(place) / ADAPTER).is_file() else None


def _tokenizer(source: str, where: str, given: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(where, **given)
    except Exception as error:  # tokenizers raise bare exceptions
        fault = " ".join(str(error).split())[:200].rstrip(".")
        raise UsageError(f"{source}: the tokenizer cannot be opened: {fault}.") from error


def _check_tokens(source: str, module: Any, tokenizer: Any) -> None:
    if module.get_input_embeddings().num_embeddings < len(tokenizer):
        raise UsageError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens and the model"
            f" {module.get_input_embeddings().num_embeddings}; they do not belong together."
        )


def check_device(device: str) -> None:
    """Raise `UsageError` unless torch can put tensors there."""
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(
            f'There is no device "{device}" on this machine; take "cpu", or install a torch'
            " that was built for it."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing bars, warnings and advice; errors still come through."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    others = standard.root.manager.disable
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    standard.disable(max(others, standard.WARNING))  # the packages that quantise have their own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        standard.disable(others)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _why(source: str, local: bool, error: Exception) -> str:
    fault = " ".join(str(error).split())
    if not local and isinstance(error, OSError):
        return (
            f"{source}: no folder of that name, and the model hub has not got it or cannot be"
            " reached; give a folder, or try again where there is a network."
        )
    return f"{source}: cannot be opened: {fault[:200].rstrip('.')}."
