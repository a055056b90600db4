"""The engine on coins: resume, failures, executors, budgets, levels."""

import numpy as np
import pytest

from equipoise.core import UsageError
from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.store import Store
from equipoise.trial.engine import Interrupted, run
from equipoise.trial.executors import Local, Processes
from equipoise.trial.trial import Arm, Budget, Claim, Trial


def coins(p=0.5, q=0.6, *, tosses=300, **more):
    task = more.pop("task", None) or Tosses(tosses)
    return Trial(
        "coins",
        {"a": Arm(Coin(p)), "b": Arm(Coin(q))},
        {"toss": task},
        more.pop("claims", [Claim("b", "beats", "a", "toss")]),
        **more,
    )


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.sqlite"


def scores(place, run_number=1):
    with Store.open(place, readonly=True) as store:
        rows = store.rows(run_number, limit=None)
    return {(r["arm"], r["unit"], r["repeat"], r["build"]): r["scores"] for r in rows}


def test_a_trial_gives_a_verdict_an_interval_and_its_units(place):
    result = run(coins(0.3, 0.7), store=place)
    (claim,) = result.claims
    assert (claim.verdict, result.exit_code) == ("supported", 0)
    assert abs(claim.estimate.value - 0.4) < 0.13  # over three standard errors
    assert claim.estimate.low > 0.2
    assert (result.units, result.errors, result.reused) == (600, 0, 0)
    assert len(scores(place)) == 600


def test_a_finished_trial_answers_from_the_store(place):
    first, second = (run(coins(), store=place) for _ in range(2))
    assert second.reused == second.units
    assert [c.as_json() for c in first.claims] == [c.as_json() for c in second.claims]


def test_an_added_arm_runs_alone(place):
    run(coins(), store=place)
    trial = coins()
    trial = Trial("coins", {**trial.arms, "c": Arm(Coin(0.9))}, trial.tasks, trial.claims)
    result = run(trial, store=place)
    assert (result.units, result.reused) == (900, 600)


def test_more_units_add_to_those_there(place):
    run(coins(units=50), store=place)
    result = run(coins(units=120), store=place)
    assert (result.units, result.reused) == (240, 100)


def test_another_seed_is_another_trial(place):
    run(coins(), store=place)
    assert run(coins(seed=1), store=place).reused == 0


class Stopping(Local):
    """Stops by hand after some shards."""

    def __init__(self, after):
        self.after = after

    def run(self, shards, on_outcome=None):
        for index, each in enumerate(super().run(shards, on_outcome)):
            yield each
            if index + 1 == self.after:
                raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_to_the_same_result(place, tmp_path):
    for _ in range(3):
        with pytest.raises(Interrupted, match="the same command goes on from here"):
            run(coins(tosses=500), store=place, executor=Stopping(2))
    result = run(coins(tosses=500), store=place)
    assert 0 < result.reused < result.units
    whole = run(coins(tosses=500), store=tmp_path / "other.sqlite")
    assert [c.as_json() for c in result.claims] == [c.as_json() for c in whole.claims]
    assert scores(place, 4) == scores(tmp_path / "other.sqlite")


def test_executors_change_nothing(place, tmp_path):
    one = run(coins(), store=place)
    two = run(coins(), store=tmp_path / "two.sqlite", executor=Processes(2))
    assert [c.as_json() for c in one.claims] == [c.as_json() for c in two.claims]
    assert scores(place) == scores(tmp_path / "two.sqlite")


def test_a_failing_unit_is_an_outcome_and_its_neighbours_live(place):
    result = run(coins(task=Tosses(300, fails=0.1)), store=place)
    assert 20 < result.errors < 120
    with Store.open(place, readonly=True) as store:
        bad = store.rows(1, where={"status": "error"}, limit=None)
    assert len(bad) == result.errors
    assert {row["error_kind"] for row in bad} == {"lost"}


def test_an_arm_cannot_win_by_crashing(place):
    # Failures count as the worst value, for a bounded score.
    task = Tosses(400, fails=0.3)
    result = run(coins(0.9, 0.9, task=task), store=place)
    means = [row.estimate.value for row in result.estimates]
    assert all(abs(mean - 0.63) < 0.08 for mean in means)


def test_lost_pairs_withhold_the_verdict_for_an_unbounded_score(place):
    claims = [Claim("b", "beats", "a", "toss", score="loss")]
    result = run(coins(0.1, 0.9, task=Tosses(300, fails=0.1), claims=claims), store=place)
    assert result.claims[0].verdict == "inconclusive"
    assert "lost to errors" in result.claims[0].reason


def test_errors_alone_are_tried_again(place):
    trial = coins(task=Tosses(100, fails=0.2))
    first = run(trial, store=place)
    second = run(trial, store=place)
    assert second.reused == second.units - first.errors


def test_the_direction_of_a_score_decides_who_is_better(place):
    claims = [
        Claim("b", "beats", "a", "toss", score="loss"),
        Claim("a", "below", 0.9, "toss", score="loss"),
    ]
    result = run(coins(0.2, 0.9, claims=claims), store=place)
    assert [claim.verdict for claim in result.claims] == ["supported", "supported"]


def test_repeats_are_averaged_within_a_unit(place):
    result = run(coins(repeats=4, tosses=100), store=place)
    assert result.units == 800
    assert result.claims[0].estimate.n == 100


def test_clusters_widen_the_interval(place, tmp_path):
    wide = run(coins(task=Tosses(400, per_cluster=20)), store=place)
    narrow = run(coins(task=Tosses(400)), store=tmp_path / "n.sqlite")
    assert wide.claims[0].estimate.clusters == 20
    width = [r.claims[0].estimate.high - r.claims[0].estimate.low for r in (wide, narrow)]
    assert width[0] > 2 * width[1]


def test_a_budget_ends_a_run_cleanly_and_it_goes_on(place):
    trial = coins(tosses=500, budget=Budget(units=200))
    result = run(trial, store=place)
    assert result.status == "budget"
    assert 200 <= result.units < 1000
    assert run(coins(tosses=500), store=place).units == 1000


def test_a_trial_that_cannot_work_writes_nothing(place):
    with pytest.raises(UsageError, match='No task "tos"'):
        run(coins(claims=[Claim("b", "beats", "a", "tos")]), store=place)
    assert not place.exists()


def test_equal_coins_differ_no_oftener_than_the_level(tmp_path):
    # 200 A/A trials; more than 18 would come once in 150 such tests at 5 %.
    found = 0
    with Store.open(tmp_path / "aa.sqlite") as store:
        for seed in range(200):
            trial = coins(0.5, 0.5000001, tosses=40, seed=seed)
            found += run(trial, store=store).claims[0].verdict != "inconclusive"
    assert found <= 18


def test_early_stopping_ends_when_all_is_decided(place):
    trial = coins(0.2, 0.8, tosses=2000, stop="early")
    result = run(trial, store=place)
    assert result.status == "early"
    assert result.claims[0].verdict == "supported"
    assert result.units < 1000
    steps = result.sequences[0]["steps"]
    assert np.all(np.diff([step["n"] for step in steps]) > 0)


def test_early_stopping_resumes_to_the_same_end(place, tmp_path):
    trial = coins(0.35, 0.65, tosses=1500, stop="early")
    with pytest.raises(Interrupted):
        run(trial, store=place, executor=Stopping(1))
    result = run(trial, store=place)
    other = run(trial, store=tmp_path / "o.sqlite")
    assert result.units == other.units
    assert result.claims[0].as_json() == other.claims[0].as_json()


@pytest.mark.slow
def test_early_stopping_keeps_its_level(tmp_path):
    found = 0
    with Store.open(tmp_path / "aa.sqlite") as store:
        for seed in range(60):
            trial = coins(0.5, 0.5000001, tosses=200, seed=seed, stop="early")
            found += run(trial, store=store).claims[0].verdict != "inconclusive"
    assert found <= 8


def test_early_stopping_says_what_it_cannot_do(place):
    with pytest.raises(UsageError, match="needs claims"):
        run(coins(claims=[], stop="early"), store=place)


def test_early_stopping_keeps_clusters_whole(place):
    task = Tosses(1200, per_cluster=7)
    result = run(coins(0.2, 0.8, task=task, stop="early"), store=place)
    assert result.status == "early"
    # Every look saw whole clusters: one value for each, none twice.
    assert result.units % 2 == 0
    assert result.sequences[0]["steps"][-1]["n"] == -(-result.units // 2 // 7)


def test_an_arm_of_which_nothing_works_gets_no_verdict(place):
    claims = [Claim("b", "beats", "a", "toss"), Claim("b", "above", 0.5, "toss")]
    result = run(coins(task=Tosses(60, fails=1.0), claims=claims), store=place)
    assert {claim.verdict for claim in result.claims} == {"inconclusive"}
    assert "every unit of an arm failed" in result.claims[0].reason
    assert result.first_error == "lost: The coin fell off the table."
    assert result.exit_code == 4


def test_what_a_budget_left_undone_is_no_loss(place):
    # The budget ends the run inside a block, before the second arm was asked.
    claims = [Claim("b", "beats", "a", "toss", score="loss")]
    trial = coins(tosses=600, claims=claims, stop="early", budget=Budget(units=96))
    result = run(trial, store=place)
    assert result.status == "budget"
    assert result.sequences[0]["lost"] == 0
    assert result.sequences[0]["steps"][-1]["n"] >= 32


def test_a_claim_whose_arm_was_never_asked_is_open_and_says_so(place):
    claims = [Claim("b", "beats", "a", "toss"), Claim("b", "above", 0.5, "toss")]
    result = run(coins(tosses=500, claims=claims, budget=Budget(units=32)), store=place)
    assert result.status == "budget"
    assert {claim.verdict for claim in result.claims} == {"inconclusive"}
    assert {claim.reason for claim in result.claims} == {"not one unit of this claim was done"}


def test_a_measure_that_refuses_leaves_its_claim_open(place):
    from equipoise.catalog import part

    few = part("pass_at_k", k=5)  # needs five repeats, and there is one
    result = run(coins(claims=[Claim("b", "above", 0.5, "toss", measure=few)]), store=place)
    assert result.claims[0].verdict == "inconclusive"
    assert "pass" in result.claims[0].reason.lower()
    assert result.units == 600
