"""`equipoise treat` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from equipoise.cli import main
from equipoise.cli._specs import parse_spec
from equipoise.core import UsageError
from equipoise.kit.language.tiny import tiny_folder


def call(words: list[str]) -> int:
    try:
        main(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("rotate", "rotate"),
        ("rotate()", "rotate"),
        ("rotate(weights=4)", {"rotate": {"weights": 4}}),
        ("system_prompt('a, (b)')", {"system_prompt": "a, (b)"}),
        ("hf(model='f', dtype=bfloat16)", {"hf": {"model": "f", "dtype": "bfloat16"}}),
        ("a(on=true, off=None, x=[1, -2.5])", {"a": {"on": True, "off": None, "x": [1, -2.5]}}),
        ("a(task=b(depth=2))", {"a": {"task": {"b": {"depth": 2}}}}),
        ("{rotate: {weights: 4}}", {"rotate": {"weights": 4}}),
        ("hf:a/b", "hf:a/b"),
    ],
)
def test_parts_as_they_are_typed(text: str, spec: object) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    "text", ["a(1, b=2)", "a(**x)", "a(1, 2)", "a(b=__import__('os').system('x'))", "(", "a(b=)",
             "{a: [}", "a(b=c+d)", "a.b(c=1)"]
)  # fmt: skip
def test_other_things_are_one_sentence(text: str) -> None:
    if text == "(":
        assert parse_spec(text) == "("
        return
    with pytest.raises(UsageError, match="is no part; write"):
        parse_spec(text)


def test_treat_writes_a_folder_with_a_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    trial = tmp_path / "t.yaml"
    trial.write_text(
        f"trial: small\nsubject: {{hf: {{model: {tiny_folder()}}}}}\n"
        "arms: {full: [], near: [{round_to_nearest: {weights: 4, activations: 16}}]}\n"
        "tasks: {prose: {perplexity: {windows: 2, length: 16}}}\n"
        "claims: [{arm: near, no_worse_than: full, on: prose, within: 5}]\n"
        "edit_report: {windows: 2, length: 16}\n"
    )
    call(["run", str(trial), "--quiet", "--json"])
    capsys.readouterr()
    words = [
        "treat",
        f"hf:{tiny_folder()}",
        "--with",
        "round_to_nearest(weights=4, activations=16)",
    ]
    assert call([*words, "--save", "out", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["plain"]
    assert said["difference"] == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: ")
    assert "On trial: small, arm near" in card
    assert "near is no worse than full on prose" in card
    assert "weights changed" in card
    assert call([*words, "--save", "out"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_mistakes_are_told_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (["smollm3", "--with", "rotate"], 'No subject "smollm3"'),
        (["smollm2", "--with", "rotat"], "Nearest: rotate"),
        (["smollm2", "--with", "rotate(weights=99)"], "weights must be"),
        (["smollm2", "--with", "perplexity"], "is a task, and a treatment is needed"),
        (["hf:nowhere/at/all", "--with", "rotate"], "no such folder"),
    ):
        assert call(["treat", *words, "--save", "out"]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
