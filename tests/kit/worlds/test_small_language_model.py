"""The small language model: its words, its cache, and what padding may not change."""

import pytest
import torch

from equipoise.kit.worlds.small_language_model import (
    END,
    Cache,
    SmallTransformer,
    _greedy,
    train,
)
from equipoise.kit.worlds.words import Words


@pytest.fixture
def model():
    made = SmallTransformer.blank(32, 2, 2, 60)
    made.start(torch.Generator().manual_seed(3))
    return made.eval()


def test_words_come_back_as_they_went_in():
    text = "Ada has 12 red keys. How many keys does Ada have? So Bo has 12 + 7 = 19 keys."
    words = Words.learn([text], 100)
    assert words.decode(words.encode(text)) == text
    assert Words.from_tensor(words.as_tensor(100)).words == words.words
    few = Words.learn([text], 5)
    assert len(few.words) == 5
    assert few.decode(few.encode("Zoe")) == ""


def test_vocabulary_does_not_depend_on_the_order_of_texts():
    texts = ["a b c", "c b", "d e", "7 7"]
    assert Words.learn(texts, 4).words == Words.learn(texts[::-1], 4).words == ["7", "b", "c", "a"]


@torch.inference_mode()
def test_reading_bit_by_bit_with_the_cache_gives_the_states_of_one_pass(model):
    ids = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(0))
    whole = model(ids)
    cache, parts = Cache(model, 2, 9), []
    for begin, end in ((0, 4), (4, 5), (5, 6), (6, 9)):
        positions = torch.arange(begin, end)[None]
        mask = torch.ones(end - begin, end, dtype=torch.bool).tril(begin)[None, None]
        parts.append(model(ids[:, begin:end], positions, mask, cache))
        cache.length = end
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)


def test_padding_and_neighbours_change_nothing(model):
    asked = [[1, 7, 8, 9, 2], [1, 30, 2], [1, 11, 12, 13, 14, 15, 16, 2]]
    together = _greedy(model, asked, [12, 12, 5])
    alone = [
        _greedy(model, [ids], [limit])[0] for ids, limit in zip(asked, [12, 12, 5], strict=True)
    ]
    assert together == alone
    assert [len(ids) for ids, ended in together if not ended] == [
        limit for (_, ended), limit in zip(together, [12, 12, 5], strict=True) if not ended
    ]


@torch.inference_mode()
def test_greedy_answers_are_the_best_tokens_of_a_plain_pass(model):
    """Without cache, batches or padding: grow the sequence by its most likely token."""
    ids = [1, 40, 41, 42, 2]
    (written, _), *_ = _greedy(model, [ids], [10])
    grown: list[int] = []
    while len(grown) < 10:
        best = int(model.logits(model(torch.tensor([ids + grown]))[:, -1]).argmax())
        if best == END:
            break
        grown.append(best)
    assert written == grown


def test_later_tokens_do_not_move_earlier_states(model):
    ids = torch.randint(5, 60, (1, 8), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[0, 5:] = 20
    torch.testing.assert_close(model(ids)[:, :5], model(changed)[:, :5])


def test_training_lowers_the_loss(model):
    pairs = [(f"{a} + {b}", f"= {a + b}") for a in range(4) for b in range(4)]
    settings = {"batch_tokens": 64, "rate": 5e-3, "seed": 0}
    short = train(model.untaught(), pairs, steps=5, **settings)
    long = train(model.untaught(), pairs, steps=150, **settings)
    assert long < 0.5 * short
