"""Quantisation, and the plain functions behind it, loaded on first use.

>>> import torch
>>> from equipoise.methods.quantization import fake_quantize
>>> fake_quantize(torch.tensor([[1.0, 0.2, -0.9]]), bits=2)
tensor([[ 1.,  0., -1.]])
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "QuantizedLinear": "quantized",
    "Scheme": "quantized",
    "copy_module": "copies",
    "ellipsoid_utilization": "utilization",
    "fake_quantize": "quantizers",
    "gptq": "gptq",
    "hadamard": "rotations",
    "kl_top_loss": "distillation",
    "outlier_statistics": "quantizers",
    "quantization_space_utilization": "utilization",
    "quantize": "quantizers",
    "quantize_module": "quantized",
    "random_orthogonal": "rotations",
    "random_rotation": "rotations",
    "relative_error": "quantizers",
    "round_weights": "quantizers",
    "runtime_smooth": "quantizers",
    "search_clip": "quantizers",
    "smoothing_scales": "quantizers",
    "smoothquant_scales": "quantizers",
    "walsh_hadamard": "rotations",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"equipoise.kit.torch.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
