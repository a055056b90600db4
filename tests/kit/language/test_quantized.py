"""Folders whose weights another tool quantised."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from equipoise.core import UsageError
from equipoise.kit.language import _quantized
from equipoise.kit.language._pretrained import CLOSED, open_model
from equipoise.kit.language._quantized import Quantized
from equipoise.kit.language.families import random_model

IDS = torch.arange(7)[None] * 31 % 256


def opened(folder: Path, **settings: Any) -> tuple[Any, Any]:
    return open_model(str(folder), dtype="float32", device="cpu", **settings)


def logits(module: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = module(IDS).logits
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    random_model("llama").save(folder)
    return folder


def write_int8(base: Path, folder: Path) -> Path:
    """Write what llm-compressor writes for 8-bit weights, one step a row."""
    shutil.copytree(base, folder)
    tensors = load_file(base / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name]
        step = weight.abs().amax(1, keepdim=True) / 127
        tensors[name] = (weight / step).round().to(torch.int8)
        tensors[name.replace(".weight", ".weight_scale")] = step
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
    said = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "format": "int-quantized"}
        },
    }
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": said}))
    return folder


def rounded_by_hand(base: Path) -> torch.Tensor:
    module = opened(base)[0]
    with torch.no_grad():
        for name, part in module.named_modules():
            if name.endswith("_proj"):
                step = part.weight.abs().amax(1, keepdim=True) / 127
                part.weight.copy_((part.weight / step).round() * step)
    return logits(module)


def test_a_quantised_folder_without_its_package_is_one_sentence(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_int8(base, tmp_path / "int8")
    monkeypatch.setattr(_quantized, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError,
        match=r": its weights are quantised by compressed-tensors, which needs a package that is"
        r" not installed: pip install compressed-tensors\.$",
    ):
        opened(folder)


def test_a_format_that_no_one_knows_is_not_taken_for_weights(base: Path, tmp_path: Path) -> None:
    folder = write_int8(base, tmp_path / "int8")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["quant_method"] = "round-and-hope"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r'are quantised as "round-and-hope", which this version'):
        opened(folder)


def test_compressed_weights_run_as_they_would_by_hand(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors", reason="the format needs compressed-tensors")
    folder = write_int8(base, tmp_path / "int8")
    wanted = rounded_by_hand(base)
    scale = wanted.abs().max()
    as_it_is, plain = opened(folder)[0], opened(folder, plain=True)[0]
    assert (logits(as_it_is) - wanted).abs().max() < 1e-4 * scale
    assert (logits(plain) - wanted).abs().max() < 1e-4 * scale
    assert "quantised by compressed-tensors; open it with `plain: true`" in getattr(
        as_it_is, CLOSED
    )
    assert not hasattr(plain, CLOSED)
    assert set(plain.state_dict()) == set(opened(base)[0].state_dict())


def test_torchao_weights_run_as_transformers_runs_them(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="the format needs torchao")
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import AutoModelForCausalLM, TorchAoConfig

    folder = tmp_path / "int8"
    made = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, quantization_config=TorchAoConfig(Int8WeightOnlyConfig())
    )
    made.save_pretrained(folder)
    opened(base)[1].save_pretrained(folder)
    as_it_is, plain = opened(folder)[0], opened(folder, plain=True)[0]
    assert torch.equal(logits(as_it_is), logits(made))
    assert (logits(plain) - logits(made)).abs().max() < 1e-4 * logits(made).abs().max()
    assert type(plain.model.layers[0].mlp.up_proj.weight) is torch.nn.Parameter
    assert "quantised by torchao" in getattr(as_it_is, CLOSED)


@pytest.mark.parametrize(
    ("said", "rounds"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, False),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, True),
        ({"quant_method": "gptq"}, True),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}},
            },
            False,
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {
                    "default": {
                        "_type": "FqnToConfig",
                        "_data": {
                            "a": {"_type": "Int8WeightOnlyConfig"},
                            "b": {"_type": "Int8DynamicActivationInt8WeightConfig"},
                        },
                    }
                },
            },
            True,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4}, "input_activations": None}},
            },
            False,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"input_activations": {"num_bits": 8}}},
            },
            True,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4}}},
                "kv_cache_scheme": {"num_bits": 8},
            },
            True,
        ),
    ],
)
def test_layers_that_round_what_they_read_have_no_plain_form(
    said: dict[str, Any], rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_quantized, "find_spec", lambda name: object())
    found = Quantized("model", said)
    assert found.rounds_inputs is rounds
    if rounds:
        with pytest.raises(UsageError, match=r"have no plain form; leave `plain` out\.$"):
            found.arguments("cpu", plain=True)
    assert found.arguments("cpu", plain=False) == {"device_map": {"": "cpu"}}
    assert ("plain: true" in found.closed) is not rounds


def test_a_number_format_that_the_layers_cannot_run_in_is_one_sentence() -> None:
    class Odd(torch.nn.Linear):
        device = torch.device("cpu")

    # Token ids are integers, which a linear layer refuses as a quantised one refuses a format.
    quantized = Quantized("model", {"quant_method": "bitnet"})
    with pytest.raises(
        UsageError, match=r"do not run in bfloat16 on cpu: .*; try another dtype\.$"
    ):
        quantized.opened(Odd(2, 2), torch.bfloat16, plain=False)
