r"""Right-censored survival times whose law is known, in six settings.

$X$ is uniform on $[0, 4]^d$, $\ln T \sim N(\mu(X), \sigma(X)^2)$, and the censoring time $C$ is
exponential or log-normal given $X$, independent of $T$. Seen are $\min(T, C)$ and $1(T \le C)$.
The settings are those of the code of "Conformalized Survival Analysis with Adaptive Cutoffs"
(Gui et al., 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from equipoise.core import Rng

_B = 20 / np.sqrt(1000)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_TAIL = 8.0  # standard deviations; what lies beyond is below 1e-15


class Draw(NamedTuple):
    """Features ``(n, d)``, survival times and censoring times ``(n,)``."""

    inputs: np.ndarray
    times: np.ndarray
    censoring: np.ndarray

    @property
    def targets(self) -> np.ndarray:
        """What is seen: ``(n, 2)``, time and event."""
        seen = np.minimum(self.times, self.censoring)
        return np.stack([seen, self.times <= self.censoring], axis=1)


@dataclass(frozen=True)
class RightCensored:
    """One of six laws of survival and censoring times.

    Parameters
    ----------
    setting
        1 to 6; 1 to 4 have one feature, 5 and 6 have ten.
    censored
        False: the censoring time is infinite.

    Examples
    --------
    >>> world = RightCensored(2)
    >>> world.quantiles(np.array([[3.0]]), [0.5]).round(2)
    array([[20.09]])
    """

    setting: int
    censored: bool = True

    @property
    def features(self) -> int:
        return 1 if self.setting <= 4 else 10

    def draw(self, n: int, rng: Rng) -> Draw:
        """Return ``n`` independent rows."""
        generator = rng.numpy()
        x = generator.uniform(0, 4, (n, self.features))
        mu, sd = self.law(x)
        times = np.exp(mu + sd * generator.normal(size=n))
        if self.setting == 4:
            censoring = np.exp(self._middle(x) + 0.5 * generator.normal(size=n))
        else:
            censoring = generator.exponential(size=n) / self._rate(x)
        return Draw(x, times, censoring if self.censored else np.full(n, np.inf))

    def law(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Return $\mu$ and $\sigma$ of the log of the survival time, each ``(n,)``."""
        first, one = x[:, 0], np.ones(len(x))
        if self.setting == 1:
            return _B * first, 2 * one
        if self.setting <= 4:
            high, slope = {2: (3, 1), 3: (2, 1), 4: (3, 1.5)}[self.setting]
            return np.where(first > 2, high, slope * first), 0.5 * one
        mu = _B * (first + np.sqrt(x[:, 2] * x[:, 4])) / 5 + 1
        return mu, one if self.setting == 5 else (x[:, 1] + 2) / 4

    def quantiles(self, x: np.ndarray, levels: np.ndarray | list[float]) -> np.ndarray:
        """Return the true quantiles of the survival time, ``(n, levels)``."""
        mu, sd = self.law(x)
        found: np.ndarray = np.exp(mu[:, None] + sd[:, None] * ndtri(np.asarray(levels)))
        return found

    def still_followed(self, x: np.ndarray, times: np.ndarray) -> np.ndarray:
        r"""Return $P(C \ge t \mid x)$ for times ``(n, k)``."""
        if not self.censored:
            return np.ones(times.shape)
        if self.setting == 4:
            with np.errstate(divide="ignore"):
                return np.asarray(ndtr((self._middle(x)[:, None] - np.log(times)) / 0.5))
        return np.asarray(np.exp(-self._rate(x)[:, None] * times))

    def event_probability(self, x: np.ndarray) -> np.ndarray:
        r"""Return $\pi(x) = P(e = 1 \mid x) = \int_0^1 P(C \ge q_u(x) \mid x)\, du$."""
        return self._integral(x, 1.0)

    def seen_miss(self, x: np.ndarray, level: float) -> np.ndarray:
        r"""Return $P(\tilde T < q_\tau \mid x) = 1 - (1 - \tau) P(C \ge q_\tau \mid x)$."""
        still = self.still_followed(x, self.quantiles(x, [level]))[:, 0]
        return np.asarray(1 - (1 - level) * still)

    def event_miss(self, x: np.ndarray, level: float) -> np.ndarray:
        r"""Return $P(T < q_\tau \mid x, e = 1) = \int_0^\tau P(C \ge q_u \mid x) du / \pi(x)$."""
        return np.asarray(self._integral(x, level) / self.event_probability(x))

    def _integral(self, x: np.ndarray, level: float) -> np.ndarray:
        # In z with u = Phi(z), where the integrand is smooth at both ends.
        end = _TAIL if level >= 1 else float(ndtri(level))
        half = (end + _TAIL) / 2
        z = half * _NODES + (end - _TAIL) / 2
        density = half * _WEIGHTS * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        mu, sd = self.law(x)
        still = self.still_followed(x, np.exp(mu[:, None] + sd[:, None] * z))
        found: np.ndarray = still @ density
        return found

    def _rate(self, x: np.ndarray) -> np.ndarray:
        if self.setting <= 2:
            return np.full(len(x), 0.1)
        if self.setting == 3:
            return 0.25 + (6 + x[:, 0]) / 100
        return 0.1 * (x[:, 9] + 0.5)

    def _middle(self, x: np.ndarray) -> np.ndarray:
        return 2 + (2 - x[:, 0]) / 50
