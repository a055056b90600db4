from equipoise.kit.worlds.coins import Coin, Tosses
from equipoise.trial.engine import run
from equipoise.trial.planning import plan
from equipoise.trial.trial import Arm, Claim, Trial


def coins(**more):
    arms = {"a": Arm(Coin(0.5)), "b": Arm(Coin(0.6))}
    return Trial("coins", arms, {"toss": Tosses(100)}, [Claim("b", "beats", "a", "toss")], **more)


def test_a_plan_before_anything_ran_writes_nothing(tmp_path):
    place = tmp_path / "store.sqlite"
    found = plan(coins(), store=place)
    assert (found.todo, found.as_json()["seconds"]) == (200, None)
    assert not place.exists()


def test_a_plan_knows_what_is_done_and_reckons_the_rest(tmp_path):
    place = tmp_path / "store.sqlite"
    run(coins(units=40), store=place)
    found = plan(coins(), store=place)
    assert found.todo == 120
    assert [cell.done for cell in found.cells] == [40, 40]
    assert found.as_json()["seconds"] > 0


def test_an_arm_that_never_ran_is_reckoned_by_its_task(tmp_path):
    place = tmp_path / "store.sqlite"
    run(coins(), store=place)
    trial = coins()
    more = Trial("coins", {**trial.arms, "c": Arm(Coin(0.9))}, trial.tasks, trial.claims)
    cell = plan(more, store=place).cells[-1]
    assert (cell.arm, cell.total, cell.done) == ("c", 100, 0)
    assert cell.seconds > 0


def test_repeats_and_arms_that_do_some_tasks_only_are_counted():
    arms = {"a": Arm(Coin(0.5)), "b": Arm(Coin(0.6), tasks=("short",))}
    trial = Trial("two", arms, {"toss": Tosses(100), "short": Tosses(10)}, repeats=3)
    cells = [(c.arm, c.task, c.total) for c in plan(trial, store="no-such-store").cells]
    assert cells == [("a", "toss", 300), ("a", "short", 30), ("b", "short", 30)]
