import numpy as np
import torch
from torch import nn

from equipoise.core import HasModule, Predicts
from equipoise.kit.torch.subjects import ModuleSubject


def test_it_has_what_it_says():
    subject = ModuleSubject(nn.Linear(3, 2))
    assert isinstance(subject, HasModule)
    assert isinstance(subject, Predicts)
    assert subject.device == torch.device("cpu")
    assert ModuleSubject(nn.ReLU()).dtype == torch.float32


def test_predictions_follow_the_module_and_its_type():
    layer = nn.Linear(3, 2).double()
    rows = np.arange(6).reshape(2, 3)[::-1]
    found = ModuleSubject(layer).predict(rows)
    assert found.dtype == np.float64
    assert np.allclose(found, rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())


def test_another_module_makes_another_subject():
    subject = ModuleSubject(nn.Linear(3, 2), tokenizer="t")
    other = subject.with_module(nn.Linear(3, 1))
    assert other.tokenizer == "t"
    assert other.predict(np.zeros((4, 3))).shape == (4,)
    assert subject.predict(np.zeros((4, 3))).shape == (4, 2)
