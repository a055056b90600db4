import types

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from equipoise.core import UsageError
from equipoise.kit.arrays.similarity import cosine, from_matrix, pack_bits, similarities, tanimoto
from equipoise.methods.shift import (
    SimilaritySplit,
    similarity_partition,
    threshold_grid,
    usable_partitions,
)
from equipoise.methods.shift._partition import binned


def _blocks(*sizes):
    return np.equal.outer(*[np.repeat(np.arange(len(sizes)), sizes)] * 2).astype(float)


def _rows(n=150, seed=0, groups=12):
    """Return fingerprints in families: members share most bits of their family's."""
    rng = np.random.default_rng(seed)
    families = rng.random((groups, 256)) < 0.15
    bits = families[rng.integers(groups, size=n)].copy()
    flips = rng.random(bits.shape) < rng.choice([0.01, 0.05, 0.1], size=(n, 1))
    return bits ^ flips


@pytest.fixture(scope="module")
def matrix():
    rows = pack_bits(_rows())
    return tanimoto(rows, rows)


def test_hand_case_smallest_components_first_and_strictly_below_the_share():
    found = similarity_partition(_blocks(1, 1, 2, 6), 0.5, test_size=0.3)
    assert found.test.tolist() == [0, 1]  # the pair would make 4 of 10
    assert found.share == 0.2
    # Two of ten are not fewer than a fifth: strictly fewer fit.
    assert similarity_partition(_blocks(1, 1, 2, 6), 0.5, test_size=0.2).test.tolist() == [0]


def test_above_all_similarities_rows_stand_alone():
    found = similarity_partition(np.eye(2173), 0.9)
    assert len(found.test) == 434  # just below 20 % of 2,173
    assert len(np.unique(found.clusters)) == 2173


@pytest.mark.parametrize(
    ("algorithm", "threshold"),
    [*(("ccpart", each) for each in (0.15, 0.3, 0.5, 0.7, 0.9)),
     *(("graphpart", each) for each in (0.3, 0.5, 0.7, 0.9))],
)  # fmt: skip
def test_no_test_row_is_near_a_training_row(matrix, threshold, algorithm):
    found = similarity_partition(matrix, threshold, algorithm=algorithm, parts=5)
    assert not (matrix[np.ix_(found.train, found.test)] >= threshold).any()
    together = np.concatenate([found.train, found.test, found.removed])
    assert np.array_equal(np.sort(together), np.arange(len(matrix)))
    if algorithm == "ccpart":
        assert not len(found.removed)
        assert found.share < 0.2
    else:
        assert len(found.test) / len(together) == pytest.approx(0.2, abs=0.1)


def test_components_are_never_cut(matrix):
    for threshold in threshold_grid():
        found = similarity_partition(matrix, threshold, seed=3)
        expected = connected_components(matrix >= threshold, directed=False)[1]
        assert np.array_equal(found.clusters, expected)
        assert not set(expected[found.train]) & set(expected[found.test])


def test_a_seed_shuffles_ties_and_nothing_else(matrix):
    alone = np.eye(100)
    first, again, other = (similarity_partition(alone, 0.5, seed=seed) for seed in (1, 1, 2))
    assert similarity_partition(alone, 0.5).test.tolist() == list(range(19))
    assert np.array_equal(first.test, again.test)
    assert not np.array_equal(first.test, other.test)
    parts = [similarity_partition(matrix, 0.6, seed=seed) for seed in (1, 2)]
    sizes = [sorted(np.unique(each.clusters[each.test], return_counts=True)[1]) for each in parts]
    assert sizes[0] == sizes[1]


def test_labels_are_balanced_within_a_third_over_their_share():
    labels = np.repeat([0, 1], [50, 50])
    alone = np.eye(100)
    plain = similarity_partition(alone, 0.5)
    assert labels[plain.test].sum() == 0  # the first rows, all of one label
    fair = similarity_partition(alone, 0.5, labels=labels)
    counts = np.bincount(labels[fair.test])
    assert counts.sum() == 20
    assert counts.max() <= 1.3 * 0.2 * 100 / 2


def test_numbers_are_balanced_in_bins_of_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.preprocessing import KBinsDiscretizer

    y = np.random.default_rng(0).normal(size=300).round(2)
    theirs = KBinsDiscretizer(10, encode="ordinal", quantile_method="linear")
    assert np.array_equal(binned(y, 10), theirs.fit_transform(y[:, None])[:, 0])
    few = np.arange(300) % 7
    assert binned(few, 10) is few


def _hestia(monkeypatch):
    """Return hestia-good's partition functions, with ties in the order of rows.

    Its own order of components of equal size follows NumPy's unstable sort, which differs from
    one processor to the next.
    """
    pytest.importorskip("networkx")
    pytest.importorskip("hestia")
    from hestia import clustering, partition

    names = {name: getattr(np, name) for name in dir(np) if not name.startswith("__")}
    stable = lambda x, *rest, **how: np.argsort(x, kind="stable")  # noqa: E731
    falling = lambda x, *rest, **how: np.argsort(-x, kind="stable")[::-1]  # noqa: E731
    monkeypatch.setattr(partition, "np", types.SimpleNamespace(**names | {"argsort": stable}))
    monkeypatch.setattr(clustering, "np", types.SimpleNamespace(**names | {"argsort": falling}))
    return partition


def _frames(matrix, y):
    import pandas as pd

    i, j = np.indices(matrix.shape).reshape(2, -1)
    pairs = pd.DataFrame({"query": i, "target": j, "metric": matrix.ravel().astype(np.float32)})
    return pd.DataFrame({"y": y}), pairs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", [None, "classes", "numbers"])
@pytest.mark.parametrize("seed", range(3))
def test_ccpart_is_hestias(monkeypatch, labels, seed):
    partition = _hestia(monkeypatch)
    rows = pack_bits(_rows(seed=seed, groups=30))
    matrix = tanimoto(rows, rows)
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=150) if labels == "classes" else rng.normal(size=150)
    frame, pairs = _frames(matrix, y)
    column = None if labels is None else "y"
    for threshold in threshold_grid(0.05):
        train, test, clusters = partition.ccpart(
            frame, sim_df=pairs, label_name=column, test_size=0.2, threshold=threshold
        )
        ours = similarity_partition(matrix, threshold, labels=None if labels is None else y)
        assert np.array_equal(ours.test, np.sort(np.array(test, int)))
        assert np.array_equal(ours.train, np.sort(np.array(train, int)))
        assert np.array_equal(ours.clusters, clusters)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(3))
def test_butina_is_hestias(monkeypatch, seed):
    partition = _hestia(monkeypatch)
    rows = pack_bits(_rows(seed=seed, groups=30))
    matrix = tanimoto(rows, rows)
    frame, pairs = _frames(matrix, np.zeros(150))
    for threshold in threshold_grid(0.1, 0.1):
        # It links pairs above the threshold, we those at it as well.
        just_below = float(np.nextafter(np.float32(threshold), np.float32(0)))
        _, test, clusters = partition.butina(
            frame, sim_df=pairs, test_size=0.2, threshold=just_below
        )
        ours = similarity_partition(matrix, threshold, algorithm="butina")
        assert np.array_equal(ours.clusters, clusters)
        assert np.array_equal(ours.test, np.sort(np.array(test, int)))


def test_graph_part_balances_parts_and_leaves_few_out():
    blocks = _blocks(*[5] * 40)
    found = similarity_partition(blocks, 0.5, algorithm="graphpart", labels=np.arange(200) % 2)
    assert not len(found.removed)
    assert np.ptp(np.bincount(found.clusters)) <= 5
    assert len(found.test) == 40
    # One row that is like all others is what has to go.
    blocks[0, :] = blocks[:, 0] = 1.0
    bridged = similarity_partition(blocks, 0.5, algorithm="graphpart")
    assert bridged.removed.tolist() == [0]
    with pytest.raises(UsageError, match=r"leaves \d of 10 parts empty"):
        similarity_partition(np.ones((40, 40)), 0.5, algorithm="graphpart")
    with pytest.raises(UsageError, match="make no 10 parts"):
        similarity_partition(np.eye(5), 0.5, algorithm="graphpart")


def test_butina_takes_the_largest_neighbourhoods_first():
    # A chain 0-1-2-3: one component, but two neighbourhoods.
    chain = np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1)
    found = similarity_partition(chain, 0.5, algorithm="butina", test_size=0.5)
    assert found.clusters.tolist() == [1, 1, 1, 3]
    assert found.test.tolist() == [3]


def test_random_is_a_share_at_random():
    found = similarity_partition(np.eye(101), 1.0, algorithm="random", seed=1)
    assert len(found.test) == 21
    other = similarity_partition(np.eye(101), 1.0, algorithm="random", seed=2)
    assert not np.array_equal(found.test, other.test)


def test_thresholds_are_exact():
    assert threshold_grid(0.05)[4:7] == [0.25, 0.3, 0.35]
    assert threshold_grid(0.29, 0.01, 0.31) == [0.29, 0.3, 0.31]  # int(100 * 0.29) is 28
    assert threshold_grid(0.1, 0.05, 0.95)[-1] == 0.95
    with pytest.raises(UsageError, match="must rise within"):
        threshold_grid(0.5, 0.05, 0.4)


def test_thresholds_with_small_tests_are_left_out(matrix):
    every = {t: similarity_partition(matrix, t).share for t in threshold_grid()}
    kept = usable_partitions(matrix, threshold_grid(), smallest=0.185)
    assert [each.threshold for each in kept] == [t for t, s in every.items() if s >= 0.185]
    assert 0 < len(kept) < len(every)
    with pytest.raises(UsageError, match=r"at no threshold is 18.5% .* the most is 0.0%"):
        usable_partitions(np.ones((20, 20)), [0.5])


def test_the_farther_the_threshold_the_farther_the_test_rows(matrix):
    kept = usable_partitions(matrix, threshold_grid(), smallest=0.15)
    near = [matrix[np.ix_(each.test, each.train)].max() for each in kept]
    assert all(n < each.threshold for n, each in zip(near, kept, strict=True))
    assert near[0] < near[-1]


def test_splitter_works_with_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    bits = _rows()
    y = np.random.default_rng(0).integers(2, size=150)
    split = SimilaritySplit(smallest=0.15, seed=0)
    scores = cross_val_score(KNeighborsClassifier(3), bits, y, cv=split)
    assert len(scores) == split.get_n_splits(bits, y)
    for (train, test), part in zip(split.split(bits), split.partitions(bits), strict=True):
        assert np.array_equal(train, part.train)
        assert np.array_equal(test, part.test)


def test_splitter_takes_any_similarity(matrix):
    bits = _rows()
    by = {
        "precomputed": SimilaritySplit("precomputed", smallest=0.1).partitions(matrix),
        "tanimoto": SimilaritySplit("tanimoto", smallest=0.1).partitions(bits),
        "callable": SimilaritySplit(_tanimoto_of_floats, smallest=0.1).partitions(
            bits.astype(float)
        ),
    }
    tests = [[each.test.tolist() for each in parts] for parts in by.values()]
    assert tests[0] == tests[1] == tests[2]
    rows = np.random.default_rng(0).random((60, 8))
    found = SimilaritySplit("cosine", thresholds=[0.99], smallest=0.0).partitions(rows)
    assert not (cosine(rows[found[0].train], rows[found[0].test]) >= 0.99 + 1e-6).any()


def _tanimoto_of_floats(a, b):
    both = a @ b.T
    return both / (a.sum(axis=1)[:, None] + b.sum(axis=1)[None, :] - both)


def test_bad_input_is_told_in_a_sentence(matrix):
    for wrong, told in [
        ({"threshold": 0.0}, "threshold must be above 0 and at most 1, got 0.0"),
        ({"threshold": 1.5}, "threshold must be above 0"),
        ({"threshold": 0.5, "test_size": 1.0}, "test_size must be within 0 and 1"),
        ({"threshold": 0.5, "algorithm": "cc_part"}, "Nearest: ccpart"),
        ({"threshold": 0.5, "labels": [1, 2]}, r"labels must be one a row, got \(2,\) for 150"),
        ({"threshold": 0.5, "labels": np.full(150, np.nan)}, "labels must be finite"),
    ]:
        with pytest.raises(UsageError, match=told):
            similarity_partition(matrix, **wrong)
    lopsided = matrix.copy()
    lopsided[3, 4] = 0.9
    with pytest.raises(UsageError, match="symmetric"):
        similarity_partition(lopsided, 0.5)
    kept = similarities(pack_bits(_rows()), minimum=0.3)
    with pytest.raises(UsageError, match=r"only those from 0.3"):
        similarity_partition(kept, 0.2)
    with pytest.raises(UsageError, match="give y"):
        SimilaritySplit(balance=True).partitions(_rows())
    with pytest.raises(UsageError, match="depends on X"):
        SimilaritySplit().get_n_splits()
    with pytest.raises(UsageError, match="bits, 0 or 1"):
        SimilaritySplit().partitions(np.full((3, 3), 0.5))
    with pytest.raises(UsageError, match="got 'euclid'"):
        SimilaritySplit("euclid").partitions(_rows())
    assert len(from_matrix(matrix)) == 150
