"""The package: names load when asked for, cards and classes agree."""

import subprocess
import sys

import pytest

import equipoise.methods.evaluation as evaluation
from equipoise.catalog import catalog, identity
from equipoise.core import Part

PARTS = [entry for entry in catalog() if entry.card.field == "evaluation"]


def test_every_name_is_a_function_however_often_it_is_asked_for():
    for _ in range(2):
        for name in evaluation.__all__:
            assert callable(getattr(evaluation, name)), name
    with pytest.raises(AttributeError):
        evaluation.nothing  # noqa: B018


def test_importing_the_package_loads_no_heavy_library():
    code = (
        "import sys, equipoise.methods.evaluation as e; e.mean; e.judge_report; e.auroc;"
        "print([m for m in ('torch', 'polars', 'sklearn', 'scipy.stats') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("entry", PARTS, ids=lambda entry: entry.id)
def test_cards_and_classes_agree(entry):
    cls = entry.load()
    assert issubclass(cls, Part)
    small = cls.tiny()
    assert identity(small) == identity(cls.tiny())
    assert "Parameters" in (cls.__doc__ or "") or not cls.__dataclass_fields__
    assert "Examples" in (cls.__doc__ or "")
