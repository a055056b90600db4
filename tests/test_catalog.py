import json
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from equipoise.catalog import Catalog, catalog, digest, identity, read_card, recipe
from equipoise.core import Rng, Subject, UsageError, setting
from equipoise.kit.worlds.coins import Coin

CARD = """
title: Mine
summary: Does something.
version: 1
parts:
  mine: task Mine
"""


def write(folder, text, name="mine.yaml"):
    path = folder / "odd" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (CARD.replace("title", "titel"), 'unknown key "titel". Nearest: title'),
        (CARD.replace("version: 1", "version: one"), "version must be an integer, got 'one'"),
        (CARD.replace("task Mine", "chore Mine"), "part mine must be a kind and a class"),
        (CARD.replace("mine: task", "Mine!: task"), 'part id "Mine!" must be lower case'),
        ("title: [", "not a card"),
        ("- a", "a card is a mapping"),
        ("title: x\nsummary: y\nversion: 1", 'the key "parts" is missing'),
    ],
)
def test_a_bad_card_is_one_sentence(tmp_path, text, fault):
    with pytest.raises(UsageError) as caught:
        read_card(write(tmp_path, text))
    assert fault in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_a_part_id_is_unique(tmp_path):
    write(tmp_path, CARD)
    write(tmp_path, CARD, "other.yaml")
    with pytest.raises(UsageError, match="part mine is already on"):
        Catalog([("odd", tmp_path)])


def test_unknown_names_get_the_nearest():
    with pytest.raises(UsageError, match="Nearest: perplexity"):
        catalog().find("perplexty", "task")
    with pytest.raises(UsageError, match="is a task, and a treatment is needed here"):
        catalog().find("perplexity", "treatment")


@dataclass(frozen=True)
class Reads(Subject):
    path: str = setting("x")
    inner: Subject | None = None

    def load(self, rng: Rng):
        return self

    def content(self):
        return {"hash": self.path[:1]}


def test_identity_follows_parameters_and_content_not_settings():
    base = Reads("a-here")
    assert identity(base) == identity(replace(base, path="a-there"))
    assert identity(base) != identity(replace(base, path="b-here"))
    assert identity(replace(base, inner=Coin(0.5))) != identity(replace(base, inner=Coin(0.6)))


def test_identity_is_the_same_in_another_process():
    code = (
        "from equipoise.catalog import identity\n"
        "from equipoise.kit.worlds.coins import Coin\n"
        "print(identity(Coin(0.25)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == identity(Coin(0.25))


def test_digest_does_not_depend_on_key_order():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    json.dumps(recipe(Coin(0.25)))
