"""What training needs to go on after a kill, in one file of the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from equipoise.core import Rng
from equipoise.kit.cache import cache_folder

if TYPE_CHECKING:
    from equipoise.kit.torch.training import History

_FORMAT = 1


class Checkpoint:
    """Keeps trained weights, the optimizer and the curves of a run that is under way.

    The file appears whole or not at all, is read without running code, and goes when the run
    has ended. One that is damaged is as good as none. A full disk costs the chance to go on,
    not the run.

    Parameters
    ----------
    key
        Names the run; see `run_key`.
    seconds
        Least time from one writing to the next; 0 writes after every step.

    Examples
    --------
    >>> Checkpoint("5f").path.name
    '5f.safetensors'
    """

    def __init__(self, key: str, seconds: float = 300.0) -> None:
        self.path = cache_folder() / "checkpoints" / f"{key}.safetensors"
        self.seconds = seconds
        self._last = time.monotonic()

    def restore(
        self,
        trained: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        history: History,
    ) -> int:
        """Put back what is kept and return how many steps are done, 0 without a file."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                said = json.loads(file.metadata()["history"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            weights = {name: tensors.pop(f"weight {name}") for name in trained}
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return 0
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            _, number, key = name.split(" ", 2)
            state.setdefault(int(number), {})[key] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(weights[name])
        history.losses[:] = said["losses"]
        history.watched.update(said["watched"])
        return len(history.losses)

    def save_when_due(
        self,
        trained: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        history: History,
    ) -> None:
        """Write the file if ``seconds`` have gone by since it was last written."""
        if time.monotonic() - self._last < self.seconds:
            return
        from safetensors.torch import save_file

        tensors = {f"weight {name}": each.detach() for name, each in trained.items()}
        for number, slots in optimizer.state_dict()["state"].items():
            for key, value in slots.items():
                if value is not None:
                    tensors[f"state {number} {key}"] = torch.as_tensor(value)
        said = json.dumps({"losses": history.losses, "watched": history.watched})
        draft = self.path.with_suffix(f".{os.getpid()}.draft")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            contiguous = {name: each.contiguous() for name, each in tensors.items()}
            save_file(contiguous, str(draft), metadata={"history": said})
            os.replace(draft, self.path)
        except OSError:
            draft.unlink(missing_ok=True)
        self._last = time.monotonic()

    def remove(self) -> None:
        """Delete the file, and drafts that a killed process left."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            for draft in self.path.parent.glob(f"{self.path.stem}.*.draft"):
                draft.unlink(missing_ok=True)


def run_key(rng: Rng, how: Any, module: nn.Module) -> str:
    """Return the name of a run: its stream, all that decides it, and the weights it starts from.

    Parameters
    ----------
    rng
        The treatment's stream.
    how
        Parameters and data, as JSON.
    module
        Of which every tensor counts.
    """
    digest = hashlib.sha256()
    start = [_FORMAT, torch.__version__, rng.seed, rng.path, how]
    digest.update(json.dumps(start, sort_keys=True, default=repr).encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().flatten()
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
