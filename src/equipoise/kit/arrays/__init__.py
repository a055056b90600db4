"""Workings on arrays: what learners learn from, and learners of scikit-learn's kind."""

from equipoise.kit.arrays.examples import Examples, examples

__all__ = ["Examples", "examples"]
