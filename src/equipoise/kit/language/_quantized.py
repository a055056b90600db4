"""Weights that another tool quantised: what opens them, and whether they have an ordinary form."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from equipoise.core import UsageError

_PACKAGES = {
    "aqlm": "aqlm",
    "auto-round": "auto-round",
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "gptq": "gptqmodel",
    "hqq": "hqq",
    "quanto": "optimum-quanto",
    "torchao": "torchao",
    "vptq": "vptq",
}
_IMPORTED_AS = {"optimum-quanto": "optimum.quanto"}


class Quantized:
    """What a configuration says of weights that are quantised.

    Parameters
    ----------
    source
        The model's name, for messages.
    said
        The ``quantization_config``.

    Raises
    ------
    UsageError
        If transformers knows no such format, or its package is not installed.

    Examples
    --------
    >>> Quantized("m", {"quant_method": "bitnet"}).rounds_inputs
    True
    """

    def __init__(self, source: str, said: Mapping[str, Any]) -> None:
        from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

        self.source, self.said = source, said
        eight = bool(said.get("load_in_8bit"))
        named = "bitsandbytes" if eight or said.get("load_in_4bit") else said.get("quant_method")
        self.method = str(named or "")
        # transformers would warn of one it does not know, and take the integers for weights.
        if self.method not in (*KNOWN, "bitsandbytes"):
            raise UsageError(
                f'{source}: its weights are quantised as "{self.method}", which this version of'
                " transformers does not know."
            )
        self.int8 = self.method == "bitsandbytes" and eight
        package = _PACKAGES.get(self.method)
        if package and not _installed(package):
            raise UsageError(
                f"{source}: its weights are quantised by {self.method}, which needs a package that"
                f" is not installed: pip install {package}."
            )

    @property
    def rounds_inputs(self) -> bool:
        """Whether layers round what they read, as far as one can tell; weights alone do not say."""
        if self.method == "compressed-tensors":
            groups = (self.said.get("config_groups") or {}).values()
            keys = ("input_activations", "output_activations")
            return any(group.get(key) for group in groups for key in keys) or bool(
                self.said.get("kv_cache_scheme")
            )
        if self.method == "torchao":
            return not all(name.endswith("WeightOnlyConfig") for name in _kinds(self.said))
        return self.method != "bitsandbytes" or self.int8

    @property
    def closed(self) -> str:
        """Why a treatment cannot edit the layers, as a sentence."""
        start = f"{self.source}: its linear layers are quantised by {self.method}"
        if self.rounds_inputs:
            return f"{start} and round what they read, so no treatment can edit them."
        return f"{start}; open it with `plain: true` to edit them."

    def arguments(self, device: str, plain: bool) -> dict[str, Any]:
        """Return what `from_pretrained` is given more.

        Raises
        ------
        UsageError
            If the layers have no ordinary form and one is asked for.
        """
        given: dict[str, Any] = {"device_map": {"": device}}
        if plain and self.rounds_inputs:
            raise UsageError(
                f"{self.source}: layers quantised by {self.method} that round what they read have"
                " no plain form; leave `plain` out."
            )
        if plain and self.method == "compressed-tensors":
            from transformers import CompressedTensorsConfig

            if "dequantize" not in inspect.signature(CompressedTensorsConfig).parameters:
                raise UsageError(
                    f"{self.source}: this version of transformers cannot make plain layers of"
                    " compressed tensors; install a newer one or leave `plain` out."
                )
            given["quantization_config"] = CompressedTensorsConfig(dequantize=True)
        return given

    @torch.no_grad()
    def opened(self, module: Any, dtype: torch.dtype, plain: bool) -> Any:
        """Return a module that has just been loaded, tried out and made plain if wanted.

        Raises
        ------
        UsageError
            If it does not run in this number format.
        """
        if plain and self.method == "bitsandbytes":
            for part in module.modules():
                state = getattr(getattr(part, "weight", None), "quant_state", None)
                if state is not None:
                    state.dtype = dtype  # as its layers do when they run
            module = module.dequantize(dtype=dtype).to(dtype)
        elif plain:
            for part in module.modules():
                if isinstance(part, nn.Linear) and hasattr(type(part.weight), "__tensor_flatten__"):
                    full = part.weight.dequantize().to(dtype)
                    part.weight = nn.Parameter(full, requires_grad=False)
            if getattr(module, "hf_quantizer", None) is not None:
                module.hf_quantizer.remove_quantization_config(module)
        try:
            # Compressed tensors are unpacked by the first pass, and other formats say now what
            # they cannot do.
            module(torch.zeros(1, 2, dtype=torch.long, device=module.device))
        except (RuntimeError, NotImplementedError, TypeError, ImportError) as error:
            fault = " ".join(str(error).split())[:160].rstrip(".")
            name = str(dtype).removeprefix("torch.")
            raise UsageError(
                f"{self.source}: layers quantised by {self.method} do not run in {name} on"
                f" {module.device}: {fault}; try another dtype."
            ) from error
        if self.int8 and not plain:
            # LLM.int8 picks outlying columns by all rows it sees at once.
            module.equipoise_whole_sequence = True
        if self.rounds_inputs and self.method in ("bitsandbytes", "compressed-tensors", "torchao"):
            # Padding moves the last bit of a sum, and rounding inputs makes much of that.
            module.equipoise_alone = True
        return module


def _kinds(said: Any) -> Iterator[str]:
    """Yield the names of torchao's ways of quantising, however they are nested."""
    if isinstance(said, Mapping):
        name = said.get("_type")
        if isinstance(name, str) and name.endswith("Config") and "FqnToConfig" not in name:
            yield name
        for each in said.values():
            yield from _kinds(each)
    elif isinstance(said, list):
        for each in said:
            yield from _kinds(each)


def _installed(package: str) -> bool:
    name = _IMPORTED_AS.get(package, package.replace("-", "_"))
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
