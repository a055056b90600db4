"""Corrections against statsmodels, and what they promise by simulation."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from equipoise.core import UsageError
from equipoise.kit.statistics import benjamini_hochberg, bonferroni_level, holm


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_adjusted_values_equal_statsmodels(size):
    p = np.random.default_rng(size).random(size) ** 2
    p[size // 2] = p[0]  # ties
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


def test_holm_keeps_the_family_level():
    generator = np.random.default_rng(1)
    p = generator.random((4000, 6))
    p[:, 0] = 1e-9  # one true effect does not spoil the others' level
    wrong = [(holm(row)[1:] <= 0.05).any() for row in p]
    assert np.mean(wrong) <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / 4000)


def test_bonferroni_level_is_what_holm_starts_from():
    assert bonferroni_level(0.95, 1) == pytest.approx(0.95)
    assert 1 - bonferroni_level(0.9, 20) == pytest.approx(0.1 / 20)


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
@pytest.mark.parametrize(
    ("p", "sentence"), [([], "is empty"), ([0.1, np.nan], "NaN"), ([1.2], "from 0 to 1")]
)
def test_bad_p_values_are_refused(adjust, p, sentence):
    with pytest.raises(UsageError, match=sentence):
        adjust(p)


def test_no_claims_are_refused():
    with pytest.raises(UsageError, match="at least 1"):
        bonferroni_level(0.95, 0)
