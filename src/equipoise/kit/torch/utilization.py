r"""How well data fill the grid of a quantiser: the quantisation space utilisation rate.

Numbers of d channels that are nearly Gaussian lie in an ellipsoid; a quantiser with one
range for all channels spans a cube around it. The ratio of their volumes (QSUR) says how
much of the grid is used. Everything here is a plain function of arrays.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import gammaln
from scipy.stats import chi2

from equipoise.core import UsageError

Box = Literal["exact", "leading"]


def quantization_space_utilization(
    x: np.ndarray, *, box: Box = "exact", coverage: float = 0.99, per_dimension: bool = False
) -> float:
    r"""Return the QSUR of data: the volume they take over the volume their grid spans.

    Mean and covariance are those of the rows; see `ellipsoid_utilization`.

    Parameters
    ----------
    x
        Data ``(n, d)`` with more rows than channels: activations with one row a
        token, or a weight with one row an output channel.
    box, coverage, per_dimension
        As in `ellipsoid_utilization`.

    Raises
    ------
    UsageError
        If there are too few rows, numbers that are not finite, or channels
        that are constant or depend on each other, which leave no volume.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100_000, 2))
    >>> round(quantization_space_utilization(x), 2)  # pi / 4
    0.78
    >>> round(quantization_space_utilization(x * [4.0, 1.0]), 2)
    0.2
    """
    rows = np.asarray(x, np.float64)
    if rows.ndim != 2 or rows.shape[0] <= rows.shape[1]:
        raise UsageError(
            "quantization_space_utilization: x must be an array (n, d) with more rows than"
            f" channels, got shape {rows.shape}."
        )
    covariance = np.cov(rows, rowvar=False).reshape(rows.shape[1], rows.shape[1])
    return ellipsoid_utilization(
        rows.mean(0), covariance, box=box, coverage=coverage, per_dimension=per_dimension
    )


def ellipsoid_utilization(
    mean: np.ndarray,
    covariance: np.ndarray,
    *,
    box: Box = "exact",
    coverage: float = 0.99,
    per_dimension: bool = False,
) -> float:
    r"""Return the QSUR of a Gaussian with this mean and covariance.

    With $\chi^2$ the quantile of d degrees of freedom at ``coverage``, the data take

    $$V_X = \frac{\pi^{d/2}}{\Gamma(d/2 + 1)} (\chi^2)^{d/2} \sqrt{\det \Sigma},$$

    the grid spans $V_S = (2 m)^d$, and QSUR is $V_X / V_S$. The half side m is

    - ``exact``: $\max_j (\sqrt{\chi^2 \Sigma_{jj}} + |\mu_j|)$, the smallest cube around
      zero that holds the ellipsoid;
    - ``leading``: $\max_j (\sqrt{\chi^2 \lambda_1} |q_{1j}| + |\mu_j|)$, the paper's, by the
      end of the longest axis alone ($\lambda_1, q_1$: first eigenvalue and
      eigenvector). It is too small where other axes reach further, so the rate may
      exceed one, and it is not defined where the two largest eigenvalues are equal.

    Without a mean ``coverage`` cancels. A rotation can raise the rate up to where no
    channel is larger than the others; scales up to $\Sigma$ proportional to the
    identity, where any rotation gives a ball in a cube.

    Parameters
    ----------
    mean
        Shape ``(d,)``.
    covariance
        Shape ``(d, d)``.
    box
        ``exact`` or ``leading``.
    coverage
        Share of the data in the ellipsoid.
    per_dimension
        Return $(\ln V_X - \ln V_S) / d$, which does not underflow in many
        dimensions.

    References
    ----------
    OSTQuant, ICLR 2025, section on the quantisation space utilisation rate.

    Examples
    --------
    >>> stretched = np.diag([4.0, 1.0])
    >>> turn = np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)
    >>> turned = turn @ stretched @ turn.T
    >>> [round(ellipsoid_utilization(np.zeros(2), s), 3) for s in (stretched, turned, np.eye(2))]
    [0.393, 0.628, 0.785]
    >>> round(ellipsoid_utilization(np.zeros(2), turned, box="leading"), 3)
    0.785
    """
    mean, covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
    d = len(mean)
    if covariance.shape != (d, d) or d == 0:
        raise UsageError(
            f"ellipsoid_utilization: covariance must be {d} by {d}, got {covariance.shape}."
        )
    if not 0 < coverage < 1:
        raise UsageError(f"ellipsoid_utilization: coverage must be within 0 and 1, got {coverage}.")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise UsageError("ellipsoid_utilization: mean and covariance must be finite.")
    sign, log_determinant = np.linalg.slogdet(covariance)
    if sign <= 0:
        raise UsageError(
            "ellipsoid_utilization: the covariance must be positive definite; some channels are"
            " constant or depend on each other, or there are too few rows."
        )
    quantile = float(chi2.ppf(coverage, d))
    if box == "exact":
        reach = np.sqrt(quantile * np.diagonal(covariance))
    elif box == "leading":
        values, vectors = np.linalg.eigh(covariance)
        reach = np.sqrt(quantile * values[-1]) * np.abs(vectors[:, -1])
    else:
        raise UsageError(f"ellipsoid_utilization: box must be 'exact' or 'leading', got {box!r}.")
    half = float((reach + np.abs(mean)).max())
    ball = d / 2 * np.log(np.pi * quantile) - gammaln(d / 2 + 1)
    log_rate = float(ball + log_determinant / 2 - d * np.log(2 * half))
    return log_rate / d if per_dimension else float(np.exp(log_rate))
