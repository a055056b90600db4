"""The graph of interfaces: similarities by hand and by recursion, edges against the true ones."""

import functools

import numpy as np
import pytest

from equipoise.core import Rng, UsageError
from equipoise.kit.worlds.api_dialogues import make_world
from equipoise.methods.interactive import (
    ApiGraph,
    NgramEmbedder,
    api_edges,
    edge_quality,
    name_similarity,
    verified_edges,
)
from equipoise.methods.interactive._tooldial_graph import ngram_vectors, plain


def by_recursion(one, other):
    a, b = plain(one), plain(other)

    @functools.cache
    def longest(i, j):
        if not i or not j:
            return 0
        if a[i - 1] == b[j - 1]:
            return longest(i - 1, j - 1) + 1
        return max(longest(i - 1, j), longest(i, j - 1))

    size = len(a) + len(b)
    return 2 * longest(len(a), len(b)) / size if size else 1.0


def test_names_by_hand():
    assert name_similarity(["video_id"], ["videoId"])[0, 0] == 1.0
    assert name_similarity(["lat"], ["latitude"])[0, 0] == pytest.approx(6 / 11)
    assert name_similarity(["abc"], ["xyz"])[0, 0] == 0.0
    assert name_similarity(["", "a"], [""]).tolist() == [[1.0], [0.0]]
    assert name_similarity([], ["a"]).shape == (0, 1)


def test_names_of_all_pairs_agree_with_the_recursion():
    draw = np.random.default_rng(0)
    names = ["".join(draw.choice(list("abCd_1"), draw.integers(0, 12))) for _ in range(300)]
    found = name_similarity(names, names[:40])
    expected = [[by_recursion(a, b) for b in names[:40]] for a in names]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_three_thresholds_are_more_precise_than_names_alone(seed):
    world = make_world(120, Rng(seed))
    true = list(world.edges())
    names = api_edges(world.apis.values(), thresholds=(0.83, -1, -1))
    all_three = api_edges(world.apis.values())
    assert set(all_three) <= set(names)
    (loose, more), (strict, fewer) = edge_quality(names, true), edge_quality(all_three, true)
    assert strict == 1.0 > loose
    assert 0.7 < fewer <= more


def test_running_both_interfaces_removes_false_friends():
    world = make_world(200, Rng(0))
    true = list(world.edges())
    names = api_edges(world.apis.values(), thresholds=(0.83, -1, -1))
    kept = verified_edges(world, names)
    assert len(kept) < len(names)
    assert edge_quality(kept, true)[0] == 1.0
    assert edge_quality(kept, true)[1] == edge_quality(names, true)[1]
    assert verified_edges(world, true) == true


def test_lower_thresholds_never_lose_an_edge():
    world = make_world(60, Rng(1))
    before = set()
    for name in (0.95, 0.83, 0.6):
        found = set(api_edges(world.apis.values(), thresholds=(name, 0.5, 0.5)))
        assert before <= found
        before = found


def test_an_encoder_is_given_texts_and_must_return_a_finite_vector_each():
    world = make_world(24, Rng(0))
    told = []

    def embed(texts):
        told.extend(texts)
        return ngram_vectors(texts)

    assert api_edges(world.apis.values(), embed) == api_edges(world.apis.values())
    assert any("identifier" in text.lower() for text in told)
    for wrong in (np.zeros(3), np.full((1, 2), np.nan)):
        with pytest.raises(UsageError, match="finite vectors"):
            api_edges(world.apis.values(), lambda texts, wrong=wrong: wrong)


def test_no_interfaces_have_no_edges():
    assert api_edges([]) == []
    assert edge_quality([], []) == (1.0, 1.0)


def test_vectors_of_words_have_length_one_and_know_like_texts():
    found = ngram_vectors(["The identifier of a hotel.", "Identifier of a hotel.", "Win rate", ""])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 0])
    assert found[0] @ found[1] > 0.8 > 0.2 > found[0] @ found[2]


def test_the_task_scores_as_the_plain_functions_do():
    task = ApiGraph(worlds=2)
    units = list(task.units(Rng(4)))
    outcomes = task.perform(NgramEmbedder().load(Rng(0)), units, Rng(0))
    for unit, outcome in zip(units, outcomes, strict=True):
        world = make_world(120, Rng(unit.content["seed"]))
        found = api_edges(world.apis.values())
        expected = edge_quality(found, world.edges())
        assert (outcome.scores["precision"], outcome.scores["recall"]) == expected
        assert outcome.scores["edges"] == len(found)


def test_without_two_criteria_the_task_goes_by_names():
    alone = ApiGraph(worlds=1, keywords=-1, descriptions=-1)
    (unit,) = alone.units(Rng(0))
    live = NgramEmbedder().load(Rng(0))
    (loose,) = alone.perform(live, [unit], Rng(0))
    (strict,) = ApiGraph(worlds=1).perform(live, [unit], Rng(0))
    assert loose.scores["precision"] < strict.scores["precision"] == 1.0
    assert loose.scores["verified_precision"] == 1.0
    assert loose.scores["recall"] >= strict.scores["recall"]


def test_an_encoder_that_fails_is_an_error_of_the_unit():
    class Fails:
        def embed(self, texts):
            raise ValueError("no vectors today")

    class Empty:
        def embed(self, texts):
            return np.zeros((0, 4))

    task = ApiGraph(worlds=1)
    units = list(task.units(Rng(0)))
    for live, kind in ((Fails(), "ValueError"), (Empty(), "garbage")):
        (outcome,) = task.perform(live, units, Rng(0))
        assert (outcome.status, outcome.error_kind) == ("error", kind)
