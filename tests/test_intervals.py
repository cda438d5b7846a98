"""Intervals against SciPy's."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from discogp_lib.intervals import half_width, wilson


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (1, 3), (95, 100), (200, 400)])
def test_of_a_share(k, n):
    low, high = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert wilson(k, n) == pytest.approx((low, high), abs=1e-6)


def test_of_a_share_of_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [2, 3, 30])
def test_of_a_mean(n):
    values = np.random.default_rng(n).normal(size=n)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    half = half_width(values.std(ddof=1), n)
    assert (values.mean() - half, values.mean() + half) == pytest.approx((low, high))


def test_one_value_has_no_interval():
    halves = half_width(pd.Series([1.0, math.nan]), pd.Series([3, 1]))
    assert halves[0] == pytest.approx(half_width(1.0, 3))
    assert math.isnan(halves[1])
