import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from equipoise.core import (
    Predicts,
    PredictsProba,
    PredictsSet,
    Rng,
    Trains,
    UnitError,
    UsageError,
    learnable,
)
from equipoise.kit.arrays.conformal import conformal_quantile
from equipoise.kit.arrays.examples import Examples
from equipoise.kit.arrays.learners import Untrained, live
from equipoise.methods.conformal import ConformalSet, SetPrediction
from equipoise.methods.conformal._sets import Calibrated

SCORES = ["lac", "aps", "raps", "top_k"]
LABELS = np.array(["ant", "bee", "cat", "dog"])


class Given:
    """A classifier whose inputs are the probabilities themselves."""

    classes_ = LABELS

    def predict(self, inputs):
        return self.classes_[np.argmax(inputs, axis=1)]

    def predict_proba(self, inputs):
        return np.asarray(inputs)


class Two(Given):
    classes_ = LABELS[:2]


class LessSure(ClassifierMixin, BaseEstimator):
    """Another classifier, a little less sure."""

    def fit(self, other, y=None):
        self.other_, self.classes_ = other, other.classes_
        return self

    def predict(self, inputs):
        return self.other_.predict(inputs)

    def predict_proba(self, inputs):
        p = self.other_.predict_proba(inputs) + 1e-6
        return p / p.sum(axis=1, keepdims=True)


def drawn(n, seed, sharp=2.0):
    """Probabilities, and labels drawn from them."""
    generator = np.random.default_rng(seed)
    p = softmax(sharp * generator.normal(size=(n, len(LABELS))), axis=1)
    codes = (p.cumsum(axis=1) > generator.random(n)[:, None]).argmax(axis=1)
    return p, LABELS[codes]


def calibrated(score, n=400, seed=0):
    p, labels = drawn(n, seed)
    return Calibrated(Given(), Examples(p, labels), score, Rng(0))


def covered(sets, labels):
    return (sets & (labels[:, None] == LABELS)).any(axis=1).mean()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_sets_are_mapies(score, alpha):
    # aps, raps and top_k are MAPIE's through an adapter; lac is ours. Here MAPIE has a real model.
    mapie = pytest.importorskip("mapie.classification")
    task = SetPrediction("builtin:digits", train=0.3, calibration=0.3)
    units = learnable(task, Rng(0), "calibration")
    model = Untrained(GaussianNB()).fit(learnable(task, Rng(0)), Rng(0))
    ours = ConformalSet(score, data=task).apply(model, Rng(0))
    bayes = LessSure().fit(model.model)
    theirs = mapie.SplitConformalClassifier(
        model.model if score == "lac" else bayes,
        confidence_level=1 - alpha,
        conformity_score=score,
        random_state=ours._seed,
    )
    x, y = np.array([u.content for u in units]), np.array([u.target for u in units])
    theirs.conformalize(x, y)
    rows = np.array([u.content for u in task.units(Rng(0)) if u.split == "test"])
    found = ours.predict_set(rows, alpha)
    assert found.dtype == bool
    differ = found != theirs.predict_set(rows)[1][:, :, 0]
    if score == "lac":  # MAPIE lets labels in whose probability is 1e-8 below the threshold
        differ &= np.abs(model.predict_proba(rows) + conformal_quantile(ours._scores, alpha)) > 1e-8
    assert not differ.any()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_sets_cover_as_promised(score, alpha):
    live = calibrated(score, 2000)
    p, labels = drawn(20_000, 1)
    share = covered(live.predict_set(p, alpha), labels)
    assert share > 1 - alpha - 0.035
    if score == "lac":  # the others are coarser, and may cover more
        assert share < 1 - alpha + 0.035


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_a_classifier_that_is_too_sure_is_covered_too(score):
    # Naive Bayes on pixels gives the right digit less than 1e-8 in one row of twelve. MAPIE's own
    # aps and raps cover 0.916 of rows here where 0.95 are promised.
    x, y = load_digits(return_X_y=True)
    shares = []
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(len(y))
        train, calibration, test = order[:600], order[600:1200], order[1200:]
        model = live(GaussianNB().fit(x[train], y[train]))
        sets = Calibrated(model, Examples(x[calibration], y[calibration]), score, Rng(0))
        shares.append(sets.predict_set(x[test], 0.05)[np.arange(len(test)), y[test]].mean())
    spread = np.sqrt(0.05 * 0.95 * (1 / 600 + 1 / len(test)) / 12)
    assert np.mean(shares) > 0.95 - 3 * spread


def test_lac_sets_by_hand():
    p = np.array(
        [[0.7, 0.1, 0.1, 0.1], [0.2, 0.6, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.3, 0.3, 0.2, 0.2]]
    )
    live = Calibrated(Given(), Examples(p, LABELS[[0, 1, 2, 3]]), "lac", Rng(0))
    # Scores 0.3, 0.4, 0.4, 0.8: of 4, the ceil(5 * 0.8)-th is 0.8, the ceil(5 * 0.5)-th 0.4.
    row = np.array([[0.5, 0.25, 0.15, 0.1]])
    assert live.predict_set(row, 0.2).tolist() == [[True, True, False, False]]
    assert live.predict_set(row, 0.5).tolist() == [[False, False, False, False]]
    with pytest.raises(UsageError, match=r"4 calibration rows are too few .* 9 are needed"):
        live.predict_set(row, 0.1)


def test_lac_sizes_on_known_probabilities():
    # Two classes, the more probable one with p uniform on (1/2, 1), labels drawn from p. Labels
    # whose probability is below t <= 1/2 are left out; the right one is among them with chance
    # t**2, so t = sqrt(alpha). A set holds both labels where 1 - p >= t: a share 1 - 2 t.
    alpha, n = 0.16, 200_000
    generator = np.random.default_rng(0)

    def rows():
        top = 0.5 + generator.random(n) / 2
        first = generator.random(n) < 0.5
        p = np.where(first[:, None], np.stack([top, 1 - top], 1), np.stack([1 - top, top], 1))
        return p, np.where(generator.random(n) < p[:, 0], *LABELS[:2])

    live = Calibrated(Two(), Examples(*rows()), "lac", Rng(0))
    sizes = live.predict_set(rows()[0], alpha).sum(axis=1)
    assert abs((sizes == 2).mean() - (1 - 2 * np.sqrt(alpha))) < 0.01
    assert (sizes > 0).all()


@pytest.mark.parametrize("score", SCORES)
def test_rows_do_not_depend_on_each_other(score):
    live = calibrated(score)
    p, _ = drawn(12, 3)
    together = live.predict_set(p, 0.1)
    alone = np.concatenate([live.predict_set(p[i : i + 1], 0.1) for i in range(12)])
    assert (together == alone).all()
    assert live.predict_set(p[:0], 0.1).shape == (0, 4)


@pytest.mark.parametrize("score", SCORES)
def test_too_few_calibration_rows_are_refused_with_the_number_that_would_do(score):
    with pytest.raises(UsageError, match=r"too few for alpha 0\.01: at least (99|101) are needed"):
        calibrated(score, 60).predict_set(drawn(5, 1)[0], 0.01)


def test_a_label_not_learned_counts_as_missed():
    p, labels = drawn(100, 0)
    strange = Examples(p, np.where(labels == "ant", "eel", labels))
    live = Calibrated(Given(), strange, "lac", Rng(0))
    assert (live._scores == 0).sum() == (labels == "ant").sum()
    with pytest.raises(UsageError, match="'eel', which the subject has not learned"):
        Calibrated(Given(), strange, "aps", Rng(0))


def test_a_row_without_numbers_gets_an_empty_set():
    row = np.full((1, 4), np.nan)
    assert not calibrated("lac").predict_set(row, 0.1).any()


@pytest.mark.parametrize("score", SCORES)
def test_a_learner_calibrates_itself(score):
    task = SetPrediction("builtin:wine", train=0.4, calibration=0.4)
    learner = ConformalSet(score).apply(Untrained(GaussianNB()), Rng(0))
    units = learnable(task, Rng(0)) + learnable(task, Rng(0), "calibration")
    live = learner.fit(units, Rng(0))
    for kind in (Predicts, PredictsProba, PredictsSet, Trains):
        assert isinstance(live, kind)
    test = [unit for unit in task.units(Rng(0)) if unit.split == "test"]
    if score == "raps":
        with pytest.raises(UsageError, match="raps calibrates on 7 of 65 rows, too few"):
            task.perform(live, test, Rng(0))
        task = SetPrediction("builtin:wine", train=0.4, calibration=0.4, alpha=0.2)
    outcomes = task.perform(live, test, Rng(0))
    assert np.mean([outcome.scores["covered"] for outcome in outcomes]) > 0.8
    leaks = {outcome.error_kind for outcome in task.perform(live, units, Rng(0))}
    assert leaks == {"leak"}


def test_bad_input_is_refused_in_a_sentence():
    learner = ConformalSet().apply(Untrained(GaussianNB()), Rng(0))
    rows = np.zeros((1, 4))
    for ask in (learner.predict, learner.predict_proba, lambda r: learner.predict_set(r, 0.1)):
        with pytest.raises(UsageError, match="add the treatment train"):
            ask(rows)
    one = Examples(np.zeros((4, 2)), np.array(["a"] * 4), np.array(["train", "calibration"] * 2))
    with pytest.raises(UsageError, match="could not be trained"):
        ConformalSet().apply(Untrained(LogisticRegression()), Rng(0)).fit(one, Rng(0))
    numbers = Examples(one.inputs, np.arange(4.0), one.split)
    with pytest.raises(UsageError, match="no probabilities"):
        ConformalSet().apply(Untrained(Ridge()), Rng(0)).fit(numbers, Rng(0))
    with pytest.raises(UsageError, match="no probabilities"):
        ConformalSet(data=SetPrediction("builtin:iris")).apply(object(), Rng(0))
    data = SetPrediction("builtin:iris", calibration=0.0)
    with pytest.raises(UsageError, match="raise its calibration"):
        ConformalSet(data=data).apply(Given(), Rng(0))
    p, labels = drawn(100, 0)
    with pytest.raises(UsageError, match="not finite on 100 of 100"):
        Calibrated(Given(), Examples(p * np.nan, labels), "lac", Rng(0))
    with pytest.raises(UnitError, match="shape"):
        Calibrated(Given(), Examples(p[:, :3], labels), "lac", Rng(0))
    for alpha in (0, 1, 90):
        with pytest.raises(UsageError, match="strictly between 0 and 1"):
            calibrated("lac").predict_set(p, alpha)


def test_two_classes_take_lac_only():
    p, _ = drawn(100, 0)
    p = p[:, :2] / p[:, :2].sum(axis=1, keepdims=True)
    labels = np.array(["ant", "bee"] * 50)
    live = Calibrated(Two(), Examples(p, labels), "aps", Rng(0))
    with pytest.raises(UsageError, match=r"aps cannot be calibrated .*; lac can"):
        live.predict_set(p, 0.1)
