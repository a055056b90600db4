"""Parts as JSON that needs no catalogue, and what may not be read as one."""

from __future__ import annotations

import json

import pytest

from equipoise.catalog import part
from equipoise.core import UsageError
from equipoise.kit.recipes import as_recipe, from_recipe


def test_nested_parts_survive() -> None:
    inner = part("perplexity", windows=3)
    outer = part("edit_report", reference=part("smollm2"))
    for each in (inner, outer):
        assert from_recipe(json.loads(json.dumps(as_recipe(each)))) == each


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"class": "os:system", "parameters": {}}, "no part of equipoise"),
        ({"class": "equipoise.methods:__loader__", "parameters": {}}, "no part of equipoise"),
        ({"class": "equipoise.methods.language.hf:Path", "parameters": {}}, "is no part"),
        (
            {"class": "equipoise.methods.language.hf:Nothing", "parameters": {}},
            "not in this version",
        ),
        ({"class": "equipoise.methods.language.no:X", "parameters": {}}, "not installed"),
        (
            {
                "class": "equipoise.methods.quantization.round_to_nearest:RoundToNearest",
                "parameters": {"wait": 4},
            },
            "no parameter wait",
        ),
        ({"parameters": {}}, "no|class"),
        (["x"], "holds a class"),
    ],
)
def test_other_things_are_refused_in_a_sentence(recipe: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_recipe(recipe)
