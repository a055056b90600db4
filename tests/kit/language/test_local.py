import json
from pathlib import Path

import numpy as np
import pytest
import torch

from equipoise.core import (
    Embeds,
    Generates,
    HasModule,
    Request,
    ScoresText,
    UsageError,
)
from equipoise.kit.language import _pretrained
from equipoise.kit.language.local import LanguageModel
from equipoise.kit.language.tiny import tiny_folder, tiny_model


def test_it_has_its_protocols(tiny: LanguageModel) -> None:
    for protocol in (Generates, ScoresText, HasModule, Embeds):
        assert isinstance(tiny, protocol)
    assert tiny.device == torch.device("cpu")
    assert not tiny.module.training


def test_with_module_leaves_the_subject_as_it_was(tiny: LanguageModel) -> None:
    before = tiny.generate([Request("a", max_tokens=5)])
    other = tiny.with_module(tiny_model(seed=1).module)
    assert other.generate([Request("a", max_tokens=5)]) != before
    assert tiny.generate([Request("a", max_tokens=5)]) == before
    assert (other.tokenizer, other.name, other.batch_tokens) == (
        tiny.tokenizer,
        tiny.name,
        tiny.batch_tokens,
    )


def test_embeddings_are_means_of_the_last_hidden_states(tiny: LanguageModel) -> None:
    texts = ["a", "several words", "xyz", ""]
    found = LanguageModel(tiny.module, tiny.tokenizer, batch_size=2).embed(texts)
    for text, vector in zip(texts, found, strict=True):
        ids = torch.tensor([tiny.tokenize(text) or [257]])
        with torch.no_grad():
            states = tiny.module(ids, output_hidden_states=True).hidden_states[-1]
        np.testing.assert_allclose(vector, states[0].mean(0), atol=1e-5)
    assert tiny.embed([]).shape[0] == 0


def test_saved_and_loaded_is_the_same(tiny: LanguageModel, tmp_path: Path) -> None:
    tiny.save(tmp_path)
    again = LanguageModel.load(tmp_path)
    requests = [Request("Some", max_tokens=9, log_probs=True)]
    one, two = tiny.generate(requests)[0], again.generate(requests)[0]
    assert one.texts == two.texts
    np.testing.assert_array_equal(one.log_probs[0], two.log_probs[0])
    assert again.module.lm_head.weight is again.module.model.embed_tokens.weight
    assert again.tokenize("hé") == tiny.tokenize("hé")


def test_a_skeleton_is_filled_without_writing_into_shared_tensors(
    tiny: LanguageModel, tmp_path: Path
) -> None:
    from equipoise.kit.torch.copies import copy_module

    def treated() -> torch.nn.Module:
        copy = copy_module(tiny.module)
        layer = copy.model.layers[0].mlp.down_proj
        layer.weight = torch.nn.Parameter(layer.weight.detach() * 2)
        layer.register_buffer("scale", torch.ones(3))
        return copy

    before = {name: tensor.clone() for name, tensor in tiny.module.state_dict().items()}
    subject = tiny.with_module(treated())
    subject.module.model.layers[0].mlp.down_proj.scale.fill_(7.0)
    subject.save(tmp_path)
    skeleton = tiny.with_module(treated())
    filled = skeleton.fill(tmp_path)
    assert filled is skeleton
    assert filled.module.model.layers[0].mlp.down_proj.scale.tolist() == [7.0] * 3
    assert filled.module.lm_head.weight is filled.module.model.embed_tokens.weight
    pair = [("Some", " text")]
    np.testing.assert_array_equal(
        filled.log_likelihood(pair)[0].log_probs, subject.log_likelihood(pair)[0].log_probs
    )
    for name, tensor in tiny.module.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_tensors_that_do_not_fit_are_refused(tiny: LanguageModel, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no such file\.$"):
        tiny_model().fill(tmp_path)
    tiny.save(tmp_path)
    other = tiny_model()
    other.module.model.layers[0].mlp.down_proj = torch.nn.Linear(3, 3)
    with pytest.raises(UsageError, match=r"do not fit tiny; delete the file"):
        other.fill(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageError, match=r"not whole; delete it"):
        tiny_model().fill(tmp_path)


@pytest.fixture
def folder(tiny: LanguageModel, tmp_path: Path) -> Path:
    tiny.save(tmp_path)
    return tmp_path


def test_folders_that_are_no_models_are_one_sentence_each(folder: Path) -> None:
    def fault(sentence: str) -> None:
        with pytest.raises(UsageError) as caught:
            LanguageModel.load(folder)
        text = str(caught.value)
        assert sentence in text
        assert text.endswith(".")
        assert "\n" not in text
        assert len(text) < 400

    config = folder / "config.json"
    good = config.read_text()
    weights = folder / "model.safetensors"
    held = weights.read_bytes()

    weights.write_bytes(held[:500])
    fault("cannot be opened")
    weights.unlink()
    fault("there are no weights; a model folder holds model.safetensors")
    weights.write_bytes(held)

    config.write_text("{ not json")
    fault("cannot be opened")
    config.write_text(json.dumps({"model_type": "no_such_model"}))
    fault("cannot be opened")
    config.write_text(json.dumps({"model_type": "vit"}))
    fault("vit is not a causal language model")
    config.unlink()
    fault("there is no config.json")
    config.write_text(good)

    tokenizer = folder / "tokenizer.json"
    tokenizer.unlink()
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    fault("tokenizer")


def test_missing_weights_are_refused_and_not_drawn(tiny: LanguageModel, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tiny.save(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    whole = dict(tensors)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(
        UsageError, match=r": 1 of the weights are missing, such as model\.layers\.1"
    ):
        LanguageModel.load(tmp_path)
    whole["model.norm.weight"] = torch.ones(3)
    save_file(whole, path, metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"model\.norm\.weight|cannot be opened"):
        LanguageModel.load(tmp_path)


def test_loading_leaves_the_global_generator_alone(folder: Path) -> None:
    before = torch.random.get_rng_state()
    LanguageModel.load(folder)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_folder_that_is_not_there_and_a_name_out_of_reach(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        LanguageModel.load(tmp_path / "none")
    with pytest.raises(UsageError, match=r"cannot be\s+reached; give a folder"):
        LanguageModel.load("nobody/no-such-model-as-this")


def test_an_absent_device_is_one_sentence(folder: Path) -> None:
    absent = "mps" if torch.cuda.is_available() else "cuda"
    for device in (absent, "abacus"):
        with pytest.raises(UsageError, match=f'^There is no device "{device}" on this machine'):
            LanguageModel.load(folder, device=device)


def test_loading_prints_nothing_and_leaves_the_switches(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    capfd.readouterr()
    LanguageModel.load(folder)
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_bfloat16_runs_and_gives_float_scores(folder: Path) -> None:
    model = LanguageModel.load(folder, dtype="bfloat16")
    full = LanguageModel.load(folder)
    (low,), (high,) = (each.log_likelihood([("Some", " text")]) for each in (model, full))
    np.testing.assert_allclose(low.log_probs, high.log_probs, atol=0.5)
    assert not np.array_equal(low.log_probs, high.log_probs)


def test_tiny_folder_is_made_once_and_is_the_tiny_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path))
    first = tiny_folder()
    changed = (first / "model.safetensors").stat().st_mtime_ns
    assert tiny_folder() == first
    assert (first / "model.safetensors").stat().st_mtime_ns == changed
    pair = [("Some", " text")]
    np.testing.assert_array_equal(
        LanguageModel.load(first).log_likelihood(pair)[0].log_probs,
        tiny_model().log_likelihood(pair)[0].log_probs,
    )
    assert list(first.parent.iterdir()) == [first]


def test_quiet_lets_errors_through() -> None:
    with pytest.raises(RuntimeError, match="loud"), _pretrained.quiet():
        raise RuntimeError("loud")
