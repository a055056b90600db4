import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core import UsageError
from equipoise.kit.arrays.similarity import (
    Similarities,
    cosine,
    from_matrix,
    nearest,
    pack_bits,
    similarities,
    tanimoto,
)
from equipoise.kit.progress import listening


def _bits(rng, n=400, bits=200, share=0.2):
    return rng.random((n, bits)) < share


def _by_hand(a, b):
    both, either = int((a & b).sum()), int((a | b).sum())
    return both / either if either else 1.0


@pytest.mark.parametrize("bits", [1, 63, 64, 65, 200])
def test_tanimoto_is_what_one_counts_by_hand(bits):
    rows = _bits(np.random.default_rng(bits), 30, bits)
    rows[:2] = False
    expected = [[_by_hand(a, b) for b in rows] for a in rows]
    assert np.array_equal(tanimoto(pack_bits(rows), pack_bits(rows)), expected)


@pytest.mark.parametrize("minimum", [0.0, 0.1, 0.3, 1.0])
def test_pairs_are_those_of_the_whole_matrix(minimum):
    rows = pack_bits(_bits(np.random.default_rng(1)))
    whole = np.triu(tanimoto(rows, rows).astype(np.float32), k=1)
    found = similarities(rows, minimum=minimum)
    kept = np.where(whole >= np.float32(minimum), whole, 0)
    assert (found.pairs != sp.csr_array(kept)).nnz == 0
    assert found.pairs.has_sorted_indices or found.pairs.shape[0]


def test_blocks_do_not_show():
    rng = np.random.default_rng(2)
    rows = rng.random((5000, 3))
    found = similarities(rows, cosine, minimum=0.9999)
    i, j = found.linked(0.9999)
    places = rng.integers(len(i), size=200)
    for a, b in zip(i[places], j[places], strict=True):
        assert a < b
        assert cosine(rows[[a]], rows[[b]])[0, 0] >= 0.9999 - 1e-6
    sample = rng.integers(5000, size=60)
    whole = cosine(rows[sample], rows) >= 0.9999
    degree = np.bincount(i, minlength=5000) + np.bincount(j, minlength=5000)
    assert np.abs(whole.sum(axis=1) - 1 - degree[sample]).max() <= 1  # 32-bit at the edge


def test_pairs_exactly_at_the_threshold_are_linked():
    # 7 of 10 bits are shared: 0.7, which 32-bit floats hold below 0.7.
    a = np.array([1] * 7 + [1, 1, 1], bool)
    b = np.array([1] * 7 + [0, 0, 0], bool)
    found = similarities(pack_bits([a, b]), minimum=0.7)
    assert len(found.linked(0.7)[0]) == 1
    for hundredths in range(5, 100, 5):
        c = np.arange(100) < hundredths
        pair = pack_bits([np.ones(100, bool), c])
        assert len(similarities(pair, minimum=hundredths / 100).linked(hundredths / 100)[0]) == 1


def test_below_what_is_kept_nothing_can_be_asked():
    found = similarities(pack_bits(np.eye(3)), minimum=0.3)
    with pytest.raises(UsageError, match=r"only those from 0.3 are kept"):
        found.linked(0.2)
    with pytest.raises(UsageError, match="above 0"):
        from_matrix(np.eye(3)).linked(0.0)


def test_dense_sparse_and_computed_agree():
    rows = pack_bits(_bits(np.random.default_rng(3), 60))
    whole = tanimoto(rows, rows)
    dense, sparse = from_matrix(whole), from_matrix(sp.csr_array(whole))
    for threshold in (0.05, 0.1, 0.2):
        pairs = [set(zip(*each.linked(threshold), strict=True))
                 for each in (dense, sparse, similarities(rows))]  # fmt: skip
        assert pairs[0] == pairs[1] == pairs[2]
    assert from_matrix(dense) is dense


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        (np.array([[1, 0.2], [0.3, 1]]), "items 0 and 1 are 0.2 alike one way and 0.3 the other"),
        (np.array([[1, 1.2], [1.2, 1]]), r"must lie from 0 to 1, got 1.2"),
        (np.array([[1, -0.2], [-0.2, 1]]), r"must lie from 0 to 1, got -0.2"),
        (np.array([[1, np.nan], [np.nan, 1]]), "finite"),
        (np.ones((2, 3)), "a row and a column for each item"),
    ],
)
def test_what_is_no_similarity_is_refused(matrix, told):
    with pytest.raises(UsageError, match=told):
        from_matrix(matrix)
    if matrix.shape[0] == matrix.shape[1]:
        with pytest.raises(UsageError, match=told):
            from_matrix(sp.csr_array(matrix))


def test_bad_callables_and_rows_are_refused():
    rows = np.random.default_rng(0).random((5, 2))
    with pytest.raises(UsageError, match="symmetric"):
        similarities(rows, lambda a, b: np.clip(a[:, :1] + 0 * b[:, 0], 0, 1))
    with pytest.raises(UsageError, match="as many similarities as pairs"):
        similarities(rows, lambda a, b: np.ones(3))
    with pytest.raises(UsageError, match="must lie from 0 to 1, got 7"):
        similarities(rows, lambda a, b: np.full((len(a), len(b)), 7.0))
    with pytest.raises(UsageError, match="pack_bits"):
        similarities(rows)
    with pytest.raises(UsageError, match="finite"):
        similarities(np.array([[1.0, np.inf]]), cosine)
    with pytest.raises(UsageError, match="row of zeros"):
        similarities(np.zeros((2, 2)), cosine)
    with pytest.raises(UsageError, match="minimum must lie from 0 to 1"):
        similarities(rows, cosine, minimum=1.5)


def test_nearest_is_the_row_maximum():
    rng = np.random.default_rng(4)
    rows, others = pack_bits(_bits(rng, 300)), pack_bits(_bits(rng, 5000))
    assert np.array_equal(nearest(rows, others), tanimoto(rows, others).max(axis=1))
    with pytest.raises(UsageError, match="no rows"):
        nearest(rows, others[:0])


def test_progress_is_told():
    heard = []
    with listening(lambda *said: heard.append(said)):
        similarities(pack_bits(_bits(np.random.default_rng(0), 5000, 64)), minimum=0.9)
    assert heard[0] == ("comparing rows", 256, 5000)
    assert heard[-1][1:] == (5000, 5000)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 130), st.floats(0, 1), st.integers(0, 9))
def test_any_fingerprints(n, bits, minimum, seed):
    rows = _bits(np.random.default_rng(seed), n, bits, 0.3)
    found = similarities(pack_bits(rows), minimum=minimum)
    assert isinstance(found, Similarities)
    assert len(found) == n
    expected = {
        (i, j)
        for i, j in itertools.combinations(range(n), 2)
        if np.float32(_by_hand(rows[i], rows[j])) >= np.float32(max(minimum, 1e-9))
    }
    coo = found.pairs.tocoo()
    assert set(zip(coo.row.tolist(), coo.col.tolist(), strict=True)) == expected
