"""What a next-token distribution says: its entropy, its mass on answers, its distance from another.

Everything here works on arrays of natural log-probabilities, one row a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from equipoise.core import UsageError

Array = npt.NDArray[np.float64]

FLOOR = 1e-8
"""Added to probabilities before the logarithm of a divergence, as the paper does."""


def intervention_kl(control: npt.ArrayLike, treated: npt.ArrayLike) -> Array:
    r"""Return how far a treated model's next-token distribution is from the control's, in nats.

    $\mathrm{KL}(P_0 \| P_\alpha) = \sum_v p_0(v)\,[\ln(p_0(v) + 10^{-8}) -
    \ln(p_\alpha(v) + 10^{-8})]$ over the whole vocabulary. The small number keeps
    it finite where the treated model rules a token out.

    Parameters
    ----------
    control, treated
        Log-probabilities, shape ``(prompts, vocabulary)``.

    Returns
    -------
    numpy.ndarray
        Shape ``(prompts,)``; never below zero.

    References
    ----------
    "Improving Reasoning Performance in Large Language Models via Representation
    Engineering", ICLR 2025.

    Examples
    --------
    >>> even, tilted = np.log([[0.5, 0.5]]), np.log([[0.75, 0.25]])
    >>> intervention_kl(even, tilted).round(4), intervention_kl(even, even)
    (array([0.1438]), array([0.]))
    """
    p, q = (np.exp(_rows(each, "intervention_kl")) for each in (control, treated))
    if p.shape != q.shape:
        raise UsageError(
            f"intervention_kl: both must have one shape, got {p.shape} and {q.shape}; the models"
            " must share a vocabulary."
        )
    found: Array = (p * (np.log(p + FLOOR) - np.log(q + FLOOR))).sum(-1)
    return found.clip(min=0.0)  # what rounding takes below it


def next_token_entropy(log_probs: npt.ArrayLike) -> Array:
    r"""Return $-\sum_v p(v) \ln p(v)$ of each distribution, in nats.

    Parameters
    ----------
    log_probs
        Log-probabilities, shape ``(prompts, vocabulary)``.

    Examples
    --------
    >>> next_token_entropy(np.log([[0.5, 0.5], [1.0, 1e-300]])).round(4)
    array([0.6931, 0.    ])
    """
    rows = _rows(log_probs, "next_token_entropy")
    p = np.exp(rows)
    found: Array = -(p * np.where(p > 0, rows, 0.0)).sum(-1)
    return found.clip(min=0.0)


def answer_probability_mass(
    log_probs: npt.ArrayLike,
    answers: Sequence[int] | npt.NDArray[np.integer],
    candidates: npt.ArrayLike | None = None,
) -> Array:
    r"""Return the probability of the right answer's token, prompt by prompt.

    Over the whole vocabulary it is $p(a)$; within candidates C it is
    $p(a) / \sum_{c \in C} p(c)$.

    Parameters
    ----------
    log_probs
        Log-probabilities, shape ``(prompts, vocabulary)``.
    answers
        Token of the right answer, shape ``(prompts,)``.
    candidates
        Tokens of all answers, shape ``(candidates,)`` or ``(prompts,
        candidates)``; None means the whole vocabulary.

    Examples
    --------
    >>> row = np.log([[0.1, 0.3, 0.6]])
    >>> answer_probability_mass(row, [1]).round(3)
    array([0.3])
    >>> answer_probability_mass(row, [1], [0, 1]).round(3)
    array([0.75])
    """
    rows = _rows(log_probs, "answer_probability_mass")
    lines = np.arange(len(rows))
    right = rows[lines, np.asarray(answers, int)]
    if candidates is None:
        whole: Array = np.exp(right)
        return whole
    chosen = np.broadcast_to(np.asarray(candidates, int), (len(rows), np.shape(candidates)[-1]))
    among = rows[lines[:, None], chosen]
    if not (among == right[:, None]).any(1).all():
        raise UsageError("answer_probability_mass: the right answer must be among the candidates.")
    top = among.max(1)
    mass: Array = np.exp(right - top) / np.exp(among - top[:, None]).sum(1)
    return mass


def _rows(log_probs: npt.ArrayLike, who: str) -> Array:
    rows = np.asarray(log_probs, float)
    if rows.ndim != 2:
        raise UsageError(
            f"{who}: log-probabilities must be (prompts, vocabulary), got {rows.shape}."
        )
    return rows
