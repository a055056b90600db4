"""Two sides to effects: what is paired, what is said, and the level of what is found."""

import math
from dataclasses import replace

import numpy as np
import pytest

from equipoise.core import Outcomes, ScoreSpec, UsageError
from equipoise.kit.statistics import paired_difference
from equipoise.trial.comparison import claimed, compare
from equipoise.trial.sides import Cell, Side, run_side

PASS = ScoreSpec("correct", True, 0.0, 1.0)


def cell(values, ids=None, clusters=None, spec=PASS, imported=True, **more):
    """Return a cell with a unit a value."""
    n = len(values)
    ids = [f"u{i}" for i in range(n)] if ids is None else ids
    found = Outcomes.of(**{spec.name: values}, specs=[spec], cluster=clusters)
    if more:
        found = replace(found, **{name: np.asarray(value) for name, value in more.items()})
    names = [None] * n if clusters is None else list(map(str, clusters))

    def units(numbers):
        return [ids[i] for i in numbers.tolist()], [names[i] for i in numbers.tolist()]

    return Cell(object(), lambda: found, units, lambda unit: {"output": f"said {unit}"},
                dict, imported)  # fmt: skip


def side(name, arm="m", **tasks):
    return Side(name, {arm: tasks})


def test_units_are_paired_by_id_whatever_their_order():
    a = side("a", quiz=cell([1.0, 0, 0, 1], ids=["x", "y", "z", "only-a"]))
    b = side("b", quiz=cell([1.0, 1, 0], ids=["z", "y", "x"]))
    found = compare(a, b)
    (row,) = found.rows
    assert (row["n"], row["only_first"], row["only_second"]) == (3, 1, 0)
    assert (row["units_better"], row["units_worse"]) == (2, 1)
    assert row["value"] == pytest.approx(1 / 3)
    assert (row["first_mean"], row["second_mean"]) == pytest.approx((1 / 3, 2 / 3))
    assert found.notices == ["b lacks 1 unit of the other; the shared ones are compared."]
    assert (row["arm"], row["versus"]) == ("m (b)", "m (a)")


def test_binary_scores_get_mcnemar_and_clusters_get_flips():
    x, y = np.zeros(40), np.array([1.0] * 9 + [0] * 31)
    (row,) = compare(side("a", t=cell(x)), side("b", t=cell(y))).rows
    assert (row["test"], row["method"]) == ("exact McNemar", "tango")
    assert row["p_value"] == pytest.approx(2 * 0.5**9)
    groups = np.arange(40) // 4
    clustered = side("a", t=cell(x, clusters=groups)), side("b", t=cell(y, clusters=groups))
    (row,) = compare(*clustered).rows
    assert (row["test"], row["clusters"]) == ("sign flips of clusters", 10)
    assert row["p_value"] == paired_difference(y, x, clusters=groups).p_value


def test_repeats_that_do_not_match_are_averaged():
    a = side("a", t=cell([1.0, 0, 1, 0], ids=["u", "v"], unit=[0, 0, 1, 1], repeat=[0, 1, 0, 1]))
    b = side("b", t=cell([1.0, 1], ids=["u", "v"]))
    found = compare(a, b)
    assert found.rows[0]["value"] == pytest.approx(0.5)
    assert "Repeats do not match in task t" in found.notices[0]


def test_repeats_that_match_are_paired_as_a_trial_pairs_them():
    rng = np.random.default_rng(0)
    unit, repeat = np.repeat(np.arange(30), 3), np.tile(np.arange(3), 30)
    ids = [f"u{i}" for i in range(90)]
    x, y = rng.integers(0, 2, (2, 90)).astype(float)
    a, b = (
        side(name, t=cell(values, ids=ids, unit=unit, repeat=repeat))
        for name, values in (("a", x), ("b", y))
    )
    (row,) = compare(a, b).rows
    wanted = paired_difference(y, x, units=unit)
    assert (row["low"], row["p_value"]) == pytest.approx((wanted.low, wanted.p_value), abs=0.01)


def test_tasks_and_scores_that_do_not_match_are_named():
    other = ScoreSpec("correct", False, 0.0, 1.0)
    wide = ScoreSpec("correct", True, 0.0, 10.0)
    plain = [0.0, 1, 1, 0]
    a = side("a", s=cell(plain), t=cell(plain), u=cell(plain), only=cell(plain))
    b = side("b", s=cell(plain), t=cell(plain, spec=other), u=cell(plain, spec=wide))
    found = compare(a, b)
    assert [row["task"] for row in found.rows] == ["s", "u"]
    said = " ".join(found.notices)
    assert "Only a has task only." in said
    assert "correct of t is not compared: more is better on one side, less is better" in said
    assert "correct of u has bounds 0 to 1 on one side and bounds 0 to 10 on the other" in said
    assert "There is no overall correct" in said
    with pytest.raises(UsageError, match="no task with common units"):
        compare(side("a", s=cell(plain)), side("b", other=cell(plain)))


def test_tasks_that_trials_set_up_differently_are_not_compared():
    a, b = (side(n, s=cell([1.0, 0], imported=False)) for n in "ab")
    with pytest.raises(UsageError, match="set it up differently"):
        compare(a, b)


def test_a_unit_in_two_clusters_is_refused():
    a = side("a", s=cell([1.0, 0, 1], clusters=["p", "p", "q"]))
    b = side("b", s=cell([1.0, 0, 1], clusters=["p", "q", "q"]))
    with pytest.raises(
        UsageError, match=r'Unit "u1" of task .* is in cluster p in a and in q in b'
    ):
        compare(a, b)


def test_clusters_of_one_side_count_for_both():
    a = side("a", s=cell([1.0, 0, 1, 0, 1, 1], clusters=["p", "p", "q", "q", "r", "r"]))
    (row,) = compare(a, side("b", s=cell([0.0, 0, 1, 0, 0, 1]))).rows
    assert row["clusters"] == 3


def test_less_is_better_turns_the_effect_but_not_the_means():
    loss = ScoreSpec("loss", False)
    a, b = (side(n, s=cell(v, spec=loss)) for n, v in (("a", [1.0, 2, 3]), ("b", [0.5, 1, 3])))
    (row,) = compare(a, b).rows
    assert row["value"] == pytest.approx(0.5)
    assert row["second_mean"] < row["first_mean"]
    assert row["units_better"] == 2


def test_overall_counts_each_task_once_and_knows_shared_clusters():
    rng = np.random.default_rng(1)
    small, large = rng.normal(size=20), rng.normal(size=200)
    free = ScoreSpec("x")
    groups = [np.arange(20) // 4, np.arange(200) // 40]

    def sides(names):
        a = side("a", s=cell(small, clusters=names[0], spec=free),
                 t=cell(large, clusters=names[1], spec=free))  # fmt: skip
        b = side("b", s=cell(small + 1, spec=free), t=cell(large + rng.normal(size=200), spec=free))
        return compare(a, b)

    (row,) = sides([[f"c{g}" for g in each] for each in groups]).overall
    assert (row["tasks"], row["n"], row["clusters"]) == (2, 220, 5)
    (row,) = sides(
        [[f"{t}{g}" for g in each] for t, each in zip("st", groups, strict=True)]
    ).overall
    assert row["clusters"] == 10
    assert row["value"] == pytest.approx(0.5, abs=0.2)


def test_a_task_of_one_unit_is_left_out_of_overall():
    free = ScoreSpec("x")
    a, b = (side(n, s=cell([v, 1.0, 2], spec=free), t=cell([v, 3.0], spec=free),
                 lone=cell([v], spec=free)) for n, v in (("a", 0.0), ("b", 1.0)))  # fmt: skip
    found = compare(a, b)
    assert found.overall[0]["tasks"] == 2
    assert "leaves out task lone" in " ".join(found.notices)


def test_corrections():
    rng = np.random.default_rng(2)
    tasks = {f"t{i}": cell(rng.normal(size=12), spec=ScoreSpec("x")) for i in range(6)}
    others = {f"t{i}": cell(rng.normal(0.9, 1, size=12), spec=ScoreSpec("x")) for i in range(6)}
    p = {}
    for how in ("none", "bh", "holm"):
        found = compare(side("a", **tasks), side("b", **others), correct=how)
        p[how] = np.array([row["p_adjusted"] for row in found.rows])
        raw = np.array([row["p_value"] for row in found.rows])
    assert (p["none"] == raw).all()
    assert (p["none"] <= p["bh"]).all()
    assert (p["bh"] <= p["holm"]).all()
    assert (p["bh"] < p["holm"]).any()


def test_claims_exit_as_verdicts_do():
    rng = np.random.default_rng(3)
    free = ScoreSpec("x")
    x = [rng.normal(size=200) for _ in range(3)]
    a = side("a", **{f"t{i}": cell(v, spec=free) for i, v in enumerate(x)})
    b = side("b", **{f"t{i}": cell(v - 0.1 + rng.normal(0, 0.1, 200), spec=free)
                     for i, v in enumerate(x)})  # fmt: skip
    found = compare(a, b)
    assert (found.verdict, found.exit_code) == (None, 0)
    assert len(found.worse) == 4
    for relation, margin, code in (
        ("no_worse_than", 0.2, 0), ("no_worse_than", 0.05, 1), ("beats", 0.0, 1),
        ("matches", 0.2, 0), ("no_worse_than", 0.1, 3),
    ):  # fmt: skip
        assert claimed(found, relation, margin).exit_code == code, (relation, margin)
    each = claimed(found, "no_worse_than", 0.2, "each").claims
    assert [len(each), each[0].estimate.level] == [3, pytest.approx(1 - 0.05 / 3)]
    (one,) = claimed(found, "no_worse_than", 0.2, "t1").claims
    assert one.parts["on"] == "t1"
    with pytest.raises(UsageError, match="Nearest: t1"):
        claimed(found, "no_worse_than", 0.2, "t11")
    for relation, margin in (("matches", 0.0), ("beats", math.nan)):
        with pytest.raises(UsageError, match="needs a margin"):
            claimed(found, relation, margin)


def test_a_claim_over_tasks_that_several_builds_link_is_refused():
    build, values = np.repeat(np.arange(2), 4), np.tile([0.0, 1, 1, 0], 2)
    ids = [f"u{i}" for i in range(4)]

    def both():
        made = cell(values, ids=ids, unit=np.tile(np.arange(4), 2), build=build)
        return {"s": made, "t": made}

    found = compare(side("a", **both()), side("b", **both()))
    assert found.overall == []
    with pytest.raises(UsageError, match="no overall correct: several builds link the tasks"):
        claimed(found, "beats", 0.0)
    assert len(claimed(found, "beats", 0.0, "each").claims) == 2


def test_an_arm_is_not_compared_with_itself():
    both = Side("a", {"m": {"t": cell([1.0, 0])}, "n": {"t": cell([1.0, 0])}})
    for other in (None, "m"):
        with pytest.raises(UsageError, match="Name two arms of a"):
            compare(both, both, arm="m", other=other)


def test_a_run_that_its_scores_ended_is_said_to_be_one():
    for result, said in (({"allocation": {"units": 1}}, 1), ({"status": "early"}, 1), (None, 0)):
        made = run_side(None, {"id": 3, "covers": [], "result": result})
        assert len(made.notices) == said


def test_flips_show_both_answers_up_and_down():
    a, b = side("a", s=cell([1.0, 0, 0, 1])), side("b", s=cell([0.0, 1, 1, 1]))
    flips = compare(a, b).flips(1)
    assert [(each["unit"], each["difference"]) for each in flips] == [("u1", 1.0), ("u0", -1.0)]
    assert flips[0]["second"]["output"] == "said u1"


def null_sides(rng, tasks, clusters, size, better=0, shift=0.0):
    """Return two arms that differ in the first tasks only, answers alike within clusters."""
    sides = {"a": {}, "b": {}}
    for t in range(tasks):
        groups = np.repeat(np.arange(clusters), size)
        names = [f"{t}-{g}" for g in groups]
        level = rng.normal(size=clusters)[groups]
        for name in sides:
            own = rng.normal(0, 0.7, clusters)[groups] + rng.normal(size=groups.size)
            extra = shift if name == "b" and t < better else 0.0
            passed = (level + own + extra > 0).astype(float)
            sides[name][f"t{t}"] = cell(passed, clusters=names)
    return side("a", **sides["a"]), side("b", **sides["b"])


@pytest.mark.parametrize("correct", ["holm", "bh"])
def test_arms_that_are_alike_are_told_apart_no_oftener_than_the_level(correct):
    rng = np.random.default_rng(4)
    runs, any_found, overall = 1_200, 0, 0
    for _ in range(runs):
        found = compare(*null_sides(rng, tasks=6, clusters=12, size=4), correct=correct)
        any_found += any(row["says"] != "unclear" for row in found.rows)
        overall += found.overall[0]["says"] != "unclear"
    # Under no difference anywhere the false discovery rate is the family-wise rate.
    slack = 3.5 * np.sqrt(0.05 * 0.95 / runs)
    assert any_found / runs <= 0.05 + slack
    assert overall / runs <= 0.05 + slack
    assert overall > 0


def test_the_share_of_false_findings_stays_below_the_level():
    rng = np.random.default_rng(5)
    shares, hits, runs = [], 0, 600
    for _ in range(runs):
        sides = null_sides(rng, tasks=8, clusters=12, size=6, better=4, shift=1.5)
        found = [row["task"] for row in compare(*sides, correct="bh").rows
                 if row["says"] != "unclear"]  # fmt: skip
        false = sum(task in ("t4", "t5", "t6", "t7") for task in found)
        shares.append(false / max(1, len(found)))
        hits += len(found) - false
    assert hits > runs  # it does find what is there
    assert np.mean(shares) <= 0.05 + 3.5 * np.std(shares) / np.sqrt(runs)
