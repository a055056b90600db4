import pytest
import torch
from torch.nn import functional

from equipoise.core import UsageError
from equipoise.kit.torch.distillation import kl_top_loss


def draw(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3


def test_with_all_tokens_it_is_the_full_divergence():
    student, teacher = draw(0, 2, 7, 50), draw(1, 2, 7, 50)
    p, q = teacher.log_softmax(-1), student.log_softmax(-1)
    full = functional.kl_div(q, p, log_target=True, reduction="sum") / 14
    for k in (None, 50, 51):
        assert kl_top_loss(student, teacher, k) == pytest.approx(float(full), rel=1e-5)
    assert kl_top_loss(student, teacher, 5) != pytest.approx(float(full), rel=1e-2)


def test_by_hand():
    teacher = torch.log(torch.tensor([0.6, 0.2, 0.1, 0.1]))
    student = torch.log(torch.tensor([0.3, 0.3, 0.2, 0.2]))
    # Over the first two: p = (3/4, 1/4), q = (1/2, 1/2).
    wanted = 0.75 * torch.log(torch.tensor(1.5)) + 0.25 * torch.log(torch.tensor(0.5))
    assert kl_top_loss(student, teacher, 2) == pytest.approx(float(wanted), rel=1e-5)


def test_it_is_zero_only_where_the_two_differ_by_a_constant_on_the_teachers_tokens():
    teacher = draw(2, 4, 30)
    student = teacher + 5.0
    outside = teacher.topk(10).values[:, -1:] > teacher
    student = torch.where(outside, draw(3, 4, 30) + 99.0, student)  # the student's own top is there
    assert kl_top_loss(student, teacher, 10).abs() < 1e-5
    assert kl_top_loss(student, teacher, 11) > 1e-2


def test_gradients_go_to_the_students_chosen_logits():
    teacher = draw(4, 1, 8).requires_grad_()
    student = draw(5, 1, 8).requires_grad_()
    kl_top_loss(student, teacher, 3).backward()
    assert teacher.grad is None
    chosen = teacher.topk(3).indices
    assert set(student.grad.nonzero()[:, 1].tolist()) == set(chosen[0].tolist())
    p = teacher.detach().gather(-1, chosen).softmax(-1)
    q = student.detach().gather(-1, chosen).softmax(-1)
    assert torch.allclose(student.grad.gather(-1, chosen), q - p, atol=1e-6)


def test_faults_are_told():
    with pytest.raises(UsageError, match="one shape"):
        kl_top_loss(torch.zeros(1, 3), torch.zeros(1, 4))
    with pytest.raises(UsageError, match="k must be at least 1, got 0"):
        kl_top_loss(torch.zeros(1, 3), torch.zeros(1, 3), 0)
