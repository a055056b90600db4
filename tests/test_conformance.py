"""Every carded part passes every check of its kind."""

import pytest

from equipoise.catalog import catalog
from equipoise.checks import checks_for, verify

CASES = [
    pytest.param(entry, check, id=f"{entry.id}-{check.name}")
    for entry in catalog()
    for check in checks_for(entry.kind)
]


@pytest.mark.parametrize(("entry", "check"), CASES)
def test_part(entry, check):
    verify(entry, check)
