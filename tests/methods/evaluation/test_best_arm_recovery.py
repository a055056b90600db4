"""The task: matrices with known truth from three sources, and scores by hand."""

import numpy as np
import polars as pl
import pytest

from equipoise.core import Rng, UsageError
from equipoise.methods.evaluation import ScoreMatrix, read_score_matrix
from equipoise.methods.evaluation._score_matrices import digit_pipelines, item_responses
from equipoise.methods.evaluation.adaptive_evaluation import (
    FilledSubset,
    RowMeanImputation,
    UCBELRFPolicy,
    UCBEPolicy,
)
from equipoise.methods.evaluation.best_arm_recovery import BestArmRecovery


def play(policy, task):
    """Return the scores of all draws, as columns."""
    rows = [o.scores for o in task.perform(policy, task.units(Rng(0)), Rng(0))]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize(
    "policy",
    [UCBEPolicy(), UCBELRFPolicy(members=4), RowMeanImputation(), FilledSubset()],
    ids=lambda policy: type(policy).__name__,
)
def test_every_policy_is_right_once_it_has_all_cells(policy):
    found = play(policy, BestArmRecovery(methods=8, items=40, budgets=(0.1, 1.0), draws=5))
    assert found["found_at_1"].tolist() == [1] * 5
    assert np.allclose(found["ndcg_at_1"], 1)
    assert np.allclose(found["spent"], 1)
    assert np.allclose(found["found"], (1 + found["found_at_0.1"]) / 2)


def test_the_budget_is_never_overspent():
    task = BestArmRecovery(methods=10, items=50, budgets=(0.05, 0.3), draws=3)
    spent = play(UCBEPolicy(batch=32), task)["spent"]
    assert np.allclose(spent, 128 / 500)  # 4 batches; a fifth would be 160 of 150 cells


def test_random_cells_are_right_one_time_in_so_many_at_almost_no_budget():
    task = BestArmRecovery(methods=10, items=100, budgets=(0.04,), draws=600, tolerance=0)
    found = play(RowMeanImputation(), task)["found_at_0.04"].mean()
    shuffled = play(task.constant(), task)["found_at_0.04"].mean()
    assert 0.05 < shuffled < 0.16  # one in ten, and ties
    assert found > shuffled  # 3 cells a method are worth something


def test_ucb_e_needs_less_than_random_cells():
    task = BestArmRecovery(methods=40, items=300, budgets=(0.15, 0.25), draws=30)
    bandit, random = play(UCBEPolicy(), task), play(RowMeanImputation(), task)
    assert bandit["found_at_0.25"].mean() >= 0.9
    assert bandit["found_at_0.25"].mean() > random["found_at_0.25"].mean() + 0.2
    assert bandit["ndcg_at_0.25"].mean() > random["ndcg_at_0.25"].mean()


def test_draws_are_the_same_for_all_arms_and_differ_from_each_other():
    task = BestArmRecovery(methods=5, items=20, draws=3)
    seeds = [unit.content["seed"] for unit in task.units(Rng(0))]
    assert len(set(seeds)) == 3
    assert np.array_equal(task.draw(seeds[0]), task.draw(seeds[0]))
    assert not np.array_equal(task.draw(seeds[0]), task.draw(seeds[1]))
    assert [u.content for u in task.units(Rng(0))] == [u.content for u in task.units(Rng(0))]


def test_small_gaps_are_smaller():
    def gap(matrix):
        task = BestArmRecovery(matrix=matrix, methods=100, items=2000)
        return np.mean([np.ptp(np.sort(task.draw(seed).mean(axis=1))[-10:]) for seed in range(5)])

    assert gap("small_gaps") < 0.6 * gap("large_gaps")


def test_item_responses_have_the_chances_of_the_model():
    scores = item_responses(2000, 3, np.random.default_rng(0), spread=0, difficulty=2)
    again = np.random.default_rng(0)
    again.normal(0, 0, (2000, 1))
    difficulty = again.normal(0, 2, 3)
    assert scores.mean(axis=0) == pytest.approx(1 / (1 + np.exp(difficulty)), abs=0.04)


def test_digit_pipelines_are_120_that_can_read_and_differ():
    found = digit_pipelines()
    assert found.scores.shape == (120, 1297)
    assert set(np.unique(found.scores)) == {0.0, 1.0}
    assert found.means().min() > 0.5
    assert found.means().max() > 0.97
    assert len(np.unique(found.scores, axis=0)) > 110
    task = BestArmRecovery(matrix="digits", methods=7, items=30, draws=1)
    assert task.draw(3).shape == (7, 30)
    columns = {tuple(column) for column in found.scores.T[:, np.argsort(found.methods)]}
    assert len(columns) > 100


def wide(tmp_path, text, name="scores.csv"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_a_matrix_reads_alike_from_every_format(tmp_path):
    scores = np.array([[1.0, 0.25, np.nan], [0.0, 1.0, 0.5]])
    methods, items = ("long, with comma", "short"), ("q1", "q2", "q3")
    table = pl.DataFrame({"prompt": methods, **{q: scores[:, j] for j, q in enumerate(items)}})
    table = table.with_columns(pl.col(pl.Float64).fill_nan(None))
    long = table.unpivot(index="prompt").rename(
        {"prompt": "method", "variable": "item", "value": "score"}
    )
    table.write_csv(tmp_path / "wide.csv")
    table.write_parquet(tmp_path / "wide.parquet")
    long.drop_nulls().write_csv(tmp_path / "long.csv")
    long.write_parquet(tmp_path / "long.parquet")
    np.savez(tmp_path / "named.npz", scores=scores, methods=methods, items=items)
    for name in ("wide.csv", "wide.parquet", "long.csv", "long.parquet", "named.npz"):
        found = read_score_matrix(tmp_path / name)
        assert np.array_equal(found.scores, scores, equal_nan=True), name
        assert (found.methods, found.items) == (methods, items)
    assert np.allclose(found.means(), [0.625, 0.5])
    np.savez(tmp_path / "plain.npz", scores=scores)
    assert read_score_matrix(tmp_path / "plain.npz").methods == ("0", "1")


def test_a_file_of_your_own_is_a_matrix_to_draw_from(tmp_path):
    generator = np.random.default_rng(0)
    scores = (generator.random((12, 80)) < np.linspace(0.2, 0.9, 12)[:, np.newaxis]).astype(float)
    scores[3, :20] = np.nan
    scores[5] = np.nan
    file = tmp_path / "own.npz"
    np.savez(file, scores=scores)
    task = BestArmRecovery(
        matrix="file", file=str(file), methods=12, items=80, budgets=(0.3, 1.0), draws=4
    )
    found = play(UCBEPolicy(batch=8), task)
    assert found["found_at_1"].tolist() == [1] * 4
    drawn = task.draw(0)
    assert np.isnan(drawn).sum() == 100
    assert sorted(np.nansum(drawn, axis=1)) == sorted(np.nansum(scores, axis=1))
    elsewhere = tmp_path / "elsewhere.npz"
    elsewhere.write_bytes(file.read_bytes())
    assert BestArmRecovery(matrix="file", file=str(elsewhere)).content() == task.content()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("m,a,b\nx,1,0\ny,maybe,1\n", "'maybe' in the column 'a' where a score should be"),
        ("m,a,b\nx,1,0\ny,2,1\n", "scores must be from 0 to 1, got 0 to 2"),
        ("m,a,b\nx,1,0\n", "at least 2 methods"),
        ("m,a,b\nx,1,0\nx,1,1\n", "the method 'x' is there twice"),
        ("m,a,b\nx,1,0\n,1,1\n", "a row without a name"),
        ("m,a\nx,\ny,\n", "no score at all"),
        ("m\nx\ny\n", "a column of methods and a column an item"),
        ("method,item,score\nx,a,1\nx,a,0\n", "'x' on the item 'a' twice"),
        ("", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, text, fault):
    with pytest.raises(UsageError, match=fault) as caught:
        read_score_matrix(wide(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_what_is_no_matrix_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        read_score_matrix(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="must end in"):
        read_score_matrix(wide(tmp_path, "x", "scores.txt"))
    with pytest.raises(UsageError, match="no NPZ file"):
        read_score_matrix(wide(tmp_path, "x", "scores.npz"))
    with pytest.raises(UsageError, match="no NPZ file"):
        read_score_matrix(wide(tmp_path, "", "empty.npz"))
    np.save(tmp_path / "one.npy", np.ones((2, 2)))
    with pytest.raises(UsageError, match="no NPZ file"):
        read_score_matrix((tmp_path / "one.npy").rename(tmp_path / "one.npz"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_score_matrix(wide(tmp_path, "x", "scores.parquet"))
    np.savez(tmp_path / "objects.npz", scores=np.array([[{}]], dtype=object))
    with pytest.raises(UsageError, match="no NPZ file of plain arrays"):
        read_score_matrix(tmp_path / "objects.npz")
    np.savez(tmp_path / "flat.npz", scores=np.ones(3))
    with pytest.raises(UsageError, match="a matrix of numbers named scores"):
        read_score_matrix(tmp_path / "flat.npz")
    with pytest.raises(UsageError, match=r"must have the shape \(1, 2\)"):
        ScoreMatrix(np.ones((2, 2)), ("a",), ("b", "c"))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"budgets": ()}, "budgets must be shares"),
        ({"budgets": (0.5, 1.5)}, "budgets must be shares"),
        ({"budgets": (0.5, 0.1)}, "budgets must rise"),
        ({"budgets": (0.5, 0.5)}, "budgets must rise"),
        ({"matrix": "file"}, "go together"),
        ({"file": "scores.csv"}, "go together"),
        ({"matrix": "file", "file": "nowhere.csv"}, "there is no file"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(options, fault):
    with pytest.raises(UsageError, match=fault):
        BestArmRecovery(**options)
