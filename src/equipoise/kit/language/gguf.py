"""From a GGUF file to a folder of safetensors, once, in the cache."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from equipoise.core import RunError, UsageError
from equipoise.kit.cache import cache_folder, file_hash

_FORMAT = 1  # raise it when what `convert` writes changes
_NOTE = "equipoise.json"


def packaged(package: str, mend: str) -> Path:
    """Return the GGUF file that an installed package carries; the package is not imported.

    Parameters
    ----------
    package
        Name of the distribution.
    mend
        Command that installs it, for the message.

    Raises
    ------
    UsageError
        If the package is missing or carries no GGUF file.
    """
    try:
        listed = files(package) or []
    except PackageNotFoundError as error:
        raise UsageError(f"The package {package} is not installed: {mend}.") from error
    for each in listed:
        path = Path(str(each.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise UsageError(f"The package {package} carries no GGUF file; install it again: {mend}.")


def converted(source: Path, tell: Callable[[str], None] = lambda text: None) -> Path:
    """Return a folder with the model of a GGUF file in float32, made on the first call.

    The folder lies in the cache under the file's hash. It appears whole or not
    at all; one that was damaged since is made again.

    Parameters
    ----------
    source
        The GGUF file.
    tell
        Called with a sentence before anything that takes long.

    Raises
    ------
    RunError
        If the cache cannot be written.
    """
    folder = cache_folder() / "models" / f"{source.stem}-{file_hash(source)[:16]}-{_FORMAT}"
    if _whole(folder):
        return folder
    if folder.exists():
        tell(f"The cached model {folder.name} is damaged and is made again.")
    else:
        tell(f"{source.name} is converted once and kept in the cache.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            convert(source, made)
            sizes = {path.name: path.stat().st_size for path in made.iterdir()}
            (made / _NOTE).write_text(json.dumps(sizes), encoding="utf-8")
            _put(made, folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise RunError(
            f"The cache {folder.parent} cannot be written ({error.strerror or error}); free some"
            " space or name another folder in EQUIPOISE_CACHE."
        ) from error
    return folder


def convert(source: Path, folder: Path) -> None:
    """Write the model of a GGUF file into a folder as transformers does, in float32."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        raise UsageError(
            f"A local language model needs the package {error.name}, which is not installed:"
            " pip install 'equipoise[language]'."
        ) from error

    from equipoise.kit.language._pretrained import quiet

    with quiet(), _no_bar():
        given: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **given)
        module: Any = AutoModelForCausalLM.from_pretrained(
            str(source.parent), dtype=torch.float32, **given
        )
        # transformers takes a model from GGUF for a quantized one, which it refuses to save.
        module.is_quantized = False
        for mark in ("hf_quantizer", "quantization_method"):
            if hasattr(module, mark):
                setattr(module, mark, None)
        if hasattr(module.config, "quantization_config"):
            del module.config.quantization_config
        module.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))


@contextmanager
def _no_bar() -> Iterator[None]:
    """Hide the bar of the GGUF reader, which heeds none of transformers' switches."""
    reader: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    bar = getattr(reader, "tqdm", None)
    reader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        reader.tqdm = bar


def _whole(folder: Path) -> bool:
    """Say whether a cached model is as it was written, by the sizes of its files and its header."""
    try:
        sizes = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        for name, size in sizes.items():
            if (folder / name).stat().st_size != size:
                return False
        with (folder / "model.safetensors").open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length < 1 << 27:
                return False
            json.loads(stream.read(length))
        for name in ("config.json", "tokenizer.json"):
            json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    return True


def _put(made: Path, folder: Path) -> None:
    """Move a finished folder into place; another process may have been quicker."""
    made.chmod(0o755)
    for _ in range(2):
        try:
            made.rename(folder)
        except OSError:
            if _whole(folder):
                return
            shutil.rmtree(folder, ignore_errors=True)
        else:
            return
    made.rename(folder)
