"""Treated models as folders: for everyone where they can be, for equipoise where not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from equipoise.catalog import part
from equipoise.core import Rng, RunError, UsageError
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.trial import subjects
from equipoise.trial.treat import PROBE, treat
from equipoise.trial.trial import Arm


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQUIPOISE_CACHE", str(tmp_path / "cache"))
    subjects._bare.clear()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / str(request.param)
    random_model(str(request.param), vocab_size=264).save(folder)  # Qwen2 adds a token
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    random_model("llama").save(tmp_path / "llama")
    return tmp_path / "llama"


def scores(live: object) -> tuple[float, ...]:
    return tuple(live.log_likelihood([("", PROBE)])[0].log_probs)  # type: ignore[attr-defined]


def made(folder: Path, *treatments: object) -> tuple[float, ...]:
    arm = Arm(part("hf", model=str(folder)), treatments)  # type: ignore[arg-type]
    return scores(subjects.treated(arm, Rng(0), 0))


def test_a_static_edit_opens_in_plain_transformers(model: Path, tmp_path: Path) -> None:
    step = part("round_to_nearest", weights=3, activations=16)
    found = treat(part("hf", model=str(model)), [step], tmp_path / "out")
    assert found.plain
    assert found.difference == 0
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.tensor([[257, *random_model("llama").tokenize(PROBE)]])  # 257 begins a text
    with torch.no_grad():
        logits = plain(ids).logits[0].log_softmax(-1)
    expected = made(model, step)
    took = logits[:-1].gather(1, ids[0, 1:, None])[:, 0]
    np.testing.assert_allclose(took, expected, atol=1e-4)
    assert scores(part("hf", model=str(tmp_path / "out")).load(Rng(0))) == expected


def test_an_edit_at_run_time_opens_with_equipoise_alone(model: Path, tmp_path: Path) -> None:
    step = part("rotate", weights=4, activations=4)
    found = treat(part("hf", model=str(model)), [step], tmp_path / "out")
    assert not found.plain
    assert "while it runs" in found.reason
    assert scores(part("hf", model=str(tmp_path / "out")).load(Rng(0))) == made(model, step)
    with pytest.raises(OSError, match="no file named"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_what_is_asked_is_kept_too(llama: Path, tmp_path: Path) -> None:
    steps = (part("system_prompt", text="Be brief."), part("rotate", weights=8, activations=8))
    found = treat(part("hf", model=str(llama)), steps, tmp_path / "out")
    assert not found.plain
    assert scores(part("hf", model=str(tmp_path / "out")).load(Rng(0))) == made(llama, *steps)


def test_a_treated_folder_can_be_treated_again(llama: Path, tmp_path: Path) -> None:
    first = part("system_prompt", text="Be brief.")
    treat(part("hf", model=str(llama)), [first], tmp_path / "one")
    second = part("rotate", weights=4, activations=8)
    found = treat(part("hf", model=str(tmp_path / "one")), [second], tmp_path / "two")
    assert found.difference == 0
    note = json.loads((tmp_path / "two" / "equipoise_treatment.json").read_text())
    assert [each["treatment"]["class"].rpartition(":")[2] for each in note["steps"]] == [
        "SystemPrompt",
        "Rotate",
    ]


def test_an_edit_that_cannot_follow_is_refused_with_its_reason(llama: Path, tmp_path: Path) -> None:
    steps = [part("rotate"), part("round_to_nearest")]
    with pytest.raises(UsageError, match=r"round_to_nearest edits the linear layers .* rotate"):
        treat(part("hf", model=str(llama)), steps, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_in_use_is_left_alone(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    step = part("round_to_nearest", weights=4, activations=16)
    with pytest.raises(UsageError, match="is there already"):
        treat(part("hf", model=str(llama)), [step], tmp_path / "out")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["mine"]
    treat(part("hf", model=str(llama)), [step], tmp_path / "out", replace=True)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_what_fails_leaves_nothing(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("equipoise.trial.treat._difference", lambda *_: float("nan"))
    step = part("round_to_nearest", weights=4, activations=16)
    with pytest.raises(RunError, match="was not kept"):
        treat(part("hf", model=str(llama)), [step], tmp_path / "out")
    assert {each.name for each in tmp_path.iterdir()} <= {"llama", "cache"}


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', "[1]"])
def test_a_damaged_note_is_one_sentence(llama: Path, tmp_path: Path, text: str) -> None:
    treat(part("hf", model=str(llama)), [part("rotate")], tmp_path / "out")
    (tmp_path / "out" / "equipoise_treatment.json").write_text(text)
    with pytest.raises(UsageError, match=r"equipoise_treatment\.json: (not|of format)"):
        part("hf", model=str(tmp_path / "out")).load(Rng(0))


def test_a_subject_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no language model of transformers"):
        treat(part("linear_layer"), [part("round_to_nearest")], tmp_path / "out")
