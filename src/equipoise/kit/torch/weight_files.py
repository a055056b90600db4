"""Tensors of a model's folder, read one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from equipoise.core import UsageError

ONE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"


class WeightFiles(Mapping[str, Tensor]):
    """The tensors in a folder's safetensors files, as a mapping that holds none of them.

    A tensor asked for is mapped from its file and let go with its last user, so
    that models larger than memory can be walked through.

    Parameters
    ----------
    folder
        With ``model.safetensors``, or an index and the shards that it names.

    Raises
    ------
    UsageError
        If there are none, or they are damaged, or it is an adapter's folder.

    Examples
    --------
    >>> import tempfile, torch
    >>> from safetensors.torch import save_file
    >>> place = tempfile.mkdtemp()
    >>> save_file({"weight": torch.ones(2, 3)}, f"{place}/model.safetensors")
    >>> files = WeightFiles(place)
    >>> list(files), files.shapes["weight"], float(files["weight"].sum())
    (['weight'], (2, 3), 6.0)
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, Path] = {}
        if not self.folder.is_dir():
            raise UsageError(f"{folder}: there is no such folder.")
        from safetensors import SafetensorError, safe_open

        wanted = self._listed()
        for path in dict.fromkeys(wanted.values()) if wanted else [self.folder / ONE]:
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - it is no mapping
                        self.shapes[name] = tuple(file.get_slice(name).get_shape())
                        self._places[name] = path
            except (OSError, SafetensorError) as error:
                raise UsageError(f"{path}: cannot be read as safetensors ({error}).") from error
        missing = sorted(set(wanted) - set(self.shapes))
        if missing:
            raise UsageError(f"{self.folder / INDEX}: {missing[0]} is in none of the shards.")

    def _listed(self) -> dict[str, Path]:
        """Return the shard of each tensor that the index names, or nothing without an index."""
        index = self.folder / INDEX
        if not index.is_file():
            if (self.folder / ONE).is_file():
                return {}
            if (self.folder / ADAPTER).is_file():
                raise UsageError(
                    f"{self.folder}: holds an adapter, not a whole model; merge it into its base"
                    " model and save that first."
                )
            raise UsageError(f"{self.folder}: there is no {ONE} and no {INDEX}.")
        try:
            found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = {str(name): str(file) for name, file in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{index}: cannot be read ({type(error).__name__}).") from error
        for file in names.values():
            if Path(file).name != file:  # an index must not lead out of its folder
                raise UsageError(f"{index}: a shard must be a file beside it, got {file!r}.")
        return {name: self.folder / file for name, file in names.items()}

    def __getitem__(self, name: str) -> Tensor:
        from safetensors import safe_open

        # Opened anew each time, because a file that stays open keeps all that was read mapped.
        with safe_open(self._places[name], framework="pt") as file:
            found: Tensor = file.get_tensor(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
