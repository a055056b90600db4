import shutil
from pathlib import Path

import pytest

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
