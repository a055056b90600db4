"""Further training of a subject, and the plain functions behind it, loaded on first use.

>>> from equipoise.methods.training import Recipe
>>> Recipe(steps=10, schedule="cosine").rate_at(5)
1e-05
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Checkpoint": "torch.checkpoints",
    "History": "torch.training",
    "Lesson": "language.lessons",
    "NextToken": "language.likelihood",
    "Recipe": "torch.training",
    "TokenBatch": "language.likelihood",
    "add_lora": "torch.adapters",
    "fit": "torch.training",
    "finished": "torch.training",
    "merge_lora": "torch.adapters",
    "trainable_copy": "torch.training",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"equipoise.kit.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
