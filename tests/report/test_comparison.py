"""Comparisons and plans in words, on rows worked by hand."""

import io
from xml.etree import ElementTree

from rich.console import Console

from equipoise.report import comparison, power


def row(task="t", value=0.1, says="better", **more):
    return {
        "arm": "b", "versus": "a", "task": task, "score": "x", "value": value,
        "low": value - 0.05, "high": value + 0.05, "level": 0.95, "n": 40, "p_value": 0.01,
        "p_adjusted": 0.02, "says": says, "first_mean": 0.5, "second_mean": 0.5 + value,
        "units_better": 9, "units_worse": 1, "test": "exact McNemar", "lost": 0.0,
        "detectable": 0.08, "more_units": 0, "bounds": [0.0, 1.0],
    } | more  # fmt: skip


def found(*rows, **more):
    return {
        "first": "a.csv", "second": "b.csv", "level": 0.95, "correct": "holm", "overall": [],
        "comparisons": list(rows), "claims": [], "notices": [],
    } | more  # fmt: skip


def printed(given, **more):
    out = io.StringIO()
    comparison.terminal(given, Console(file=out, width=80, markup=False, highlight=False), **more)
    return " ".join(out.getvalue().split())


def test_the_sign_and_the_words_agree():
    assert comparison.sentence(row()) == "b is better than a by 10.0 points (5.0 to 15.0)."
    said = comparison.sentence(row(value=-0.1, says="worse"))
    assert said == "b is worse than a by 10.0 points (5.0 to 15.0)."
    said = comparison.sentence(row(value=0.01, says="unclear"))
    assert said == "b against a: +1.0 points (−4.0 to +6.0), which may be noise."
    said = comparison.sentence(row(value=2.0, low=0.5, high=3.5, bounds=[None, None]))
    assert said == "b is better than a by 2.000 (0.500 to 3.500)."
    assert "no estimate" in comparison.sentence(row() | {"value": None})


def test_what_would_settle_it():
    open_row = row(says="unclear", more_units=1_200)
    assert "about 1,200 more units would settle it" in printed(found(open_row))
    assert "no number of units" in comparison.outlook(row(says="unclear", more_units=None))
    assert "settle" not in comparison.outlook(row())


def test_worse_comes_first_and_noise_is_folded():
    rows = [row(f"n{i}", 0.01 * i, "unclear") for i in range(9)]
    rows += [row("good", 0.3), row("bad", -0.2, "worse"), row("fair", 0.2)]
    names = [each["task"] for each in comparison.ordered(rows)[:3]]
    assert names == ["bad", "good", "fair"]
    said = printed(found(*rows))
    assert "2 better, 1 worse, 9 unclear of 12, after Holm's correction" in said
    assert "9 from +0.0 to +8.0 points may be noise" in said
    assert "n4" not in said
    assert "n4" in printed(found(*rows), everything=True)
    text = comparison.markdown(found(*rows))
    assert text.index("| bad |") < text.index("| good |") < text.index("<details>")
    assert text.index("<details>") < text.index("| n8 |")


def test_several_arms_are_told_apart():
    said = printed(found(row(), row(arm="c")))
    assert said.startswith("b, c against a")
    assert "arm" in said.split("correction:")[1]


def test_the_table_leaves_missing_numbers_empty():
    bare = {key: value for key, value in row(task="s").items() if key != "detectable"}
    overall = {key: value for key, value in row().items() if key != "task"} | {"tasks": 2}
    lines = comparison.table(found(bare, overall=[overall])).splitlines()
    head = lines[0].split(",")
    values = dict(zip(head, lines[2].split(","), strict=True))
    assert (values["task"], values["detectable"], values["value"]) == ("s", "", "0.1")
    assert dict(zip(head, lines[1].split(","), strict=True))["tasks"] == "2"


def plan(name="b beats a on t", **more):
    needs = [{"power": p, "units": n, "units_low": n // 2, "units_high": 2 * n, "tokens": 1e6,
              "seconds": 90, "dollars": 2.5} for p, n in ((0.8, 1_000), (0.9, 1_400))]  # fmt: skip
    return {
        "claim": name, "arm": "b", "relation": "beats", "other": "a", "on": "t", "level": 0.95,
        "assumed": 0.02, "assumed_from": "given", "needs": needs, "notes": ["A note."],
        "curve": [[100, 0.1], [1_000, 0.8], [2_000, 0.99]],
        "planned": {"units": 500, "power": 0.5, "detectable": 0.03},
    } | more  # fmt: skip


def planned(*rows):
    out = io.StringIO()
    power.terminal({"claims": rows}, Console(file=out, width=80, markup=False, highlight=False))
    return " ".join(out.getvalue().split())


def test_a_plan_in_words():
    said = planned(plan())
    assert "for power 0.8: 1,000 units (500 to 2,000), about 1,000,000 tokens, 1 min 30 s" in said
    assert "$2.50 for the arms together" in said
    assert "the planned 500 units have power 0.50, and would show 0.030" in said
    assert "power ▁▇█ from 100 to 2,000 units" in said
    many = planned(*(plan(on=f"task-{i}") for i in range(9)))
    assert many.startswith("b beats a")
    assert "task-8 +0.020 1,000 (500 to 2,000) 1,400" in many


def test_curves_are_an_image_that_trusts_no_name():
    text = power.curves([plan("<script>b</script> & c"), plan()])
    picture = ElementTree.fromstring(text)
    assert picture.get("role") == "img"
    lines = picture.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert "<script" not in text
    first = [tuple(map(float, p.split(","))) for p in lines[0].get("points").split()]
    assert first[0][1] > first[1][1] > first[2][1]  # more power is higher up
