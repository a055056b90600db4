import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from equipoise.catalog import identity, part
from equipoise.core import Request, Rng, UsageError
from equipoise.kit.language.tiny import tiny_folder
from equipoise.methods.language.hf import HuggingFace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder(), tmp_path / "model"))


def test_the_identity_follows_the_content_and_not_the_path(folder: Path, tmp_path: Path) -> None:
    one = HuggingFace(str(folder))
    moved = HuggingFace(
        str(shutil.copytree(folder, tmp_path / "elsewhere")), device="cpu", threads=1
    )
    assert identity(one) == identity(moved)
    assert identity(HuggingFace(str(folder), dtype="bfloat16")) != identity(one)
    (folder / "README.md").write_text("does not matter")
    assert identity(one) == identity(moved)
    (folder / "generation_config.json").write_text("{}")
    assert identity(one) != identity(moved)


def test_names_on_the_hub_are_known_by_name_and_revision() -> None:
    assert HuggingFace("a/b").content() == {"hub": "a/b"}
    assert identity(HuggingFace("a/b")) != identity(HuggingFace("a/b", revision="v2"))


def test_it_loads_and_answers(folder: Path) -> None:
    model = part("hf", model=str(folder), batch_size=3).load(Rng(0))
    assert model.batch_size == 3
    assert model.name == "model"
    assert model.generate([Request("Hi", max_tokens=3)])[0].usage.output_tokens == 3


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^HuggingFace: .*there is no config\.json; name a folder"
    ):
        HuggingFace(str(tmp_path)).load(Rng(0))
    with pytest.raises(UsageError, match=r"^HuggingFace: a/b: no folder of that name, and the"):
        HuggingFace("a/b").load(Rng(0))
    with pytest.raises(UsageError, match=r"^HuggingFace: model must name a folder"):
        HuggingFace(" ")
    with pytest.raises(UsageError, match=r"^HuggingFace: dtype must be one of 'float32'"):
        HuggingFace("a/b", dtype="int8")


def low_rank(folder: Path, base: str | None) -> Path:
    """Write an adapter of rank 1 for one layer of the tiny model."""
    folder.mkdir()
    said = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": 1,
        "lora_alpha": 4,
        "target_modules": ["o_proj"],
        "layers_to_transform": [1],
    }
    (folder / "adapter_config.json").write_text(json.dumps(said))
    start = "base_model.model.model.layers.1.self_attn.o_proj"
    tensors = {
        f"{start}.lora_A.weight": torch.ones(1, 32),
        f"{start}.lora_B.weight": torch.ones(32, 1),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def score(part: Any) -> np.ndarray:
    return part.load(Rng(0)).log_likelihood([("Some", " text")])[0].log_probs


def test_an_adapter_is_known_by_its_content_and_its_base(folder: Path, tmp_path: Path) -> None:
    adapter = low_rank(tmp_path / "adapter", str(folder))
    one = identity(HuggingFace(str(adapter)))
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere")
    shutil.copytree(adapter, tmp_path / "moved")
    said = json.loads((adapter / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = str(elsewhere)
    (tmp_path / "moved" / "adapter_config.json").write_text(json.dumps(said))
    (adapter / "training_args.bin").write_bytes(b"does not matter")
    (adapter / "trainer_state.json").write_text("{}")
    assert (
        one == identity(HuggingFace(str(adapter))) == identity(HuggingFace(str(tmp_path / "moved")))
    )
    assert identity(HuggingFace(str(adapter), plain=True)) != one
    (elsewhere / "generation_config.json").write_text("{}")
    assert identity(HuggingFace(str(tmp_path / "moved"))) != one
    said["lora_alpha"] = 5
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    assert identity(HuggingFace(str(adapter))) != one


def test_a_base_that_is_given_counts_in_the_identity(folder: Path, tmp_path: Path) -> None:
    adapter = str(low_rank(tmp_path / "adapter", None))
    one = HuggingFace(adapter, base=HuggingFace(str(folder)))
    with pytest.raises(UsageError, match=r"^HuggingFace: .* does not say .*; give `base`\.$"):
        identity(HuggingFace(adapter))
    first = identity(one)
    (folder / "generation_config.json").write_text("{}")
    assert identity(HuggingFace(adapter, base=HuggingFace(str(folder)))) != first


def test_an_adapter_on_a_given_base_is_the_one_on_its_own(folder: Path, tmp_path: Path) -> None:
    named = HuggingFace(str(low_rank(tmp_path / "named", str(folder))), batch_size=2)
    base = HuggingFace(str(folder), dtype="bfloat16")  # the adapter's number format counts
    given = HuggingFace(str(low_rank(tmp_path / "given", None)), base=base)
    np.testing.assert_array_equal(score(named), score(given))
    assert not np.allclose(score(named), score(HuggingFace(str(folder))), atol=1e-3)
    assert named.load(Rng(0)).batch_size == 2
    assert given.load(Rng(0)).name == "given"
    merged = HuggingFace(named.model, plain=True)
    np.testing.assert_allclose(score(merged), score(named), atol=1e-5)


def test_treatments_edit_a_plain_adapter(folder: Path, tmp_path: Path) -> None:
    adapter = str(low_rank(tmp_path / "adapter", str(folder)))
    live = HuggingFace(adapter, plain=True).load(Rng(0))
    before = live.log_likelihood([("Some", " text")])[0].log_probs
    rounded = part("round_to_nearest", weights=3).apply(live, Rng(0))
    assert not np.array_equal(rounded.log_likelihood([("Some", " text")])[0].log_probs, before)
    np.testing.assert_array_equal(live.log_likelihood([("Some", " text")])[0].log_probs, before)


def test_layers_that_choose_by_the_batch_see_one_sequence_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from equipoise.kit.language import _pretrained

    whole = _pretrained.open_model

    def marked(*given: Any, **settings: Any) -> Any:
        module, tokenizer = whole(*given, **settings)
        module.equipoise_alone = True
        return module, tokenizer

    monkeypatch.setattr(_pretrained, "open_model", marked)
    assert HuggingFace(str(folder), batch_size=7).load(Rng(0)).batch_size == 1


def test_a_gguf_file_is_converted_and_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from equipoise.kit.language import gguf
    from equipoise.kit.language.tiny import tiny_model

    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf, "convert", lambda source, folder: tiny_model().save(folder))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert list(HuggingFace(str(file)).content()) == ["gguf"]
    np.testing.assert_array_equal(
        score(HuggingFace(str(file))), score(HuggingFace(str(tiny_folder())))
    )


def test_a_trial_finds_a_broken_folder_when_it_is_planned(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"^HuggingFace: .*there are no weights"):
        identity(HuggingFace(str(folder)))
    with pytest.raises(UsageError, match=r"^HuggingFace: .*there is no such folder\.$"):
        identity(HuggingFace(str(tmp_path / "none")))
    with pytest.raises(UsageError, match=r"^HuggingFace: base must be a language model that runs"):
        HuggingFace(str(folder), base=part("scripted", answers={"a": "b"}))
    with pytest.raises(UsageError, match=r"^HuggingFace: .*holds a whole model, and `base` is for"):
        HuggingFace(str(tiny_folder()), base=HuggingFace(str(tiny_folder()))).load(Rng(0))
