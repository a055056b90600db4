"""What a folder of a language model holds, told from its files and without opening it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equipoise.core import UsageError
from equipoise.kit.cache import file_hash

ADAPTER = "adapter_config.json"

_MATTERS = (
    "*.json",
    "*.safetensors",
    "*.bin",
    "*.model",
    "*.txt",
    "*.tiktoken",
    "*.jinja",
    "additional_chat_templates/*.jinja",
)
_LEFT_BY_TRAINING = frozenset(
    {"trainer_state.json", "training_args.bin", "optimizer.bin", "scheduler.bin"}
)
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_BASE = ("base_model_name_or_path", "revision")
_MERGE = "give it as `base` with `plain: true`."
_POINTER = b"version https://git-lfs"


@dataclass(frozen=True)
class ModelFolder:
    """A folder that holds a model, or an adapter to one.

    Parameters
    ----------
    path
        The folder.
    base
        What an adapter says it was trained on: a folder, or a name on the hub;
        empty where it does not say. None for a whole model.
    base_revision
        Of a name on the hub.
    quantized
        The ``quantization_config`` of its configuration, None without one.
    """

    path: Path
    base: str | None = None
    base_revision: str | None = None
    quantized: dict[str, Any] | None = None

    @property
    def is_adapter(self) -> bool:
        return self.base is not None

    def base_place(self) -> str:
        """Return the base as a folder that is there, or as a name on the hub.

        Raises
        ------
        UsageError
            If the adapter does not say, or names a folder that is not here or
            holds an adapter itself.
        """
        if not self.base:
            raise UsageError(
                f"{self.path}: the adapter does not say which model it belongs to; give `base`."
            )
        for place in (Path(self.base).expanduser(), self.path / self.base):
            if (place / ADAPTER).is_file():
                raise UsageError(f"{self.path}: the base, {place}, is an adapter itself; {_MERGE}")
            if place.is_dir():
                return str(place)
        if _is_path(self.base):
            raise UsageError(
                f"{self.path}: the adapter belongs to {self.base}, and there is no such folder;"
                " give `base`."
            )
        return self.base

    def hashes(self) -> dict[str, str]:
        """Return the hash of each file that can move results, by its path in the folder.

        An adapter's note of where its base lay is left out.
        """
        found = {
            path
            for pattern in _MATTERS
            for path in self.path.glob(pattern)
            if path.is_file() and path.name not in _LEFT_BY_TRAINING
        }
        hashes = {path.relative_to(self.path).as_posix(): file_hash(path) for path in sorted(found)}
        if self.is_adapter:
            said = _json(self.path / ADAPTER)
            kept = {
                k: v for k, v in said.items() if k not in ("base_model_name_or_path", "revision")
            }
            if isinstance(kept.get("target_modules"), list):
                kept["target_modules"].sort()  # a set, which is written in any order
            text = json.dumps(kept, sort_keys=True)
            hashes[ADAPTER] = hashlib.sha256(text.encode()).hexdigest()
        return hashes


def local_path(source: str) -> Path | None:
    """Return the folder or file that a model's name stands for, None for a name on the hub.

    Raises
    ------
    UsageError
        If it can only be a path, and nothing is there.

    Examples
    --------
    >>> local_path("org/model")
    """
    path = Path(source).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise UsageError(f"{source}: a model is a folder or a GGUF file; this is neither.")
    if _is_path(source):
        raise UsageError(f"{source}: there is no such folder.")
    return None


def model_folder(path: Path) -> ModelFolder:
    """Return what a folder holds.

    Raises
    ------
    UsageError
        If it holds no model, or not all of one.
    """
    if (path / ADAPTER).is_file():
        return _adapter(path)
    if not (path / "config.json").is_file():
        inner = _models_below(path)
        if inner:
            raise UsageError(f"{path}: holds models in folders of their own; name {inner}.")
        raise UsageError(f"{path}: there is no config.json; name a folder that transformers wrote.")
    config = _json(path / "config.json")
    _check_weights(path)
    return ModelFolder(path, quantized=config.get("quantization_config") or None)


def _adapter(path: Path) -> ModelFolder:
    said = _json(path / ADAPTER)
    weights = [path / f"adapter_model.{suffix}" for suffix in ("safetensors", "bin")]
    there = [each for each in weights if each.is_file()]
    if not there:
        raise UsageError(
            f"{path}: the adapter has no weights; its folder holds adapter_model.safetensors."
        )
    _check_pointer(there[0])
    if any((path / name).is_file() for name in (*_WHOLE, *(f"{n}.index.json" for n in _WHOLE))):
        raise UsageError(
            f"{path}: holds both an adapter and a whole model; put one of them in a folder of"
            " its own."
        )
    return ModelFolder(
        path,
        base=str(said.get(_BASE[0]) or ""),
        base_revision=said.get(_BASE[1]) or None,
    )


def _check_weights(path: Path) -> None:
    for name in _WHOLE:  # in the order in which transformers looks for them
        index = path / f"{name}.index.json"
        if (path / name).is_file():
            return _check_pointer(path / name)
        if index.is_file():
            return _check_shards(path, index)
    if not any(path.glob("*.safetensors")):
        raise UsageError(f"{path}: there are no weights; a model folder holds model.safetensors.")
    return None


def _check_shards(path: Path, index: Path) -> None:
    listed = _json(index).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise UsageError(f"{index}: names no shards; the folder is not whole.")
    names = sorted({str(name) for name in listed.values()})
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        raise UsageError(
            f"{path}: {len(missing)} of {len(names)} shards of the weights are missing, such as"
            f" {missing[0]}."
        )
    for name in names:
        _check_pointer(path / name)


def _check_pointer(path: Path) -> None:
    with path.open("rb") as stream:
        if stream.read(len(_POINTER)) == _POINTER:
            raise UsageError(
                f"{path}: stands for weights that Git LFS has not fetched; run `git lfs pull`."
            )


def _models_below(path: Path) -> str:
    names = sorted(
        each.parent.name for name in (ADAPTER, "config.json") for each in path.glob(f"*/{name}")
    )
    return " or ".join(str(path / name) for name in dict.fromkeys(names[:3]))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be opened: {' '.join(str(error).split())}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path}: cannot be opened: it is no JSON object.")
    return found


def _is_path(source: str) -> bool:
    return source.startswith((".", "/", "~")) or source.count("/") > 1
