"""How far off a measured value may be: 95 % intervals of shares and of means."""

from __future__ import annotations

import math
from typing import TypeVar

import pandas as pd
from scipy import stats

Number = TypeVar("Number", float, pd.Series)


def wilson(successes: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share, after Wilson: sensible at 0 and 1 too."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = successes / n, z * z / n
    centre, spread = p + z2 / 2, z * math.sqrt(p * (1 - p) / n + z2 / (4 * n))
    return max(0.0, (centre - spread) / (1 + z2)), min(1.0, (centre + spread) / (1 + z2))


def half_width(spread: Number, n: int | pd.Series) -> Number:
    """Half of the 95 % interval of a mean of n values with this standard deviation (Student's t).

    NaN for one value, which tells nothing about others.
    """
    return spread * stats.t.ppf(0.975, n - 1) / n**0.5
