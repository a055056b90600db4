"""The edit report: zero for no edit, closed forms for known ones, facts that are counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from equipoise.catalog import part
from equipoise.core import Rng
from equipoise.kit.about import annotate
from equipoise.kit.language.families import FAMILIES, random_model
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.copies import copy_module
from equipoise.methods.language.edit_report import EditReport


def report(windows: int = 3, length: int = 16) -> EditReport:
    return EditReport(part("smollm2"), windows=windows, length=length)


def outcomes(task: EditReport, subject: Any, reference: Any) -> list[Any]:
    return task.contrast(subject, reference, list(task.units(Rng(0))), Rng(0))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_edit_is_no_distance(family: str) -> None:
    live = random_model(family)
    for each in outcomes(report(), live.with_module(copy_module(live.module)), live):
        assert each.scores == {"kl": 0.0, "agreement": 1.0}
        assert each.output["changed"] == 0.0


def test_a_tilt_of_one_token_has_the_closed_form() -> None:
    """Adding c to one logit gives KL = ln(1 - p + p e^c) - c p, with p that token's share."""
    live = random_model("llama", tie_word_embeddings=False)
    tilt, token = 1.5, 65

    class Head(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return found + tilt * nn.functional.one_hot(torch.tensor(token), found.shape[-1])

    module: Any = copy_module(live.module)
    head = Head(32, 259, bias=False)
    head.weight = module.lm_head.weight
    module.lm_head = head
    task = report(windows=1)
    found = outcomes(task, live.with_module(module), live)[0].scores["kl"]
    piece = task._piece(_text(task), next(iter(task.units(Rng(0)))))
    window = torch.tensor(task._window(live, piece))
    with torch.no_grad():
        p = live.module(window[None]).logits[0, 1:].double().softmax(-1)[:, token].numpy()
    expected = np.mean(np.log(1 - p + p * math.exp(tilt)) - tilt * p)
    assert found == pytest.approx(expected, rel=1e-4)


def _text(task: EditReport) -> str:
    from equipoise.kit.data import read_texts

    return "\n\n".join(read_texts(task.data))


def test_windows_are_spread_and_do_not_overlap() -> None:
    task = report(windows=5, length=10)
    text = " ".join(f"word{number:05d}" for number in range(2_000))
    pieces = [task._piece(text, unit) for unit in task.units(Rng(0))]
    assert [piece[:9] for piece in pieces] == [
        "word00000", "word00400", "word00800", "word01200", "word01600",
    ]  # fmt: skip
    assert all(len(task._window(tiny_model(), piece)) == 10 for piece in pieces)
    words = [word for piece in pieces for word in piece.split()[:-1]]
    assert len(words) == len(set(words))


def test_too_short_a_text_is_said(tmp_path: Any) -> None:
    path = tmp_path / "short.txt"
    path.write_text("only a few words")
    task = EditReport(part("smollm2"), windows=2, length=16, data=str(path))
    for each in outcomes(task, tiny_model(), tiny_model()):
        assert each.error_kind == "too_short"
        assert "too short for 2 windows of 16 tokens" in each.error


def test_another_tokenizer_has_facts_and_no_scores() -> None:
    one, two = tiny_model(), tiny_model(1)
    two.tokenize = lambda text: [b + 1 for b in one.tokenize(text)]  # type: ignore[method-assign]
    found = outcomes(report(), two, one)
    assert all(each.status == "ok" and not each.scores for each in found)
    assert found[0].output["bytes"] > 0


def test_remarks_come_along_and_curves_once() -> None:
    live = annotate(tiny_model(), notes=["Stopped."], curves={"loss": [[0, 2.0], [1, 1.0]]})
    found = outcomes(report(), live, tiny_model())
    assert [each.output["notes"] for each in found] == [["Stopped."]] * 3
    assert [bool(each.output["curves"]) for each in found] == [True, False, False]
