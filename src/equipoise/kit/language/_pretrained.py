"""Opening transformers models quietly, with one sentence for each thing that goes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from equipoise.core import UsageError

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def open_model(
    source: str, *, dtype: str, device: str, revision: str | None = None
) -> tuple[Any, Any]:
    """Return the module and the tokenizer of a folder or a hub name.

    Raises
    ------
    UsageError
        If there is no such folder, or it lacks configuration, weights or
        tokenizer; the name cannot be reached; the model is no causal language
        model; the device is not there.
    """
    folder = Path(source).expanduser()
    local = folder.is_dir()
    if local:
        _inspect(folder)
    elif folder.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise UsageError(f"{source}: there is no such folder.")
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise UsageError(
            f"A local language model needs the package {error.name}, which is not installed:"
            " pip install 'equipoise[language]'."
        ) from error
    check_device(device)
    where = str(folder) if local else source
    given: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    if revision and not local:
        given["revision"] = revision
    with quiet():
        try:
            config = AutoConfig.from_pretrained(where, **given)
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(_why(source, local, error)) from error
        if type(config) not in AutoModelForCausalLM._model_mapping:
            raise UsageError(
                f"{source}: {config.model_type} is not a causal language model; name one that is."
            )
        try:
            tokenizer = AutoTokenizer.from_pretrained(where, **given)
        except Exception as error:  # tokenizers raise bare exceptions
            fault = " ".join(str(error).split())[:200].rstrip(".")
            raise UsageError(f"{source}: the tokenizer cannot be opened: {fault}.") from error
        try:
            # transformers draws from the global generator even where every weight is read.
            with torch.random.fork_rng(devices=[]):
                found: Any = AutoModelForCausalLM.from_pretrained(
                    where,
                    config=config,
                    dtype=getattr(torch, dtype),
                    output_loading_info=True,
                    **given,
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
        module.to(device)
    if module.get_input_embeddings().num_embeddings < len(tokenizer):
        raise UsageError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens and the model"
            f" {module.get_input_embeddings().num_embeddings}; they do not belong together."
        )
    return module.eval(), tokenizer


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
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _inspect(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{folder}: there is no config.json; name a folder that transformers wrote."
        )
    if not any(path.is_file() for pattern in _WEIGHTS for path in folder.glob(pattern)):
        raise UsageError(f"{folder}: there are no weights; a model folder holds model.safetensors.")


def _why(source: str, local: bool, error: Exception) -> str:
    fault = " ".join(str(error).split())
    if not local and isinstance(error, OSError):
        return (
            f"{source}: no folder of that name, and the model hub has not got it or cannot be"
            " reached; give a folder, or try again where there is a network."
        )
    return f"{source}: cannot be opened: {fault[:200].rstrip('.')}."
