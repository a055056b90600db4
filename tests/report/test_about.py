"""What made a result: recipes, costs, provenance."""

import pytest

from equipoise.report._about import cost_tables, facts, part, provenance, recipe


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"smollm2": {}}, "smollm2"),
        ({"hf": {"model": "folder", "device": None, "bits": 0}}, "hf(model=folder, bits=0)"),
        ({"judge": {"subject": {"hf": {"model": "m"}}}}, "judge(subject=hf(model=m))"),
        ({"few_shot": {"rows": [1, 2]}}, "few_shot(rows=[1, 2])"),
        ("text", "text"),
        (None, "null"),
        ({"a": 1, "b": 2}, '{"a": 1, "b": 2}'),
    ],
)
def test_a_part_is_shown_in_a_line(given, said):
    assert part(given) == said


def test_an_arm_is_its_subject_and_then_its_treatments():
    arm = {"subject": {"a": {}}, "treatments": [{"b": {"x": 1}}, {"c": {}}]}
    assert recipe(arm) == ["a", "b(x=1)", "c"]
    assert recipe("imported") == ["imported"]


def cell(arm, task, **more):
    zero = dict.fromkeys(("outcomes", "errors", "attempts", "input_tokens", "output_tokens"), 0)
    return {"arm": arm, "task": task, "dollars": 0.0, "seconds": 0.0} | zero | more


def test_costs_add_up_over_tasks_and_divide_by_attempts():
    costs = [
        cell("a", "s", outcomes=10, attempts=20, seconds=30.0, input_tokens=5, errors=1),
        cell("a", "t", outcomes=5, attempts=5, seconds=0.5, dollars=0.25),
        cell("b", "s", outcomes=0),
    ]
    found = cost_tables({"costs": costs})
    first, second = found["arms"]
    assert (first["outcomes"], first["errors"], first["seconds"]) == (15, 1, 30.5)
    assert first["each"] == "1.2 s"
    assert second["each"] == "–"
    assert [each["each"] for each in found["cells"]] == ["1.5 s", "100.0 ms", "–"]
    assert found["tokens"]
    assert found["dollars"]
    assert cost_tables({"costs": costs[2:]})["cells"] == []
    assert cost_tables({}) is None


def test_provenance_says_what_is_known():
    about = {"command": "equipoise run x", "cores": 2, "memory_gib": 8, "python": "3.11",
             "git": {"commit": "abc", "clean": False}, "versions": {"numpy": "2"}}  # fmt: skip
    said = dict(provenance({"trial": "t", "provenance": about}))
    assert said["Machine"] == "2 cores, 8 GiB memory"
    assert said["Code"] == "commit abc, with changes that are not committed"
    assert said["Versions"] == "numpy 2"
    assert provenance({"trial": "t"}) == [("Trial", "t")]


def test_the_head_says_what_was_reused():
    row = {"errors": 1, "units": 8, "seconds": 1, "reused": 3, "run": 7}
    assert facts(row) == [
        ("Outcomes", "8"),
        ("From earlier runs", "3"),
        ("Errors", "1 (12.5%)"),
        ("This run took", "1.0 s"),
        ("Run", "7"),
    ]


def test_one_parameter_that_is_no_part_is_shown_as_it_is():
    said = part({"sklearn": {"estimator": "Ridge", "parameters": {"alpha": 2}}})
    assert said == 'sklearn(estimator=Ridge, parameters={"alpha": 2})'
    assert part({"just": 3}) == '{"just": 3}'
