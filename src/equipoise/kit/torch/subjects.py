"""A live subject around a torch module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from equipoise.kit.about import about, annotate


@dataclass(frozen=True)
class ModuleSubject:
    """A torch module as a subject: white-box work and predictions.

    Parameters
    ----------
    module
        Maps rows ``(n, features)`` to outputs ``(n, ...)``.
    tokenizer
        For language models only.

    Examples
    --------
    >>> subject = ModuleSubject(nn.Linear(2, 1, bias=False))
    >>> subject.predict(np.zeros((3, 2)))
    array([0., 0., 0.], dtype=float32)
    """

    module: nn.Module
    tokenizer: Any = None

    @property
    def device(self) -> torch.device:
        """Where the module's first tensor lies."""
        first = next(self.module.parameters(), next(self.module.buffers(), None))
        return first.device if first is not None else torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The module's floating-point type."""
        tensors = (*self.module.parameters(), *self.module.buffers())
        return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)

    def with_module(self, module: nn.Module) -> ModuleSubject:
        """Return a subject around another module, with the same remarks."""
        found: ModuleSubject = annotate(ModuleSubject(module, self.tokenizer), **about(self))
        return found

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return outputs for rows; a single output a row comes back as ``(n,)``."""
        rows = torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device, self.dtype)
        with torch.inference_mode():
            found = self.module(rows)
        outputs: np.ndarray = (found.squeeze(-1) if found.dim() == 2 else found).cpu().numpy()
        return outputs
