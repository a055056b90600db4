"""The paper's airfoil recipe: three domains dealt out of one table of measurements."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np

from equipoise.core import Rng, UsageError
from equipoise.kit.data.identity import content_hash
from equipoise.kit.worlds.shifted_regression import MIDDLE, Noise, noise


def airfoil_domains(
    table: np.ndarray, rng: Rng, *, kind: Noise = "ratio"
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the paper's three domains of airfoil rows; see `MultiSourceRegression`.

    Parameters
    ----------
    table
        Frequency, angle, length, velocity, thickness and sound pressure, ``(n, 6)``.
    rng
        Deals rows out and draws the noise.
    kind
        Of the noise in the second domain.

    Examples
    --------
    >>> table = np.random.default_rng(0).uniform(1, 2, size=(90, 6))
    >>> [len(y) for _, y in airfoil_domains(table, Rng(0))]
    [30, 30, 30]
    """
    generator = rng.numpy()
    low, high = np.quantile(table[:, 0], [0.33, 0.66])
    third = (table[:, 0] >= low).astype(int) + (table[:, 0] >= high)
    dealt = []
    for each in range(3):
        rows = generator.permutation(table[third == each])
        most = math.ceil(0.7 * len(rows))
        some = most + math.ceil(0.66 * (len(rows) - most))
        dealt.append((rows[:most], rows[most:some], rows[some:]))
    found = []
    for domain, shares in enumerate(((0, 1, 2), (1, 2, 0), (2, 0, 1))):
        rows = np.concatenate([dealt[each][share] for each, share in enumerate(shares)])
        y = rows[:, 5]
        scale = (y / 100, y / 10 / MIDDLE**2, 10.0)[domain]
        y = y + noise(scale, len(y), kind if domain == 1 else "normal", generator)
        found.append((rows[:, :5], np.sign(y) * np.sqrt(np.abs(y))))
    return found


def read_airfoil(path: str) -> np.ndarray:
    """Return the rows ``(n, 6)`` of a file in the format of ``airfoil_self_noise.dat``.

    Parameters
    ----------
    path
        Numbers in six tab-separated columns, no header.

    Raises
    ------
    UsageError
        If the file is not there or not in this format.

    Examples
    --------
    >>> read_airfoil("nowhere.dat")
    Traceback (most recent call last):
    ...
    equipoise.core.errors.UsageError: nowhere.dat: there is no such file. Download ...
    """
    existing_airfoil(path)
    return _parsed(path, str(content_hash(path)))


@functools.lru_cache(maxsize=2)
def _parsed(path: str, content: str) -> np.ndarray:
    lines = existing_airfoil(path).read_text(encoding="utf-8", errors="replace").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = [float(cell) for cell in line.split("\t")]
        except ValueError:
            row = []
        if len(row) != 6 or not all(map(math.isfinite, row)):
            raise UsageError(
                f"{path}:{number}: must be six tab-separated numbers (frequency, angle, chord "
                f"length, velocity, thickness, sound pressure), got {line[:60]!r}."
            )
        rows.append(row)
    if len(rows) < 60:
        raise UsageError(f"{path}: has {len(rows)} rows; the recipe needs at least 60.")
    return np.array(rows)


def existing_airfoil(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise UsageError(
            f"{path}: there is no such file. Download airfoil_self_noise.dat from the UCI Machine "
            f'Learning Repository (data set "Airfoil Self-Noise") and give its path.'
        )
    return found
