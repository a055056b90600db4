"""Matrices of scores, methods by items: read from files, drawn with known truth, or computed."""

from __future__ import annotations

import functools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError
from equipoise.kit.progress import report

Array = npt.NDArray[np.float64]

_LONG = ("method", "item", "score")


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores of methods on items.

    Parameters
    ----------
    scores
        Shape (methods, items), in [0, 1]; NaN where a method has no score.
    methods, items
        Their names.

    Examples
    --------
    >>> ScoreMatrix(np.array([[1.0, 0.0], [1.0, 1.0]]), ("short", "long"), ("a", "b")).means()
    array([0.5, 1. ])
    """

    scores: Array
    methods: tuple[str, ...]
    items: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.scores.shape != (len(self.methods), len(self.items)):
            raise UsageError(
                f"ScoreMatrix: scores must have the shape {(len(self.methods), len(self.items))}, "
                f"methods by items, got {self.scores.shape}."
            )
        if len(self.methods) < 2 or not self.items:
            raise UsageError(
                f"ScoreMatrix: at least 2 methods and 1 item are needed, got {len(self.methods)} "
                f"and {len(self.items)}."
            )
        for kind, names in (("method", self.methods), ("item", self.items)):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UsageError(f"ScoreMatrix: the {kind} {twice!r} is there twice.")
        known = self.scores[~np.isnan(self.scores)]
        if not known.size:
            raise UsageError("ScoreMatrix: there is no score at all.")
        if known.min() < 0 or known.max() > 1:
            raise UsageError(
                f"ScoreMatrix: scores must be from 0 to 1, got {known.min():g} to {known.max():g}; "
                f"scale them first."
            )

    def means(self) -> Array:
        """Return each method's mean over the items it has scores on, NaN where it has none."""
        return means_of(self.scores)


def means_of(scores: Array) -> Array:
    """Return the means of rows over what is not NaN."""
    known = ~np.isnan(scores)
    means: Array = np.full(len(scores), np.nan)
    np.divide(np.nansum(scores, axis=1), known.sum(axis=1), out=means, where=known.any(axis=1))
    return means


def read_score_matrix(path: str | Path) -> ScoreMatrix:
    """Read a matrix of scores from a file.

    A CSV or Parquet file is either wide (a first column of method names, then a column an item)
    or long (columns ``method``, ``item`` and ``score``). An empty cell, or a pair that a long
    file lacks, is NaN. An NPZ file has the array ``scores`` and, if you like, the names as
    ``methods`` and ``items``.

    Parameters
    ----------
    path
        The file; its ending tells the format.

    Returns
    -------
    ScoreMatrix
        Names are in the order of the file.

    Raises
    ------
    UsageError
        On a file that is not there or cannot be read, text where a score should be, a pair that
        is there twice, scores outside [0, 1], or fewer than two methods.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "scores.csv")
    ...     _ = file.write_text("prompt,q1,q2\\nshort,1,0\\nlong,1,\\n")
    ...     read_score_matrix(file).scores
    array([[ 1.,  0.],
           [ 1., nan]])
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"read_score_matrix: there is no file {file}.")
    ending = file.suffix.lower()
    if ending == ".npz":
        return _from_npz(file)
    if ending not in (".csv", ".parquet"):
        raise UsageError(
            f"read_score_matrix: {file.name} must end in .csv, .npz or .parquet, which tells how "
            f"to read it."
        )
    import polars as pl

    try:
        table = (
            pl.read_parquet(file) if ending == ".parquet" else pl.read_csv(file, infer_schema=False)
        )
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(f"read_score_matrix: {file.name} cannot be read: {why}.") from None
    if set(_LONG) <= set(table.columns):
        return _from_long(file.name, table)
    if table.width < 2:
        raise UsageError(
            f"read_score_matrix: {file.name} must have a column of methods and a column an item, "
            f"or the columns method, item and score."
        )
    methods, items = table.to_series(0).cast(pl.String).to_list(), table.columns[1:]
    columns = [_numbers(file.name, table[name]) for name in items]
    return ScoreMatrix(np.stack(columns, axis=1), _names(file.name, methods), tuple(items))


def _from_long(name: str, table: Any) -> ScoreMatrix:
    import polars as pl

    names, places = [], []
    for column in _LONG[:2]:
        values = _names(name, table[column].cast(pl.String).to_list())
        known = {each: place for place, each in enumerate(dict.fromkeys(values))}
        names.append(tuple(known))
        places.append(np.array([known[each] for each in values], dtype=np.intp))
    flat = places[0] * len(names[1]) + places[1]
    if len(np.unique(flat)) < len(flat):
        first = int(np.flatnonzero(np.bincount(flat) > 1)[0])
        method, item = names[0][first // len(names[1])], names[1][first % len(names[1])]
        raise UsageError(
            f"read_score_matrix: {name} has the method {method!r} on the item {item!r} twice."
        )
    scores = np.full((len(names[0]), len(names[1])), np.nan)
    scores.ravel()[flat] = _numbers(name, table["score"])
    return ScoreMatrix(scores, names[0], names[1])


def _from_npz(file: Path) -> ScoreMatrix:
    try:
        found = np.load(file, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError("one array")
        with found:
            arrays = {key: found[key] for key in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        raise UsageError(
            f"read_score_matrix: {file.name} is no NPZ file of plain arrays."
        ) from None
    scores = arrays.get("scores")
    if scores is None or scores.ndim != 2 or scores.dtype.kind not in "fiub":
        raise UsageError(
            f"read_score_matrix: {file.name} must have a matrix of numbers named scores."
        )
    names = []
    for key, size in zip(("methods", "items"), scores.shape, strict=True):
        given = arrays.get(key)
        names.append(
            tuple(map(str, range(size))) if given is None else tuple(map(str, given.ravel()))
        )
    return ScoreMatrix(scores.astype(np.float64), *names)


def _names(file: str, names: list[str | None]) -> tuple[str, ...]:
    if None in names:
        raise UsageError(f"read_score_matrix: {file} has a row without a name.")
    return tuple(str(name) for name in names)


def _numbers(file: str, column: Any) -> Array:
    import polars as pl

    if column.dtype == pl.String:
        column = column.str.strip_chars().replace("", None)
    if column.dtype == pl.Boolean:
        column = column.cast(pl.Int8)
    numbers = column.cast(pl.Float64, strict=False)
    wrong = column.filter(numbers.is_null() & column.is_not_null())
    if len(wrong):
        raise UsageError(
            f"read_score_matrix: {file} has {wrong[0]!r} in the column {column.name!r} where a "
            f"score should be."
        )
    found: Array = numbers.fill_null(np.nan).to_numpy()
    return found


def item_responses(
    methods: int, items: int, generator: np.random.Generator, *, spread: float, difficulty: float
) -> Array:
    r"""Return zeros and ones of an item-response model.

    .. math:: M_{ij} \sim \text{Bernoulli}(\sigma(\theta_i - b_j)), \quad
              \theta_i \sim N(0, \text{spread}^2), \; b_j \sim N(0, \text{difficulty}^2)

    Parameters
    ----------
    methods, items
        How many.
    generator
        What to draw from.
    spread, difficulty
        Standard deviations of the methods' abilities and of the items' difficulties.

    Examples
    --------
    >>> item_responses(2, 3, np.random.default_rng(0), spread=1, difficulty=1).shape
    (2, 3)
    """
    ability = generator.normal(0, spread, (methods, 1))
    hardness = generator.normal(0, difficulty, (1, items))
    chance = 1 / (1 + np.exp(hardness - ability))
    return np.asarray(generator.random((methods, items)) < chance, dtype=np.float64)


@functools.lru_cache(maxsize=1)
def digit_pipelines() -> ScoreMatrix:
    """Return which of 120 scikit-learn pipelines read which of 1,297 digits right.

    Each pipeline (a classifier, its settings, and what is done to the pixels before) learns from
    the same 500 images of scikit-learn's digits. Computed once a process.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, digits = load_digits(return_X_y=True)
    train, test, learned, right = train_test_split(
        pixels, digits, train_size=500, stratify=digits, random_state=0
    )
    pipelines = _pipelines()
    rows: list[Array] = []
    for name, pipeline in pipelines.items():
        report(f"digits: {name}", len(rows), len(pipelines))
        rows.append(pipeline.fit(train, learned).predict(test) == right)
    return ScoreMatrix(
        np.array(rows, dtype=np.float64), tuple(pipelines), tuple(map(str, range(len(test))))
    )


def _pipelines() -> dict[str, Any]:
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.naive_bayes import BernoulliNB, GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Binarizer, MinMaxScaler, StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    before: dict[str, Any] = {
        "pixels": MinMaxScaler(),
        "standard": StandardScaler(),
        "8 components": make_pipeline(MinMaxScaler(), PCA(8, random_state=0)),
        "20 components": make_pipeline(MinMaxScaler(), PCA(20, random_state=0)),
    }
    models: dict[str, Any] = {
        **{f"neighbours {k}": KNeighborsClassifier(k) for k in (1, 3, 5, 9, 15, 31)},
        **{f"svm {c}": SVC(C=c) for c in (0.1, 1, 10)},
        **{f"linear svm {c}": SVC(C=c, kernel="linear") for c in (0.01, 1)},
        **{f"logistic {c}": LogisticRegression(C=c, max_iter=1000) for c in (0.01, 0.1, 1, 10)},
        **{f"ridge {a}": RidgeClassifier(alpha=a) for a in (1, 100)},
        **{f"forest {n}": RandomForestClassifier(n, random_state=0) for n in (5, 10, 20, 40)},
        **{f"extra trees {n}": ExtraTreesClassifier(n, random_state=0) for n in (10, 20, 40)},
        **{f"tree {d}": DecisionTreeClassifier(max_depth=d, random_state=0) for d in (5, 10)},
        **{f"gaussian bayes {s}": GaussianNB(var_smoothing=s) for s in (0.001, 0.1)},
        "discriminant": LinearDiscriminantAnalysis(),
    }
    found = {
        f"{model} on {prepared}": make_pipeline(before[prepared], models[model])
        for model in models
        for prepared in before
    }
    for cut in (2, 5, 8, 11):
        found[f"bernoulli bayes above {cut}"] = make_pipeline(
            Binarizer(threshold=cut), BernoulliNB()
        )
    return found
