import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, UnitError, UsageError
from equipoise.kit.arrays.survival import brier_scores, censoring_curve
from equipoise.methods.survival import Concordance, KaplanMeier, Survival, SurvivalModel
from equipoise.methods.survival.survival import survival_scores

ROWS = "\n".join(
    f"{age},{time},{event},{group}"
    for age, time, event, group in zip(
        range(30, 70), np.linspace(1, 20, 40).round(2), [1, 0, 1, 1] * 10, "ab" * 20, strict=True
    )
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(f"age,months,died,group\n{ROWS}\n")
    return str(path)


class Given:
    def __init__(self, curves):
        self.curves = curves

    def predict_survival(self, inputs, times):
        return self.curves(inputs, times)


def outcomes_of(task, subject, units=None):
    units = units or [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    return units, task.perform(subject, units, Rng(0))


def test_columns_of_any_name_are_read(table):
    task = Survival(table, target="months", event="died", stratum="group", features=("age",))
    unit = next(iter(task.units(Rng(0))))
    assert (unit.content, unit.target, unit.stratum) == ([30.0], [1.0, 1.0], "a")
    assert task.grid() == pytest.approx(np.arange(1, 11) / 10 * np.quantile(
        [unit.target[0] for unit in task.units(Rng(0))], 0.8
    ))  # fmt: skip
    # The event is no feature, named or not.
    with pytest.raises(UsageError, match='"died" cannot be a feature'):
        next(iter(Survival(table, target="months", event="died", features=("died",)).units(Rng(0))))


def test_scores_by_hand():
    times, events, at = [1.0, 3.0, 2.0], [1, 0, 1], [1.0, 2.0]
    curves = np.array([[0.6, 0.2], [0.9, 0.8], [0.7, 0.5]])
    found = survival_scores(times, events, curves, at)
    assert found["brier"] == pytest.approx(
        [0.5 * (0.36 + 0.04), 0.5 * (0.01 + 0.04), 0.5 * (0.09 + 0.25)]
    )
    assert found["brier_at_horizon"] == pytest.approx([0.04, 0.04, 0.25])
    assert found["log_score"] == pytest.approx(-np.log([0.4, 0.8, 0.2]))
    areas = np.array([0.8 + 0.4, 0.95 + 0.85, 0.85 + 0.6])
    assert found["risk"] == pytest.approx(2 - areas)


def test_scores_prefer_the_truth():
    # Under the true curve the mean of each score is better than under one that is off.
    generator = np.random.default_rng(0)
    rate = np.exp(generator.normal(size=8000))
    times, cut = generator.exponential(1 / rate), generator.exponential(1.0, 8000)
    seen, events, at = np.minimum(times, cut), times <= cut, np.array([0.1, 0.4, 1.0])
    scores = [
        survival_scores(seen, events, np.exp(-factor * rate[:, None] * at), at)
        for factor in (1.0, 0.6, 1.7)
    ]
    for name in ("brier", "log_score"):
        right, *wrong = (each[name].mean() for each in scores)
        assert right < min(wrong)


def test_task_scores_a_model(table):
    pytest.importorskip("lifelines")
    task = Survival("builtin:gbsg2", horizon=1500)
    live = SurvivalModel("CoxPHFitter", data=task).load(Rng(0))
    units, outcomes = outcomes_of(task, live)
    inputs = np.array([unit.content for unit in units])
    times, events = np.array([unit.target for unit in units]).T
    curves = live.predict_survival(inputs, task.grid())
    assert task.grid()[-1] == 1500
    every = np.array([unit.target for unit in task.units(Rng(0))])
    expected = brier_scores(times, events, curves, task.grid(), censoring_curve(*every.T))
    assert [each.scores["brier"] for each in outcomes] == pytest.approx(expected.mean(axis=1))
    assert outcomes[0].scores["survival_100"] == pytest.approx(curves[0, -1])
    _, flat = outcomes_of(task, task.constant())
    mean = [np.mean([each.scores["brier"] for each in some]) for some in (outcomes, flat)]
    assert mean[0] < mean[1]
    columns = {name: [each.scores[name] for each in outcomes] for name in ("risk", "time", "event")}
    found = Concordance().measure(Outcomes.of(**columns), Rng(0))
    assert found.low > 0.6


def test_curves_that_are_none_are_failed_units(table):
    task = Survival(table, target="months", event="died", features=("age",))
    units = list(task.units(Rng(0)))[:4]

    def curves(inputs, times):
        found = np.tile(np.linspace(0.9, 0.1, len(times)), (len(inputs), 1))
        found[0, 3], found[1, 0], found[2] = np.nan, 1.2, found[2, ::-1].copy()
        return found

    outcomes = task.perform(Given(curves), units, Rng(0))
    assert [each.status for each in outcomes] == ["error", "error", "error", "ok"]
    assert {each.error_kind for each in outcomes[:3]} == {"garbage"}
    with pytest.raises(UnitError, match=r"shape \(4, 1\) for 4 rows and 10 times"):
        task.perform(Given(lambda inputs, times: np.ones((len(inputs), 1))), units, Rng(0))


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ("1,-2,1", r"row 2|line 2.*\"time\" is -2; times are finite and not negative"),
        ("1,soon,1", '"time" is text; times are numbers'),
        ("1,2,3", '"event" is 3; it must be 1 or true'),
        ("1,2,yes", "\"event\" is 'yes'; it must be 1 or true"),
    ],
)
def test_bad_cells_are_told_with_their_place(tmp_path, cells, sentence):
    path = tmp_path / "bad.csv"
    path.write_text(f"x,time,event\n{cells}\n2,3,0\n")
    with pytest.raises(UsageError, match=sentence):
        list(Survival(str(path)).units(Rng(0)))


def test_bad_horizons_and_tables_without_events_are_refused(tmp_path, table):
    with pytest.raises(UsageError, match="horizon must be above 0"):
        Survival(table, target="months", event="died", horizon=0)
    task = Survival(table, target="months", event="died", features=("age",), horizon=30.0)
    with pytest.raises(UsageError, match=r"no row is followed beyond the horizon 30; .* at most"):
        outcomes_of(task, task.constant())
    path = tmp_path / "none.csv"
    path.write_text("x,time,event\n" + "\n".join(f"{x},{x + 1},0" for x in range(20)))
    with pytest.raises(UsageError, match='"event" is 0 in every row'):
        outcomes_of(Survival(str(path)), Given(None))


def test_horizon_stays_where_rows_are_followed():
    # All that are left at week 52 are lost there, so that nothing is known beyond.
    assert Survival("builtin:rossi").grid()[-1] < 52


# The measures


def columns(n=60, seed=0):
    generator = np.random.default_rng(seed)
    risk = generator.normal(size=n)
    times, cut = generator.exponential(np.exp(-risk)), generator.exponential(2.0, n)
    return {"risk": risk, "time": np.minimum(times, cut), "event": times <= cut}


def test_repeats_of_a_unit_are_a_cluster():
    from dataclasses import replace

    once = Outcomes.of(**columns())
    rows = once.take(np.repeat(np.arange(60), 2))
    twice = replace(rows, repeat=np.tile([0, 1], 60))
    one, two = (Concordance().measure(each, Rng(0)) for each in (once, twice))
    assert two.value == pytest.approx(one.value)
    assert two.high - two.low == pytest.approx(one.high - one.low, rel=1e-6)
    seen = [KaplanMeier(at=0.5).measure(each, Rng(0))["all"] for each in (once, twice)]
    assert seen[0] == seen[1]


def test_gaps_are_counted_or_refused():
    some = columns()
    some["risk"] = np.where(np.arange(60) < 5, np.nan, some["risk"])
    found = Concordance().measure(Outcomes.of(**some), Rng(0))
    assert (found.n, found.note) == (55, "5 of 60 rows have no score and are left out.")
    some["risk"] = np.full(60, np.nan)
    with pytest.raises(UsageError, match="no row has risk, time and event"):
        Concordance().measure(Outcomes.of(**some), Rng(0))
    some["time"] = np.full(60, np.nan)
    with pytest.raises(UsageError, match="no row has time and event"):
        KaplanMeier().measure(Outcomes.of(**some), Rng(0))


def test_figure_shows_strata_and_predicted_curves():
    from dataclasses import replace

    shares = {f"survival_{10 * k}": np.full(60, 1 - 0.09 * k) for k in range(1, 11)}
    rows = Outcomes.of(**columns(), horizon=np.full(60, 2.0), **shares)
    rows = replace(rows, stratum=np.arange(60) % 2, strata=("low", "high"))
    figure = KaplanMeier().figure({"cox": rows, "tree": rows}, Rng(0))
    assert [each.name for each in figure.series] == [
        "observed, low", "observed, high", "cox, predicted", "tree, predicted",
    ]  # fmt: skip
    observed, predicted = figure.series[0], figure.series[2]
    assert (observed.look, observed.x[0], observed.y[0]) == ("step", 0, 1)
    assert all(a <= b <= c for a, b, c in zip(observed.low, observed.y, observed.high, strict=True))
    assert predicted.x == pytest.approx(np.arange(11) / 5)
    assert predicted.y == pytest.approx(1 - 0.09 * np.arange(11))
    table = KaplanMeier().measure(rows, Rng(0))
    assert set(table) == {"low", "high"}
    assert table["low"].details["at"] == 2.0
    short = np.where(rows.stratum == 0, np.minimum(rows.score("time"), 0.3), rows.score("time"))
    table = KaplanMeier().measure(replace(rows, scores={**rows.scores, "time": short}), Rng(0))
    assert table["low"].details["at"] == table["high"].details["at"] == 0.3
    with pytest.raises(UsageError, match=r"followed up to .*; nothing can be said about 99"):
        KaplanMeier(at=99.0).measure(rows, Rng(0))


def test_long_curves_are_thinned():
    some = columns(3000)
    figure = KaplanMeier().figure({"a": Outcomes.of(**some)}, Rng(0))
    (curve,) = figure.series
    assert len(curve.x) < 160
    assert curve.x[-1] == some["time"].max()
