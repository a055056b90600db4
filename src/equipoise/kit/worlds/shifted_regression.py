r"""Regression on several source domains, tested on unknown mixtures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from equipoise.core import Rng, UsageError
from equipoise.kit.arrays import Examples

Noise = Literal["normal", "ratio"]

MIDDLE = 0.6744897501960817  # the median of |N(0, 1)|


@dataclass(frozen=True, slots=True)
class Sources:
    """Source domains to learn from, and test sets that mix them.

    Parameters
    ----------
    learn
        Train and calibration rows; ``group`` is the domain.
    tests
        Test sets, each ``(rows, targets)``.
    shares
        Of the domains in each test set, ``(test sets, domains)``.
    """

    learn: Examples
    tests: tuple[tuple[np.ndarray, np.ndarray], ...]
    shares: np.ndarray


def mixed(
    domains: Sequence[tuple[np.ndarray, np.ndarray]],
    rng: Rng,
    *,
    tests: int = 30,
    rows: int = 170,
) -> Sources:
    r"""Split domains into train, calibration and test rows, and mix test sets of the last.

    Of each domain's rows every third is for training, calibration and testing. A test set has
    $\lfloor w_i\, \text{rows} \rfloor$ rows of domain $i$, drawn with replacement, where $w_1$ is
    uniform on [0, 1], $w_2$ on $[0, 1 - w_1]$ and so on; the last domain has what is left.

    Parameters
    ----------
    domains
        Rows and targets of each, 15 or more.
    rng
        Draws shares and test rows.
    tests, rows
        Test sets, and rows in each.

    Raises
    ------
    UsageError
        If a domain has fewer than 15 rows.

    Examples
    --------
    >>> domain = np.zeros((30, 2)), np.arange(30.0)
    >>> found = mixed([domain, domain], Rng(0), tests=4, rows=20)
    >>> len(found.learn.of("train")), len(found.tests), found.shares.shape
    (20, 4, (4, 2))
    """
    for number, (x, _) in enumerate(domains):
        if len(x) < 15:
            raise UsageError(f"Domain {number} has {len(x)} rows; at least 15 are needed.")
    generator = rng.numpy()
    shares = np.empty((tests, len(domains)))
    for test in range(tests):
        left = 1.0
        for place in range(len(domains) - 1):
            shares[test, place] = generator.uniform(0, left)
            left -= shares[test, place]
        shares[test, -1] = left
    pools = [(x[2::3], y[2::3]) for x, y in domains]
    sets = [_drawn(pools, np.floor(share * rows).astype(int), generator) for share in shares]
    sizes = [len(x[0::3]) for x, _ in domains], [len(x[1::3]) for x, _ in domains]
    learn = Examples(
        np.concatenate([x[start::3] for start in (0, 1) for x, _ in domains]),
        np.concatenate([y[start::3] for start in (0, 1) for _, y in domains]),
        np.repeat(["train", "calibration"], [sum(each) for each in sizes]),
        np.concatenate([np.repeat(np.arange(len(domains)), each) for each in sizes]),
    )
    return Sources(learn, tuple(sets), shares)


def _drawn(
    pools: Sequence[tuple[np.ndarray, np.ndarray]], sizes: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    chosen = [rng.integers(len(x), size=size) for (x, _), size in zip(pools, sizes, strict=True)]
    x, y = (
        np.concatenate([pool[part][rows] for pool, rows in zip(pools, chosen, strict=True)])
        for part in (0, 1)
    )
    return x, y


def noise(
    scale: np.ndarray | float, size: int, kind: Noise, generator: np.random.Generator
) -> np.ndarray:
    r"""Return noise of a median absolute value of 0.67 ``scale``.

    Parameters
    ----------
    scale
        $s$, one or one a row.
    size
        How many.
    kind
        ``"normal"``: $s\, N(0, 1)$. ``"ratio"``: $s\, m^2 / N(0, 1)$ with $m$ the median of
        $|N(0, 1)|$, which has the same median size and no mean.
    generator
        Draws it.

    Examples
    --------
    >>> found = noise(2.0, 10_001, "ratio", np.random.default_rng(0))
    >>> float(np.median(np.abs(found)).round(1)), bool(np.abs(found).max() > 1000)
    (1.3, True)
    """
    z = generator.normal(size=size)
    return scale * z if kind == "normal" else scale * MIDDLE**2 / z


def shifted_domains(
    rng: Rng, *, rows: int = 360, features: int = 5, kind: Noise = "normal"
) -> list[tuple[np.ndarray, np.ndarray]]:
    r"""Return three domains that differ in covariates, in function and in noise.

    In domain $k$, $x \sim N(\mu_k, I)$ with $\mu = (-\frac{1}{2}, 0, \frac{1}{2})$ in every
    coordinate and

    $$y = \sin(a^\top x) + \tfrac{1}{2} b^\top x + c_k \cos(d^\top x) + s_k(x)\, \varepsilon, \qquad
    s_k(x) = \sigma_k \left(1 + \tfrac{1}{2} \tanh x_1\right),$$

    with $c = (0, \frac{1}{2}, 1)$, $\sigma = (0.1, 1, 0.4)$ and directions $a, b, d$ of length
    1 drawn anew each time. So one part of the shift is of covariates, which weights can undo,
    and one is of concept, which they cannot: equal covariates have other errors in each domain.

    Parameters
    ----------
    rng
        Draws everything.
    rows
        Of each domain.
    features
        Of each row.
    kind
        Of the noise in the second domain; see `noise`.

    Examples
    --------
    >>> [y.shape for _, y in shifted_domains(Rng(0), rows=30)]
    [(30,), (30,), (30,)]
    """
    generator = rng.numpy()
    directions = generator.normal(size=(3, features))
    a, b, d = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    kinds: tuple[Noise, ...] = ("normal", kind, "normal")
    found = []
    for mean, c, sigma, each in zip(
        (-0.5, 0.0, 0.5), (0.0, 0.5, 1.0), (0.1, 1.0, 0.4), kinds, strict=True
    ):
        x = generator.normal(mean, 1.0, size=(rows, features))
        scale = sigma * (1 + 0.5 * np.tanh(x[:, 0]))
        y = np.sin(x @ a) + 0.5 * x @ b + c * np.cos(x @ d)
        found.append((x, y + noise(scale, rows, each, generator)))
    return found
