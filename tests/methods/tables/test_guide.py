"""The trial of a predictor in docs/guide/data.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from equipoise.kit.data import builtin_names, read_rows
from equipoise.trial import loads, run

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "data.md").read_text(encoding="utf-8")


def test_the_guides_trial(tmp_path):
    text = re.search(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)[1]
    trial = loads(text.replace("builds: 5", "builds: 2"))
    found = run(trial, store=tmp_path / "store.db").as_json()
    assert found["errors"] == 0
    (claim,) = found["claims"]
    assert claim["estimate"] > 0.1  # depth 2 cannot tell ten digits apart
    assert claim["builds"] == 2


def test_the_guides_sets_are_those_there_are():
    rows = dict(re.findall(r"\| `(\w+)` \| .*? \| ([\d,]+) \|", GUIDE))
    assert sorted(rows) == builtin_names()
    for name, count in rows.items():
        if name in ("python_topics", "sklearn_descriptions"):
            continue  # prose grows with the packages that carry it
        assert len(read_rows(f"builtin:{name}")) == int(count.replace(",", ""))
