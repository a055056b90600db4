"""Structured pruning of language models, and the plain functions behind it.

>>> import torch
>>> from equipoise.methods.pruning import wanda_sp_scores
>>> wanda_sp_scores(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2))
tensor([4., 6.])
"""

from equipoise.core.lazy import lazily

_WHERE = {
    "BatchPerplexity": "batch_perplexity",
    "Flap": "structured_pruning",
    "PerformanceRuntimeRatio": "runtime_ratio",
    "ProbePruning": "probe_pruning",
    "RandomPruning": "structured_pruning",
    "WandaSp": "structured_pruning",
    "batch_stream": "_online",
    "flap_scores": "_scores",
    "fuse": "_scores",
    "kept_count": "_scores",
    "kept_units": "_online",
    "mask_overlap": "_scores",
    "performance_runtime_ratio": "runtime_ratio",
    "ppsp_scores": "_scores",
    "raised_ratio": "_scores",
    "select_probe": "_scores",
    "wanda_sp_scores": "_scores",
}

__all__ = sorted(_WHERE)

__getattr__ = lazily(__name__, _WHERE)


def __dir__() -> list[str]:
    return list(__all__)
