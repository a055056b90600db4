"""Folders that other tools wrote: adapters, shards, pickles."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from equipoise.core import Rng, UsageError
from equipoise.kit.language._folders import local_path, model_folder
from equipoise.kit.language._pretrained import CLOSED, open_model
from equipoise.kit.language.families import random_model

IDS = torch.arange(7)[None] * 31 % 256
RANK, ALPHA = 3, 6


def opened(folder: Path, **settings: Any) -> tuple[Any, Any]:
    return open_model(str(folder), dtype="float32", device="cpu", **settings)


def logits(module: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = module(IDS).logits
    return found


def refused(folder: Path, sentence: str, **settings: Any) -> None:
    with pytest.raises(UsageError) as caught:
        opened(folder, **settings)
    text = str(caught.value)
    assert sentence in text
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 500


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    random_model("llama").save(folder)
    return folder


@pytest.fixture(scope="module")
def whole(base: Path) -> torch.Tensor:
    return logits(opened(base)[0])


def write_adapter(
    folder: Path, base: Path | str | None, tensors: dict[str, torch.Tensor], **changes: Any
) -> Path:
    folder.mkdir()
    said = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None if base is None else str(base),
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": ["q_proj", "down_proj"],
        "layers_to_transform": [0, 3],
        **changes,
    }
    (folder / "adapter_config.json").write_text(json.dumps(said))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def low_rank(base: Path) -> dict[str, torch.Tensor]:
    """Adapter tensors for both kinds of layer in the first and the last block."""
    generator = torch.Generator().manual_seed(1)
    found = {}
    for name, weight in load_file(base / "model.safetensors").items():
        if (".0." in name or ".3." in name) and name.endswith(
            ("q_proj.weight", "down_proj.weight")
        ):
            start = f"base_model.model.{name.removesuffix('.weight')}"
            for which, shape in (("A", (RANK, weight.shape[1])), ("B", (weight.shape[0], RANK))):
                tensor = torch.randn(shape, generator=generator) * 0.1
                found[f"{start}.lora_{which}.weight"] = tensor
    return found


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "adapter", base, low_rank(base))


@pytest.fixture(scope="module")
def by_hand(base: Path) -> torch.Tensor:
    """Logits with W + (alpha / r) B A for every adapted weight."""
    module = opened(base)[0]
    tensors = low_rank(base)
    assert len(tensors) == 8
    with torch.no_grad():
        for name in [name for name in tensors if "lora_A" in name]:
            layer = module.get_submodule(
                name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            )
            up = tensors[name.replace("lora_A", "lora_B")]
            layer.weight.add_(ALPHA / RANK * up @ tensors[name])
    return logits(module)


# Adapters


def test_an_adapter_gives_what_its_formula_says(
    adapter: Path, by_hand: torch.Tensor, whole: torch.Tensor
) -> None:
    apart, merged = opened(adapter)[0], opened(adapter, plain=True)[0]
    scale = by_hand.abs().max()
    assert (by_hand - whole).abs().max() > 1e-2 * scale
    for module in (apart, merged):
        assert (logits(module) - by_hand).abs().max() < 1e-5 * scale
    assert {type(part).__module__ for part in merged.modules()} == {
        type(part).__module__ for part in random_model("llama").module.modules()
    }
    assert "`plain: true`" in getattr(apart, CLOSED)
    assert not hasattr(merged, CLOSED)


def test_an_adapter_computes_exactly_what_peft_does(adapter: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    theirs = AutoPeftModelForCausalLM.from_pretrained(str(adapter), dtype=torch.float32).eval()
    assert torch.equal(logits(opened(adapter)[0]), logits(theirs))


def test_an_adapter_takes_a_base_that_is_given(
    adapter: Path, base: Path, by_hand: torch.Tensor, whole: torch.Tensor, tmp_path: Path
) -> None:
    nameless = write_adapter(tmp_path / "nameless", None, low_rank(base))
    refused(nameless, "the adapter does not say which model it belongs to; give `base`")
    given = opened(base)
    module, tokenizer = opened(nameless, base=given)
    assert torch.allclose(logits(module), by_hand, rtol=1e-4, atol=1e-4)
    assert len(tokenizer) == 259
    refused(base, "holds a whole model, and `base` is for adapters", base=given)


def test_a_base_beside_the_adapter_is_found(base: Path, tmp_path: Path, by_hand: Any) -> None:
    shutil.copytree(base, tmp_path / "kept")
    adapter = write_adapter(tmp_path / "adapter", "../kept", low_rank(base))
    assert torch.allclose(logits(opened(adapter)[0]), by_hand, rtol=1e-4, atol=1e-4)


def test_tokens_that_training_added_have_their_rows(base: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    module, tokenizer = opened(base)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|tool|>", "<|call|>"]})
    with torch.random.fork_rng():
        module.resize_token_embeddings(len(tokenizer))
        config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
        trained = get_peft_model(module, config)
    trained.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config_file = tmp_path / "adapter_config.json"
    said = json.loads(config_file.read_text()) | {"base_model_name_or_path": str(base)}
    config_file.write_text(json.dumps(said))
    found, names = opened(tmp_path)
    assert len(names) == 261
    assert torch.equal(logits(found), logits(trained.eval()))


def test_adapters_that_do_not_fit_are_one_sentence(base: Path, tmp_path: Path) -> None:
    tensors = low_rank(base)
    wide = {name: torch.cat([each, each], -1) for name, each in tensors.items() if "_A" in name}
    refused(
        write_adapter(tmp_path / "wide", base, tensors | wide),
        "the adapter does not fit its base: its tensors have other shapes",
    )
    deeper = {
        name.replace("layers.3", "layers.7"): each.clone()
        for name, each in tensors.items()
        if "layers.3" in name
    }
    refused(
        write_adapter(tmp_path / "deep", base, tensors | deeper),
        "the adapter does not fit its base: 4 of its tensors belong to no layer, such as",
    )
    fewer = {name: each for name, each in tensors.items() if "layers.3" not in name}
    refused(
        write_adapter(tmp_path / "fewer", base, fewer),
        "the adapter does not fit its base: 4 of its layers have no tensors, such as",
    )
    refused(
        write_adapter(tmp_path / "foreign", base, tensors, target_modules=["c_attn"]),
        "the adapter does not fit its base: none of its layers is there",
    )


def test_adapters_that_cannot_be_opened_are_one_sentence(base: Path, tmp_path: Path) -> None:
    tensors = low_rank(base)
    refused(
        write_adapter(tmp_path / "classes", base, tensors, task_type="SEQ_CLS"),
        "the adapter is for the task SEQ_CLS, not for a causal language model",
    )
    prompt = {"prompt_embeddings": torch.zeros(2, 32)}
    soft = {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 2}
    refused(
        write_adapter(tmp_path / "prompt", base, prompt, **soft),
        "adapters of the kind PROMPT_TUNING act outside the model's layers",
    )
    invoked = write_adapter(tmp_path / "alora", base, tensors, alora_invocation_tokens=[1])
    refused(invoked, "adapters of the kind LORA act outside the model's layers")
    strange = write_adapter(tmp_path / "strange", base, tensors, peft_type="NO_SUCH_KIND")
    refused(strange, "the adapter cannot be opened: ")
    lost = write_adapter(tmp_path / "lost", tmp_path / "gone", tensors)
    refused(lost, "and there is no such folder; give `base`")
    afar = write_adapter(tmp_path / "afar", "nobody/no-such-base", tensors)
    refused(afar, "the base of this adapter: nobody/no-such-base: no folder of that name")
    upon = write_adapter(tmp_path / "upon", invoked, tensors)
    refused(upon, "is an adapter itself; give it as `base` with `plain: true`")
    good = write_adapter(tmp_path / "good", base, tensors)
    refused(
        write_adapter(tmp_path / "second", None, tensors),
        "the base has an adapter already; give it `plain: true` as well",
        base=opened(good),
    )
    (lost / "adapter_model.safetensors").unlink()
    refused(lost, "the adapter has no weights")
    shutil.copy(base / "model.safetensors", afar)
    refused(afar, "holds both an adapter and a whole model")


def test_opening_an_adapter_leaves_the_global_generator_alone(adapter: Path) -> None:
    before = torch.random.get_rng_state()
    opened(adapter)
    assert torch.equal(before, torch.random.get_rng_state())


# Shards and other ways to keep weights


def test_shards_and_pickles_open_as_the_same_model(
    base: Path, whole: torch.Tensor, tmp_path: Path
) -> None:
    module, tokenizer = opened(base)
    shards, pickled = tmp_path / "shards", tmp_path / "pickled"
    module.save_pretrained(shards, max_shard_size="20KB")
    assert len(list(shards.glob("*.safetensors"))) > 3
    module.config.save_pretrained(pickled)
    torch.save(module.state_dict(), pickled / "pytorch_model.bin")
    for folder in (shards, pickled):
        tokenizer.save_pretrained(folder)
        assert torch.equal(logits(opened(folder)[0]), whole)
    last = max(shards.glob("*.safetensors"))
    held = last.read_bytes()
    last.unlink()
    refused(shards, f"1 of {len(list(shards.glob('*.safetensors'))) + 1} shards of the weights")
    last.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    refused(shards, "stands for weights that Git LFS has not fetched; run `git lfs pull`")
    last.write_bytes(held[:-8])
    refused(shards, "cannot be opened: ")
    (shards / "model.safetensors.index.json").write_text("{}")
    refused(shards, "names no shards; the folder is not whole")


def test_a_pickle_that_runs_code_is_refused(base: Path, tmp_path: Path) -> None:
    import pickle

    class Harm:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "harmed",))

    folder = Path(shutil.copytree(base, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harm()))
    refused(folder, "cannot be opened: ")
    assert not (tmp_path / "harmed").exists()


def test_names_that_are_no_models_say_what_to_name(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "run" / "checkpoint-10")
    refused(tmp_path / "run", "holds models in folders of their own; name ")
    lone = tmp_path / "weights.txt"
    lone.write_text("x")
    with pytest.raises(UsageError, match=r"a model is a folder or a GGUF file; this is neither\.$"):
        local_path(str(lone))
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(UsageError, match=r"cannot be opened: it is no JSON object\.$"):
        model_folder(tmp_path)


def test_a_hub_adapter_goes_the_way_of_a_folder(
    adapter: Path, by_hand: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from transformers.utils import peft_utils

    monkeypatch.setattr(peft_utils, "find_adapter_config_file", lambda *_, **__: "there")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(adapter))
    module = open_model("org/adapter", dtype="float32", device="cpu")[0]
    assert torch.allclose(logits(module), by_hand, rtol=1e-4, atol=1e-4)


def test_random_models_of_every_family_take_an_adapter(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    for family, layer in (("gpt2", "c_attn"), ("gpt_neox", "query_key_value"), ("qwen3", "v_proj")):
        live = random_model(family)
        base, folder = tmp_path / family, tmp_path / f"{family}-adapter"
        live.save(base)
        config = LoraConfig(
            r=2, target_modules=[layer], init_lora_weights=False, fan_in_fan_out=family == "gpt2"
        )
        with torch.random.fork_rng():
            torch.manual_seed(Rng(0).seed_for_request())
            trained = get_peft_model(live.module, config)
        trained.peft_config["default"].base_model_name_or_path = str(base)
        trained.save_pretrained(folder)
        assert torch.equal(logits(opened(folder)[0]), logits(trained.eval()))
