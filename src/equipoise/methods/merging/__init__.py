"""Editing and merging weights, and the plain functions behind it, loaded on first use.

>>> import torch
>>> from equipoise.methods.merging import consensus
>>> consensus(torch.tensor([[1.0, 5.0], [1.0, 0.1]]))
tensor([2., 0.])
"""

from importlib import import_module
from typing import Any

_KIT, _HERE = "equipoise.kit.torch", __name__
_WHERE = {
    "WeightFiles": f"{_KIT}.weight_files",
    "average": f"{_KIT}.merge_rules",
    "block_numbers": f"{_KIT}.layers",
    "consensus": f"{_KIT}.merge_rules",
    "layer_factor": f"{_KIT}.layers",
    "layer_factors": f"{_KIT}.layers",
    "merged": f"{_KIT}.merging",
    "merged_update": f"{_KIT}.merging",
    "normalized_accuracy": f"{_HERE}.shares",
    "scaled": f"{_KIT}.merging",
    "select_scale": f"{_HERE}.lines",
    "target_control_tradeoff": f"{_HERE}.shares",
    "ties": f"{_KIT}.merge_rules",
    "total": f"{_KIT}.merge_rules",
    "trim_thresholds": f"{_KIT}.merging",
    "update_scale": f"{_KIT}.merging",
    "weighted": f"{_KIT}.merge_rules",
    "with_tensors": f"{_KIT}.layers",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
