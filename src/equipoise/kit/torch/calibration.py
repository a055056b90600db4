"""Inputs that a treatment may learn ranges and correlations from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.core import Rng, UsageError
from equipoise.kit.data import read_rows, read_texts


def calibration_batches(
    subject: Any, data: str, rng: Rng, *, samples: int = 16, length: int = 512
) -> list[Tensor]:
    """Return batches to run a subject's module on.

    A subject with a tokenizer gets windows of text, drawn without replacement
    from those that do not overlap; fewer when the text has no more. Any other
    gets rows of features.

    Parameters
    ----------
    subject
        A live subject with a module.
    data
        Text as in `equipoise.kit.data.read_texts`, or rows: a ``.npy`` array
        ``(rows, features)`` or a table whose columns are all numbers.
    rng
        Draws windows or rows.
    samples
        Windows of text, or batches of rows.
    length
        Tokens in a window, or rows in a batch.

    Returns
    -------
    list of torch.Tensor
        Token ids ``(1, length)``, or features ``(length, features)``.

    Raises
    ------
    UsageError
        If the data hold less than one window, or are not of the kind the
        module takes.
    """
    generator = rng.numpy()
    if subject.tokenizer is None:
        rows = _rows(data)
        chosen = generator.permutation(len(rows))[: samples * length]
        found = torch.from_numpy(rows[chosen])
        return [found[start : start + length] for start in range(0, len(found), length)]
    text = "\n\n".join(read_texts(data))
    ids = subject.tokenizer(text, add_special_tokens=False)["input_ids"]
    windows = len(ids) // length
    if windows == 0:
        raise UsageError(
            f"{data} has {len(ids)} tokens, too few to calibrate on windows of {length}."
        )
    starts = np.sort(generator.permutation(windows)[:samples]) * length
    return [torch.tensor(ids[start : start + length])[None] for start in starts]


def _rows(data: str) -> np.ndarray:
    if data.endswith(".npy"):
        try:
            rows = np.load(data, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"{data} cannot be read as an array ({error}).") from error
    else:
        table = read_rows(data)
        names = [name for name, value in table[0].items() if not isinstance(value, str)]
        if not names:
            raise UsageError(
                f"{data} holds text; a module without a tokenizer is calibrated on rows of numbers."
            )
        try:
            rows = np.array([[row[name] for name in names] for row in table], float)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{data}: every row must have the same numbers ({error}).") from error
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        raise UsageError(f"{data} must hold rows (n, features) of finite numbers.")
    return np.asarray(rows, np.float64)
