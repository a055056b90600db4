"""Files of control vectors: our own safetensors and npz, and llama.cpp's GGUF."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from equipoise.core import UsageError

_FORMAT = "equipoise.control_vector"
_BLOCK = re.compile(r"block\.(\d+)")
_DIRECTION = re.compile(r"direction\.(\d+)")


def write_vectors(path: Path | str, vectors: Mapping[int, np.ndarray]) -> None:
    """Write control vectors to a file, float32, one tensor a block.

    The tensor of block i, counted from 0, is ``block.i`` with shape
    ``(width,)``. In safetensors the metadata say ``format:
    equipoise.control_vector``.

    Parameters
    ----------
    path
        Ends in ``.safetensors`` or ``.npz``.
    vectors
        Number of a block to its vector.

    Raises
    ------
    UsageError
        If the name ends otherwise.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "kind.safetensors"
    >>> write_vectors(place, {3: np.ones(2)})
    >>> read_vectors(place)
    {3: array([1., 1.], dtype=float32)}
    """
    path = Path(path).expanduser()
    tensors = {
        f"block.{block}": np.ascontiguousarray(vector, np.float32)
        for block, vector in sorted(vectors.items())
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file(tensors, str(path), metadata={"format": _FORMAT})
    elif path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **tensors)
    else:
        raise UsageError(f"{path}: a file of control vectors must end in .safetensors or .npz.")


def read_vectors(path: Path | str) -> dict[int, np.ndarray]:
    """Read control vectors from a file, float32.

    Parameters
    ----------
    path
        As `write_vectors` writes it, or a GGUF control vector as llama.cpp and
        repeng have it, whose ``direction.i`` is added to the output of block i
        counted from 0.

    Returns
    -------
    dict
        Number of a block to its vector.

    Raises
    ------
    UsageError
        If there is no such file or it holds no control vectors.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file of control vectors.")
    readers = {".safetensors": _safetensors, ".npz": _npz, ".gguf": _gguf}
    if path.suffix not in readers:
        raise UsageError(
            f"{path}: a file of control vectors must end in .safetensors, .npz or .gguf."
        )
    pattern = _DIRECTION if path.suffix == ".gguf" else _BLOCK
    found = {}
    for name, tensor in readers[path.suffix](path).items():
        match = pattern.fullmatch(name)
        if match and tensor.ndim == 1:
            found[int(match.group(1))] = np.array(tensor, np.float32)
    if not found:
        wanted = "direction.i" if path.suffix == ".gguf" else "block.i"
        raise UsageError(f"{path}: holds no control vectors; they are tensors named {wanted}.")
    return dict(sorted(found.items()))


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path}: cannot be read as safetensors.") from error


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as npz.") from error


def _gguf(path: Path) -> dict[str, np.ndarray]:
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{path}: reading GGUF needs the package gguf: pip install gguf."
        ) from error
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, IndexError) as error:
        raise UsageError(f"{path}: cannot be read as GGUF.") from error
    found = {}
    for tensor in reader.tensors:
        if tensor.data.dtype not in (np.float32, np.float16, np.float64):
            raise UsageError(f"{path}: {tensor.name} is quantised; write it as F32.")
        found[str(tensor.name)] = np.array(tensor.data)
    return found
