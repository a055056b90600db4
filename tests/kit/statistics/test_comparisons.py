"""Comparisons as columns, from plain lists and between the arms of a trial."""

import numpy as np
import pytest

from equipoise.core import Outcomes, Rng, ScoreSpec, UsageError
from equipoise.kit.statistics.comparisons import Comparisons, Rates
from equipoise.methods.evaluation.pairwise_ratings import BradleyTerryRatings


def test_columns_and_wins():
    met = Comparisons.of(
        ["b", "a", "c", "b"], ["a", "b", "a", "a"], [1, 0.25, 0.5, 0],
        prompt=["q", "p", "p", "q"], cluster=[7, 7, 9, 9],
    )  # fmt: skip
    assert met.models == ("a", "b", "c")
    assert met.first.tolist() == [1, 0, 2, 1]
    assert met.second.tolist() == [0, 1, 0, 0]
    assert (met.prompts, met.prompt.tolist()) == (("p", "q"), [1, 0, 0, 1])
    assert met.cluster.tolist() == [0, 0, 1, 1]
    assert len(met) == 4
    assert met.wins().tolist() == [[0, 1.25, 0.5], [1.75, 0, 0], [0.5, 0, 0]]
    assert met.wins().sum() == 4


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ((["a"], ["b"], []), "one length"),
        (([], [], []), "there is not one"),
        ((["a"], ["b"], [1.5]), "from 0"),
        ((["a"], ["b"], [np.nan]), "from 0"),
        ((["a", "b"], ["b", "b"], [1, 1]), "b is compared with itself"),
    ],
)
def test_faults(columns, sentence):
    with pytest.raises(UsageError, match=sentence):
        Comparisons.of(*columns)


def outcomes(unit, score, *, spec=None, cluster=None, build=None, repeat=None):
    n = len(unit)
    found = Outcomes.of(q=np.asarray(score, float), cluster=cluster, specs=[spec] if spec else ())
    return Outcomes(
        np.asarray(unit), found.scores, found.failed,
        np.zeros(n, int) if build is None else np.asarray(build),
        np.zeros(n, int) if repeat is None else np.asarray(repeat),
        found.cluster, specs=found.specs,
    )  # fmt: skip


def rows(met):
    return {
        (met.models[i], met.models[j], met.prompts[p], s)
        for i, j, p, s in zip(met.first, met.second, met.prompt, met.score, strict=True)
    }


def test_arms_are_compared_on_what_they_share():
    met = Comparisons.between_arms(
        {
            "x": outcomes([0, 1, 2], [1, 0, np.nan]),
            "y": outcomes([2, 1, 0], [1, 0, 0]),
            "z": outcomes([1, 5], [1, 1]),
        },
        "q",
    )
    assert rows(met) == {("x", "y", "0", 1.0), ("x", "y", "1", 0.5), ("x", "z", "1", 0.0),
                         ("y", "z", "1", 0.0)}  # fmt: skip


def test_lower_scores_win_where_they_are_better():
    spec = ScoreSpec("q", higher_is_better=False)
    arms = {"x": outcomes([0], [1], spec=spec), "y": outcomes([0], [2], spec=spec)}
    assert Comparisons.between_arms(arms, "q").score.tolist() == [1.0]


def test_builds_and_repeats_meet_their_like():
    x = outcomes([0, 0, 0], [1, 1, 0], build=[0, 1, 0], repeat=[0, 0, 1])
    y = outcomes([0, 0, 0], [0, 1, 1], build=[0, 1, 0], repeat=[0, 0, 1])
    met = Comparisons.between_arms({"x": x, "y": y}, "q")
    assert sorted(met.score.tolist()) == [0, 0.5, 1]
    assert len(set(met.prompt.tolist())) == len(set(met.cluster.tolist())) == 1


def test_clusters_of_the_task_are_kept():
    x = outcomes([0, 1, 2], [1, 1, 0], cluster=["u", "u", "v"])
    y = outcomes([0, 1, 2], [0, 1, 1], cluster=["u", "u", "v"])
    met = Comparisons.between_arms({"x": x, "y": y}, "q")
    assert met.cluster.tolist() == [0, 0, 1]
    assert met.prompt.tolist() == [0, 1, 2]


def test_what_cannot_be_compared():
    with pytest.raises(UsageError, match="one arm cannot be compared"):
        Comparisons.between_arms({"x": outcomes([0], [1])}, "q")
    with pytest.raises(UsageError, match="there is not one"):
        Comparisons.between_arms({"x": outcomes([0], [1]), "y": outcomes([1], [1])}, "q")


def test_a_measure_that_rates_is_known_by_it():
    measure = BradleyTerryRatings()
    assert isinstance(measure, Rates)
    assert not isinstance(object(), Rates)
    assert set(measure.rate(Comparisons.of(["a", "b"], ["b", "a"], [1, 1]), Rng(0))) == {"a", "b"}
