"""What chance gives: how much two random masks of given sizes share, and such masks themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from scipy import stats
from torch import Tensor

from discogp_lib.analysis.parts import Parts

EXACT = 10_000
"""Up to this many entries in the smaller mask the tail is summed exactly, beyond it is normal."""


class Shared(NamedTuple):
    """Mean and standard deviation of the entries that two random masks share."""

    mean: float
    spread: float


def shared_by_chance(
    total: int | Int[np.ndarray, " part"],
    a: int | Int[np.ndarray, " part"],
    b: int | Int[np.ndarray, " part"],
) -> Shared:
    """Two masks of `a` and `b` entries, drawn independently from `total` (hypergeometric).

    Given arrays, the masks are drawn part by part, each part with its own sizes, and what they
    share is summed.
    """
    n, a, b = (np.asarray(x, dtype=np.float64) for x in (total, a, b))
    mean = a * b / n
    variance = mean * (n - a) / n * (n - b) / np.maximum(n - 1, 1)
    return Shared(float(mean.sum()), float(np.sqrt(variance.sum())))


def tail(shared: int, total: int, a: int, b: int) -> float:
    """Probability that random masks of these sizes share at least so many entries."""
    if min(a, b) <= EXACT:
        return float(stats.hypergeom.sf(shared - 1, total, max(a, b), min(a, b)))
    mean, spread = shared_by_chance(total, a, b)
    return float(stats.norm.sf((shared - 0.5 - mean) / spread)) if spread else 1.0


def random_subset(
    eligible: Bool[Tensor, " entry"], size: int, rng: np.random.Generator
) -> Bool[Tensor, " entry"]:
    """So many of the eligible entries, all equally likely."""
    chosen = torch.zeros_like(eligible)
    places = eligible.nonzero().flatten()
    chosen[places[torch.from_numpy(rng.choice(len(places), size, replace=False))]] = True
    return chosen


def random_subset_by_part(
    eligible: Bool[Tensor, " entry"],
    sizes: Int[Tensor, " part"],
    parts: Parts,
    rng: np.random.Generator,
) -> Bool[Tensor, " entry"]:
    """So many of the eligible entries of each part, all equally likely within the part."""
    chosen = torch.zeros_like(eligible)
    places = parts.order[eligible[parts.order]]
    stops = parts.count(eligible).cumsum(0).tolist()
    for start, stop, size in zip([0, *stops], stops, sizes.tolist(), strict=False):
        if size:
            picked = rng.choice(stop - start, size, replace=False) + start
            chosen[places[torch.from_numpy(picked)]] = True
    return chosen


Draw = Callable[[Bool[Tensor, " entry"], Bool[Tensor, " entry"], Parts], Bool[Tensor, " entry"]]
"""From what may be drawn and what is to be imitated to a random mask."""


def uniform(rng: np.random.Generator) -> Draw:
    """Imitates the number of entries."""
    return lambda eligible, like, parts: random_subset(eligible, int(like.sum()), rng)


def by_part(rng: np.random.Generator) -> Draw:
    """Imitates the number of entries in every part."""
    return lambda eligible, like, parts: random_subset_by_part(
        eligible, parts.count(like), parts, rng
    )
