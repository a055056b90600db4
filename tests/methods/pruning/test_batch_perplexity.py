import numpy as np
import pytest
import torch

from equipoise.catalog import identity
from equipoise.core import Rng, TokenScores
from equipoise.kit.language.families import random_model
from equipoise.kit.language.tiny import tiny_model
from equipoise.methods.pruning import (
    BatchPerplexity,
    ProbePruning,
    WandaSp,
    batch_stream,
    kept_units,
)
from equipoise.methods.pruning._online import Probed
from equipoise.methods.pruning._scores import mask_overlap

PROSE = "The quick brown fox jumps over the lazy dog, and naps. " * 40
CODE = "def f(x):\n    return [x * i for i in range(10) if i % 2]\n" * 40


@pytest.fixture
def data(tmp_path):
    for name, text in (("prose", PROSE), ("code", CODE)):
        (tmp_path / f"{name}.txt").write_text(text)
    return str(tmp_path / "prose.txt"), str(tmp_path / "code.txt")


@pytest.fixture
def probed(data):
    return ProbePruning(
        0.4, spared=0, samples=4, length=16, calibration=data[0], momentum=0.5
    ).apply(random_model("llama"), Rng(0))


def perform(task, subject, units=None):
    units = list(task.units(Rng(0))) if units is None else units
    return task.perform(subject, units, Rng(0))


class Recording:
    def __init__(self):
        self.asked = []

    def tokenize(self, text):
        return list(text.encode())

    def log_likelihood(self, pairs):
        self.asked.append([bytes([*context, *rest]).decode() for context, rest in pairs])
        return [TokenScores(np.full(len(rest), -0.5)) for _, rest in pairs]


def windows(text, count, start=0, length=16):
    return [text[(start + i) * length : (start + i + 1) * length] for i in range(count)]


def test_batches_take_turns_and_share_no_window(data):
    subject = Recording()
    found = perform(BatchPerplexity(4, 3, 16, data=data), subject)
    assert subject.asked == [
        windows(PROSE, 3), windows(CODE, 3), windows(PROSE, 3, 3), windows(CODE, 3, 3),
    ]  # fmt: skip
    assert [outcome.scores["nll"] for outcome in found] == [0.5] * 4
    assert {outcome.scores["tokens"] for outcome in found} == {45.0}
    units = list(BatchPerplexity(4, 3, 16, data=data).units(Rng(0)))
    assert [unit.stratum for unit in units] == [data[0], data[1], data[0], data[1]]


def test_mixed_batches_hold_all_texts(data):
    subject = Recording()
    perform(BatchPerplexity(2, 3, 16, mixed=True, data=data), subject)
    prose, code = windows(PROSE, 3), windows(CODE, 3)
    assert subject.asked == [[prose[0], code[0], prose[1]], [code[1], prose[2], code[2]]]


def test_a_stream_is_a_unit_of_several_batches(data):
    subject = Recording()
    (one, _) = perform(BatchPerplexity(2, 2, 16, stream=2, data=data), subject)
    assert subject.asked[:2] == [windows(PROSE, 2), windows(CODE, 2)]
    assert one.scores["tokens"] == 60.0


def test_scores_are_those_of_one_pass_of_the_whole_batch(data, probed):
    task = BatchPerplexity(2, 5, 16, data=data)
    for unit, outcome in zip(range(2), perform(task, probed), strict=True):
        text = (PROSE, CODE)[unit]
        tokens = torch.tensor([list(each.encode()) for each in windows(text, 5)])
        order = sorted(range(5), key=lambda row: tokens[row].tolist())
        with torch.no_grad():
            logs = probed.module(tokens[order][:, :-1]).logits.log_softmax(-1)
        found = logs.gather(2, tokens[order][:, 1:, None]).double()
        assert outcome.scores["nll"] == pytest.approx(-found.mean().item(), abs=1e-5)


def test_neither_order_nor_company_nor_batch_size_matters(data, probed):
    task = BatchPerplexity(4, 3, 16, stream=2, data=data)
    units = list(task.units(Rng(0)))
    skip = {"seconds"}

    def scores(subject, units):
        return {
            outcome.unit: {k: v for k, v in outcome.scores.items() if k not in skip}
            for outcome in perform(task, subject, units)
        }

    together = scores(probed, units)
    assert scores(probed, units[::-1]) == together
    assert {k: v for unit in units for k, v in scores(probed, [unit]).items()} == together
    probed.batch_size = 7
    assert scores(probed, units) == together
    assert all(part.recent is None for part in probed.module.modules() if isinstance(part, Probed))


def test_history_moves_along_a_stream(data, probed):
    frozen = ProbePruning(
        0.4, spared=0, samples=4, length=16, calibration=data[0], momentum=1.0
    ).apply(random_model("llama"), Rng(0))
    alone, stream = (BatchPerplexity(1, 3, 16, stream=n, data=data) for n in (1, 2))
    assert perform(alone, probed)[0].scores["nll"] == perform(alone, frozen)[0].scores["nll"]
    assert perform(stream, probed)[0].scores["nll"] != perform(stream, frozen)[0].scores["nll"]


def test_overlap_is_between_successive_masks(data, probed):
    (outcome,) = perform(BatchPerplexity(1, 4, 16, stream=2, data=data), probed)
    frozen = ProbePruning(
        0.4, spared=0, samples=4, length=16, calibration=data[0], momentum=0.5
    ).apply(random_model("llama"), Rng(0))
    masks = []
    with batch_stream(frozen.module), torch.no_grad():
        for text in (PROSE, CODE):
            rows = sorted(list(each.encode())[:-1] for each in windows(text, 4))
            frozen.module(torch.tensor(rows))
            masks.append({name: each for name, (each, _) in kept_units(frozen.module).items()})
    shared = [mask_overlap(masks[0][name], masks[1][name], 64) for name in masks[0]]
    assert outcome.scores["overlap"] == pytest.approx(np.mean(shared))
    assert 0 < outcome.scores["overlap"] < 1
    static = WandaSp(0.4, spared=0, samples=4, length=16, calibration=data[0]).apply(
        random_model("llama"), Rng(0)
    )
    (still,) = perform(BatchPerplexity(1, 4, 16, stream=2, data=data), static)
    assert still.scores["overlap"] == 1.0
    (dense,) = perform(BatchPerplexity(1, 4, 16, stream=2, data=data), random_model("llama"))
    assert "overlap" not in dense.scores


def test_cost_counts_products(data):
    (found,) = perform(BatchPerplexity(1, 3, 9, data=data), tiny_model())
    block = 32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64
    per_token = 2 * block  # two blocks
    head = 32 * 259 * 3 * 8  # where a token is scored
    attention = found.scores["gflop"] * 1e9 / 2 - (per_token * 3 * 8 + head)
    assert attention >= 0
    assert attention % (2 * 4 * 8 * 3) == 0, "what is left, if anything, is products in attention"
    assert found.scores["seconds"] > 0


def test_text_that_is_too_short_costs_its_own_units(data):
    found = perform(BatchPerplexity(100, 10, 64, data=data), Recording())
    states = [outcome.status for outcome in found]
    assert states.count("ok") == len(PROSE) // 640 + len(CODE) // 640
    assert found[-1].error_kind == "too_short"
    assert "ask for fewer or smaller batches." in found[-1].error


def test_identity_follows_the_texts(data, tmp_path):
    other = tmp_path / "copy.txt"
    other.write_text(PROSE)
    one = BatchPerplexity(data=data)
    assert identity(one) == identity(BatchPerplexity(data=(str(other), data[1])))
    assert identity(one) != identity(BatchPerplexity(data=(data[1], data[0])))
