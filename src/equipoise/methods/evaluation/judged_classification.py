"""Real classifiers judge one another on held-out items of scikit-learn's data sets."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from equipoise.core import (
    Outcome,
    Predicts,
    PredictsProba,
    Rng,
    ScoreSpec,
    Subject,
    Task,
    Unit,
    UsageError,
    between,
    one_of,
)


@functools.lru_cache(maxsize=2)
def _examples(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and a mask of the half that is for training.

    The split is the same for every seed, so that no subject ever sees an item
    that a task asks.
    """
    from sklearn import datasets

    load = {"digits": datasets.load_digits, "breast_cancer": datasets.load_breast_cancer}[name]
    features, labels = load(return_X_y=True)
    training = np.zeros(len(labels), bool)
    training[Rng(0).child("split", name).numpy().permutation(len(labels))[::2]] = True
    spread = features[training].std(axis=0)
    features = (features - features[training].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return features, labels, training


@dataclass(frozen=True)
class GradedClassifier(Subject):
    """A scikit-learn classifier, better or worse by how many examples it learned from.

    Parameters
    ----------
    data
        ``"digits"`` (1,797 images, 10 classes) or ``"breast_cancer"`` (569
        rows, 2 classes). Half of either is for training.
    kind
        Family of the model; families err on different items.
    examples
        Training examples, drawn at random with each class at least once.

    Examples
    --------
    >>> live = GradedClassifier(examples=100).load(Rng(0))
    >>> features, labels, training = _examples("digits")
    >>> bool((live.predict(features[~training]) == labels[~training]).mean() > 0.7)
    True
    """

    provides = frozenset({Predicts, PredictsProba})

    data: str = one_of("digits", "breast_cancer", default="digits")
    kind: str = one_of("logistic", "neighbours", "bayes", "tree", "forest", default="logistic")
    examples: int = between(10, 10_000, default=200)

    @classmethod
    def tiny(cls) -> GradedClassifier:
        """Return a weak one."""
        return cls(examples=30)

    def load(self, rng: Rng) -> Any:
        """Return the fitted classifier."""
        features, labels, training = _examples(self.data)
        rows = np.flatnonzero(training)
        rows = rng.child("examples").numpy().permutation(rows)
        # One of each class first, so that every classifier knows every class.
        firsts = [rows[labels[rows] == value][0] for value in np.unique(labels)]
        others = rows[~np.isin(rows, firsts)]
        chosen = np.concatenate([firsts, others])[: max(self.examples, len(firsts))]
        seed = rng.child("fit").seed_for_request()
        estimator = _estimator(self.kind, seed, len(chosen))
        return _Fitted(estimator.fit(features[chosen], labels[chosen]))


@dataclass(frozen=True)
class _Fitted:
    estimator: Any

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.estimator.classes_)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        if len(inputs) == 0:  # which scikit-learn refuses
            return self.classes_[:0]
        return np.asarray(self.estimator.predict(inputs))

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        if len(inputs) == 0:
            return np.empty((0, len(self.classes_)))
        return np.asarray(self.estimator.predict_proba(inputs))


def _estimator(kind: str, seed: int, size: int) -> Any:
    if kind == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000, random_state=seed)
    if kind == "neighbours":
        from sklearn.neighbors import KNeighborsClassifier

        return KNeighborsClassifier(n_neighbors=min(3, size))
    if kind == "bayes":
        from sklearn.naive_bayes import GaussianNB

        return GaussianNB(var_smoothing=0.1)
    if kind == "tree":
        from sklearn.tree import DecisionTreeClassifier

        return DecisionTreeClassifier(random_state=seed)
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=50, random_state=seed)


@dataclass(frozen=True)
class JudgedClassification(Task):
    r"""A classifier's answers on held-out items, scored by truth and by another classifier.

    The judge answers the item too; the verdict on an answer is whether they
    agree, or the probability that the judge gives to it. On more than two
    classes both may be wrong in the same way, and the verdict is then wrong.
    Scores: ``gold``, ``judge``, and ``excess``, how far the judge's agreement
    with the gold score goes beyond it; where its mean is at most 0, the judge
    is worth no more than twice the labels.

    Parameters
    ----------
    judge
        A classifier, such as `GradedClassifier`.
    data
        As in `GradedClassifier`.
    soft
        Take the judge's probability of the answer as the verdict.

    Examples
    --------
    >>> task = JudgedClassification(judge=GradedClassifier(examples=300))
    >>> unit = task.units(Rng(0))[0]
    >>> sorted(unit.content)
    ['judge', 'row']
    """

    needs = frozenset({Predicts})
    scores = (
        ScoreSpec("gold", low=0.0, high=1.0),
        ScoreSpec("judge", low=0.0, high=1.0),
        ScoreSpec("excess", higher_is_better=None, low=-1.0, high=1.0),
    )

    judge: Subject
    data: str = one_of("digits", "breast_cancer", default="digits")
    soft: bool = False

    def check(self) -> None:
        """Refuse a judge that cannot answer."""
        lacking = {Predicts, *([PredictsProba] if self.soft else [])} - self.judge.provides
        if lacking:
            raise UsageError(
                f"JudgedClassification: the judge {type(self.judge).__name__} lacks"
                f" {' and '.join(sorted(each.__name__ for each in lacking))}; take a classifier."
            )

    @classmethod
    def tiny(cls) -> JudgedClassification:
        """Return a weak judge of breast cancer, the smaller data."""
        return cls(GradedClassifier(data="breast_cancer", examples=30), data="breast_cancer")

    def units(self, rng: Rng) -> list[Unit]:
        """Return one unit a held-out item, with the judge's own answer to it."""
        features, labels, training = _examples(self.data)
        live = self.judge.load(rng.child("judge"))
        rows = np.flatnonzero(~training)
        said = live.predict(features[rows])
        chances = live.predict_proba(features[rows]) if self.soft else None
        units = []
        for place, row in enumerate(rows):
            answer: Any = said[place].item()
            if chances is not None:
                answer = {
                    str(name): float(chance)
                    for name, chance in zip(live.classes_, chances[place], strict=True)
                }
            units.append(
                Unit(
                    f"{self.data}-{row:04d}",
                    content={"row": int(row), "judge": answer},
                    target=labels[row].item(),
                    stratum=str(labels[row]),
                )
            )
        return units

    def perform(self, subject: Predicts, units: Sequence[Unit], rng: Rng) -> list[Outcome]:
        """Score the subject's answers by the truth and by the judge."""
        features = _examples(self.data)[0]
        answers = subject.predict(features[[unit.content["row"] for unit in units]])
        outcomes = []
        for unit, answer in zip(units, np.asarray(answers).tolist(), strict=True):
            said = unit.content["judge"]
            verdict = said.get(str(answer), 0.0) if self.soft else float(answer == said)
            right = float(answer == unit.target)
            agreement = right * verdict + (1 - right) * (1 - verdict)
            scores = {"gold": right, "judge": verdict, "excess": agreement - right}
            outcomes.append(Outcome(unit.id, scores=scores, output=answer))
        return outcomes

    def oracle(self) -> Any:
        """Return a predictor that looks the label up."""
        features, labels, _ = _examples(self.data)
        return _Lookup({row.tobytes(): label for row, label in zip(features, labels, strict=True)})

    def constant(self) -> Any:
        """Return a predictor that always gives the first label."""
        return _Same(_examples(self.data)[1][0])


@dataclass(frozen=True)
class _Same:
    label: Any

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.full(len(inputs), self.label)


@dataclass(frozen=True)
class _Lookup:
    labels: Mapping[bytes, Any]

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.array([self.labels[np.ascontiguousarray(row).tobytes()] for row in inputs])
