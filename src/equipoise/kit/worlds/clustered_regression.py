r"""Rows in clusters whose values have a smooth part and an offset for each cluster.

$$y = \beta \cdot x + \sin(x_1) + b_{c(x)} + \varepsilon, \qquad b_c \sim N(0, \sigma_b^2)$$

A learner that memorises knows the offsets of the clusters it has seen, and is misled by them in
new ones; a smooth one never knows them. Which is better depends on where the rows to come lie,
and that is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from equipoise.core import Rng
from equipoise.kit.arrays.examples import Examples

Learner = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Maps training rows, their targets and other rows to predictions."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusteredRegression:
    """One world: its clusters, their offsets and the smooth part.

    Parameters
    ----------
    centres
        ``(clusters, dimensions)``.
    offsets
        ``(clusters,)``.
    slope
        ``(dimensions,)``.
    known
        How many clusters, the first ones, have labelled rows.
    spread, noise
        Standard deviations of rows around their centre, and of values.

    Examples
    --------
    >>> world = ClusteredRegression.draw(Rng(0))
    >>> rows = world.deployment(100, novelty=1.0, rng=Rng(1))
    >>> bool((rows.group >= world.known).all())
    True
    """

    centres: np.ndarray
    offsets: np.ndarray
    slope: np.ndarray
    known: int
    spread: float = 0.3
    noise: float = 0.2

    @classmethod
    def draw(
        cls, rng: Rng, *, clusters: int = 40, dimensions: int = 4, offset: float = 1.0
    ) -> ClusteredRegression:
        """Return a world with as many clusters unknown as known."""
        generator = rng.numpy()
        return cls(
            generator.normal(scale=2.0, size=(2 * clusters, dimensions)),
            generator.normal(scale=offset, size=2 * clusters),
            generator.normal(scale=0.5, size=dimensions),
            clusters,
        )

    def labelled(self, rng: Rng, *, smallest: int = 1, largest: int = 13) -> Examples:
        """Return labelled rows of the known clusters, each of its own size; groups are clusters."""
        generator = rng.numpy()
        sizes = generator.integers(smallest, largest + 1, size=self.known)
        return self._rows(np.repeat(np.arange(self.known), sizes), generator)

    def deployment(self, n: int, novelty: float, rng: Rng) -> Examples:
        """Return rows to come, a share ``novelty`` of them from unknown clusters."""
        generator = rng.numpy()
        new = generator.random(n) < novelty
        cluster = generator.integers(self.known, size=n)
        return self._rows(cluster + self.known * new, generator)

    def _rows(self, cluster: np.ndarray, generator: np.random.Generator) -> Examples:
        shape = (len(cluster), self.centres.shape[1])
        x = self.centres[cluster] + self.spread * generator.normal(size=shape)
        y = x @ self.slope + np.sin(x[:, 0]) + self.offsets[cluster]
        y = y + self.noise * generator.normal(size=len(cluster))
        return Examples(x, y, np.full(len(cluster), "test"), cluster)


def gaussian(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Return :math:`s(x, y) = \exp(-\|x - y\|^2 / 2)`, about 0.7 within a cluster.

    Examples
    --------
    >>> gaussian(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(3).tolist()
    [[1.0, 0.368]]
    """
    return np.asarray(np.exp(-_squares(a, b) / 2))


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    inner = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2 * a @ b.T
    return np.asarray(np.maximum(inner, 0.0))


def _nearest(k: int) -> Learner:
    def predict(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
        near = np.argpartition(_squares(rows, x), min(k, len(x)) - 1, axis=1)[:, :k]
        return np.asarray(y[near].mean(axis=1))

    return predict


def _linear(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    centre, mean = x.mean(axis=0), y.mean()
    inner = (x - centre).T @ (x - centre) + np.eye(x.shape[1])
    slope = np.linalg.solve(inner, (x - centre).T @ (y - mean))
    return np.asarray((rows - centre) @ slope + mean)


def _smooth(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Kernel ridge regression so wide that a cluster is a point."""
    wide, ridge = 18.0, 1.0
    weights = np.linalg.solve(np.exp(-_squares(x, x) / wide) + ridge * np.eye(len(x)), y - y.mean())
    return np.asarray(np.exp(-_squares(rows, x) / wide) @ weights + y.mean())


LEARNERS: Mapping[str, Learner] = {
    "nearest": _nearest(1),
    "nearest_5": _nearest(5),
    "linear": _linear,
    "smooth": _smooth,
}
"""From the one that memorises to those that do not."""
