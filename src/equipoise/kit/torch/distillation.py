"""Losses that keep a changed model's predictions near the original's."""

from __future__ import annotations

from torch import Tensor

from equipoise.core import UsageError


def kl_top_loss(student: Tensor, teacher: Tensor, k: int | None = 1000) -> Tensor:
    r"""Return the Kullback-Leibler divergence over the teacher's k likeliest tokens.

    $$L = \sum_{i \in I} \tilde p_i \log \frac{\tilde p_i}{\tilde q_i},$$

    with I the indices of the k largest teacher logits and $\tilde p$, $\tilde q$ the
    softmax of teacher and student over these alone. The long tail of a large
    vocabulary, where a small calibration set says nothing, takes no part.

    Parameters
    ----------
    student, teacher
        Logits ``(..., vocabulary)``; gradients flow to the student only.
    k
        How many tokens count; None or more than there are is all of them, the
        full divergence.

    Returns
    -------
    torch.Tensor
        Mean over positions, in nats.

    References
    ----------
    OSTQuant, ICLR 2025, section on KL-Top loss.

    Examples
    --------
    >>> import torch
    >>> teacher = torch.tensor([[2.0, 1.0, 0.0, -9.0]])
    >>> student = torch.tensor([[5.0, 4.0, 0.0, 99.0]])
    >>> kl_top_loss(student, teacher, k=2)  # the two differ by a constant
    tensor(0.)
    >>> kl_top_loss(student, teacher, k=None) > 50
    tensor(True)
    """
    if student.shape != teacher.shape:
        raise UsageError(
            "kl_top_loss: student and teacher must have logits of one shape, got"
            f" {tuple(student.shape)} and {tuple(teacher.shape)}."
        )
    if k is not None and k < 1:
        raise UsageError(f"kl_top_loss: k must be at least 1, got {k}.")
    teacher = teacher.detach()
    if k is not None and k < teacher.shape[-1]:
        teacher, chosen = teacher.topk(k, dim=-1)
        student = student.gather(-1, chosen)
    wanted, found = teacher.log_softmax(-1), student.log_softmax(-1)
    return (wanted.exp() * (wanted - found)).sum(-1).mean()
