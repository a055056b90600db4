"""Tolerances for simulations: what chance allows at the number of runs."""

import math

import pytest


@pytest.fixture
def covers():
    """Assert that a share of hits is at least (and, if given, at most) what is claimed."""

    def check(hits, at_least=0.95, at_most=1.0):
        runs, share = len(hits), sum(hits) / len(hits)

        def slack(p):
            return 3.5 * math.sqrt(p * (1 - p) / runs)

        assert share >= at_least - slack(at_least), share
        assert share <= at_most + slack(at_most), share

    return check


@pytest.fixture
def level_holds():
    """Assert that p-values fall below each level no oftener than the level."""

    def check(p_values):
        runs = len(p_values)
        for level in (0.01, 0.05, 0.1, 0.5):
            share = sum(p <= level for p in p_values) / runs
            assert share <= level + 3.5 * math.sqrt(level * (1 - level) / runs), (level, share)

    return check
