import math

import numpy as np
import pytest

from equipoise.catalog import identity
from equipoise.core import Rng, TokenScores, UsageError
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.language import Perplexity

TEXT = (
    "The quick brown fox jumps over the lazy dog.\nNaïve café owners — all of them — agreed. " * 8
)


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "prose.txt"
    file.write_text(TEXT, encoding="utf-8")
    return str(file)


def perform(task, subject, units=None):
    units = list(task.units(Rng(0))) if units is None else units
    return task.perform(subject, units, Rng(0))


def forward(subject, ids, first):
    """Return log p of ids[first:] given what comes before, by one plain pass."""
    import torch

    with torch.no_grad():
        logits = subject.module(torch.tensor([ids])).logits[0].double()
    logs = torch.log_softmax(logits, -1)
    return [logs[i - 1, ids[i]].item() for i in range(first, len(ids))]


def test_windows_agree_with_plain_forward_passes(data):
    subject = tiny_model(seed=2)
    task = Perplexity(windows=4, length=64, data=data)
    ids = subject.tokenize(TEXT)
    assert ids == list(TEXT.encode())
    for i, outcome in enumerate(perform(task, subject)):
        logs = forward(subject, ids[i * 64 : (i + 1) * 64], 1)
        assert outcome.scores["tokens"] == 63
        assert outcome.scores["nll"] == pytest.approx(-np.mean(logs), abs=1e-4)
        assert outcome.scores["log_likelihood"] == pytest.approx(sum(logs), abs=1e-2)
        assert outcome.scores["bits_per_byte"] == pytest.approx(
            -sum(logs) / math.log(2) / outcome.scores["bytes"], abs=1e-4
        )
        assert outcome.output["perplexity"] == pytest.approx(math.exp(-np.mean(logs)), rel=1e-3)


def test_strided_windows_score_each_token_once_with_the_overlap_as_context(data):
    subject = tiny_model(seed=2)
    task = Perplexity(windows=5, length=64, stride=16, data=data)
    ids = subject.tokenize(TEXT)
    outcomes = perform(task, subject)
    assert [o.scores["tokens"] for o in outcomes] == [63, 16, 16, 16, 16]
    for i, outcome in enumerate(outcomes):
        window = ids[i * 16 : i * 16 + 64]
        logs = forward(subject, window, 48 if i else 1)
        assert outcome.scores["nll"] == pytest.approx(-np.mean(logs), abs=1e-4)


class Recording:
    """Cuts text into pieces of a few bytes and keeps what it is asked; every token has p = 1/2."""

    def __init__(self, piece):
        self.piece = piece
        self.pairs = []
        self.calls = 0

    def tokenize(self, text):
        self.calls += 1
        return list(range(-(-len(text.encode()) // self.piece)))

    def log_likelihood(self, pairs):
        self.pairs += pairs
        sizes = [len(self.tokenize(c)) if isinstance(c, str) else len(c) for _, c in pairs]
        return [TokenScores(np.full(size, -math.log(2))) for size in sizes]


@pytest.mark.parametrize("stride", [None, 40])
def test_byte_windows_are_the_same_text_for_every_tokenizer(data, stride):
    task = Perplexity(windows=5, length=100, stride=stride, unit="bytes", data=data)
    fine, coarse = Recording(1), Recording(7)
    a, b = perform(task, fine), perform(task, coarse)
    assert fine.pairs == coarse.pairs
    assert [o.scores["bytes"] for o in a] == [o.scores["bytes"] for o in b]
    # One byte a token, one bit a token.
    assert [o.scores["bits_per_byte"] for o in a] == pytest.approx([1.0] * 5)
    for (context, rest), outcome in zip(fine.pairs, a, strict=True):
        assert context.strip()
        assert context + rest in TEXT
        assert rest[0] in " \n", "the edges are those of words"
        assert len(rest.encode()) == outcome.scores["bytes"]
    if stride:
        scored = "".join(rest for _, rest in fine.pairs[1:])
        assert scored in TEXT, "nothing is left out and nothing is scored twice"


def test_text_without_blanks_is_cut_between_characters(tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("é" * 600, encoding="utf-8")
    task = Perplexity(windows=3, length=301, unit="bytes", data=str(file))
    outcomes = perform(task, Recording(1))
    assert {o.status for o in outcomes} == {"ok"}


def test_the_text_is_tokenised_once_a_subject(data):
    task = Perplexity(windows=4, length=32, data=data)
    subject = Recording(1)
    units = list(task.units(Rng(0)))
    for unit in units:
        perform(task, subject, [unit])
    assert subject.calls == 1


def test_windows_beyond_the_text_are_errors_that_say_how_many_there_are(data):
    size = len(TEXT.encode())
    task = Perplexity(windows=20, length=64, data=data)
    outcomes = perform(task, Recording(1))
    most = size // 64
    assert [o.status for o in outcomes] == ["ok"] * most + ["error"] * (20 - most)
    assert outcomes[-1].error_kind == "too_short"
    assert outcomes[-1].error.endswith(
        f"has {size} tokens, too few for window 20 of 64: "
        f"ask for at most {most} windows, or for shorter ones."
    )
    strided = Perplexity(windows=40, length=64, stride=16, data=data)
    ok = [o for o in perform(strided, Recording(1)) if o.status == "ok"]
    assert len(ok) == min(40, (size - 64) // 16 + 1)


def test_a_window_the_model_cannot_take_costs_itself_only(tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("word " * 400)
    outcomes = perform(Perplexity(windows=2, length=600, data=str(file)), tiny_model())
    assert {o.error_kind for o in outcomes} == {"too_long"}


def test_neither_order_nor_company_matters(data):
    task = Perplexity(windows=6, length=48, data=data)
    subject = tiny_model()
    units = list(task.units(Rng(0)))
    together = perform(task, subject, units)
    turned = perform(task, subject, units[::-1])[::-1]
    alone = [perform(task, subject, [unit])[0] for unit in units]
    for a, b, c in zip(together, turned, alone, strict=True):
        assert a.scores == pytest.approx(b.scores, abs=1e-5)
        assert a.scores == pytest.approx(c.scores, abs=1e-5)


def test_units_depend_on_nothing_but_their_number():
    units = list(Perplexity(windows=3, length=8).units(Rng(9)))
    assert [u.id for u in units] == ["window-0000", "window-0001", "window-0002"]


def test_identity_follows_the_text(data, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(TEXT)
    assert identity(Perplexity(data=data)) == identity(Perplexity(data=str(other)))
    other.write_text(TEXT + "!")
    assert identity(Perplexity(data=data)) != identity(Perplexity(data=str(other)))


def test_wrong_parameters_are_one_sentence():
    with pytest.raises(UsageError, match="stride must be at most the length of 8, got 9"):
        Perplexity(length=8, stride=9)
    with pytest.raises(UsageError, match="length must be an integer from 2"):
        Perplexity(length=1)
