import numpy as np
import pytest
import torch
from torch import nn

from equipoise.core import Rng, UsageError
from equipoise.kit.language.tiny import tiny_model
from equipoise.kit.torch.calibration import calibration_batches
from equipoise.kit.torch.subjects import ModuleSubject


def test_windows_do_not_overlap(tmp_path):
    text = tmp_path / "text.txt"
    letters = Rng(0).numpy().choice(list("abcdefghij"), 1000)
    text.write_text("".join(letters))
    subject = tiny_model()
    found = calibration_batches(subject, str(text), Rng(0), samples=5, length=100)
    assert [batch.shape for batch in found] == [(1, 100)] * 5
    whole = subject.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    windows = [whole[i : i + 100] for i in range(0, 1000, 100)]
    places = [windows.index(batch[0].tolist()) for batch in found]
    assert places == sorted(set(places))
    again = calibration_batches(subject, str(text), Rng(0), samples=5, length=100)
    assert all(torch.equal(one, two) for one, two in zip(found, again, strict=True))
    assert len(calibration_batches(subject, str(text), Rng(0), samples=99, length=100)) == 10


def test_rows_from_an_array_and_a_table(tmp_path):
    rows = np.arange(12.0).reshape(6, 2)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "rows.csv").write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in rows) + "\n")
    subject = ModuleSubject(nn.Linear(2, 1))
    for name in ("rows.npy", "rows.csv"):
        found = calibration_batches(subject, str(tmp_path / name), Rng(0), samples=2, length=2)
        assert [batch.shape for batch in found] == [(2, 2)] * 2
        assert {tuple(row) for batch in found for row in batch.tolist()} <= set(map(tuple, rows))


def test_faults_are_told(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("ab")
    with pytest.raises(UsageError, match="has 2 tokens, too few"):
        calibration_batches(tiny_model(), str(short), Rng(0), length=10)
    plain = ModuleSubject(nn.Linear(2, 1))
    with pytest.raises(UsageError, match="without a tokenizer is calibrated on rows"):
        calibration_batches(plain, "builtin:python_topics", Rng(0))
    np.save(tmp_path / "bad.npy", np.array([[np.nan]]))
    with pytest.raises(UsageError, match="finite numbers"):
        calibration_batches(plain, str(tmp_path / "bad.npy"), Rng(0))
    (tmp_path / "torn.npy").write_bytes(b"no array")
    with pytest.raises(UsageError, match="cannot be read as an array"):
        calibration_batches(plain, str(tmp_path / "torn.npy"), Rng(0))
