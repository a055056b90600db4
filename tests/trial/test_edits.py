"""The edit report comes by itself where a module is edited, and treatments that clash do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from equipoise.report import html, markdown
from equipoise.store import Store
from equipoise.trial import file, planning
from equipoise.trial.engine import run
from equipoise.trial.trial import EDIT

TRIAL = """
trial: edits
arms:
  full: []
  near: [{{round_to_nearest: {{weights: 4, activations: 4}}}}]
  asked: [{{system_prompt: "Be brief."}}]
subject: {{hf: {{model: {model}}}}}
tasks:
  prose: {{perplexity: {{windows: 2, length: 32}}}}
{more}
"""


@pytest.fixture
def trial(tmp_path: Path) -> Any:
    from equipoise.kit.language.tiny import tiny_folder

    def made(more: str = "edit_report: {windows: 3, length: 16}") -> Any:
        return file.loads(TRIAL.format(model=tiny_folder(), more=more))

    return made


def test_every_arm_of_an_edited_model_is_looked_at(trial: Any, tmp_path: Path) -> None:
    made = trial()
    assert {arm for arm, task in made.cells() if task == EDIT} == {"full", "near", "asked"}
    result = run(made, store=tmp_path / "s.sqlite").as_json()
    found = {(e["arm"], e["name"]): e["value"] for e in result["estimates"] if e["task"] == EDIT}
    assert found["full", "kl"] == 0.0
    assert found["asked", "agreement"] == 1.0
    assert found["near", "kl"] > 0.01
    assert found["near", "agreement"] < 1.0
    edits = {each["arm"]: each for each in result["edits"]}
    assert edits["full"]["changed"] == 0.0
    assert 0.4 < edits["near"]["changed"] < 0.9  # embeddings and norms stay
    assert edits["near"]["seconds_per_token"] > 0
    assert not [each for each in result["effects"] if each["task"] == EDIT]
    again = run(made, store=tmp_path / "s.sqlite")
    assert again.reused == again.units


def test_pages_show_it(trial: Any, tmp_path: Path) -> None:
    result = run(trial(), store=tmp_path / "s.sqlite").as_json()
    with Store.open(tmp_path / "s.sqlite", readonly=True) as store:
        page = html.render(result, store)
    assert "What the edits did to the model" in page
    assert "KL to reference" in page
    assert page.count("window-0002") == 0  # its windows are no units to read
    assert "What the edits did to the model" in markdown.render(result)


@pytest.mark.parametrize("more", ["edit_report: false", ""])
def test_it_can_be_left_out_and_is_on_by_default(trial: Any, more: str) -> None:
    assert (EDIT in trial(more).tasks) == (not more)


def test_no_edit_no_report(tmp_path: Path) -> None:
    from equipoise.kit.language.tiny import tiny_folder

    text = TRIAL.format(model=tiny_folder(), more="")
    text = text.replace("  near: [{round_to_nearest: {weights: 4, activations: 4}}]\n", "")
    assert EDIT not in file.loads(text).tasks


def test_a_claim_can_be_about_it(trial: Any, tmp_path: Path) -> None:
    more = "edit_report: {windows: 3, length: 16}\nclaims:\n  - {arm: near, above: 0, on: edit}\n"
    more += "  - {arm: near, below: 1.1, on: edit, score: agreement}"
    result = run(trial(more), store=tmp_path / "s.sqlite")
    assert result.claims[0].claim == "near is above 0 on edit"


def test_its_settings_are_checked(trial: Any) -> None:
    with pytest.raises(file.TrialFileError, match="length"):
        trial("edit_report: {length: 1}")


def test_plan_counts_it(trial: Any) -> None:
    assert planning.plan(trial()).todo == 3 * 2 + 3 * 3


def test_treatments_that_clash_fail_when_planned(trial: Any) -> None:
    from equipoise.kit.language.tiny import tiny_folder

    text = TRIAL.format(model=tiny_folder(), more="").replace(
        "near: [{round_to_nearest: {weights: 4, activations: 4}}]",
        "near: [rotate, {round_to_nearest: {weights: 4}}]",
    )
    with pytest.raises(
        file.TrialFileError,
        match=r"5: round_to_nearest edits the linear layers of the model, which rotate before it",
    ):
        file.loads(text)
