"""Chance, against counting every possible mask."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from discogp_lib.analysis import chance
from discogp_lib.analysis.parts import edge_parts
from discogp_lib.layout import Layout


def every_intersection(total: int, a: int, b: int) -> np.ndarray:
    """How much each possible mask of b entries shares with one fixed mask of a entries."""
    return np.array([sum(i < a for i in chosen) for chosen in combinations(range(total), b)])


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), *[st.integers(0, n)] * 3)))
def test_mean_spread_and_tail_are_those_of_all_masks(case: tuple[int, int, int, int]):
    total, a, b, shared = case
    drawn = every_intersection(total, a, b)
    mean, spread = chance.shared_by_chance(total, a, b)
    assert mean == pytest.approx(drawn.mean())
    assert spread == pytest.approx(drawn.std(), abs=1e-9)
    assert chance.tail(shared, total, a, b) == pytest.approx((drawn >= shared).mean())


def test_parts_are_drawn_apart_and_summed():
    sizes = np.array([[6, 2, 3], [4, 4, 1], [5, 0, 2]])
    singles = [every_intersection(*row) for row in sizes.tolist()]
    sums = sum(np.meshgrid(*singles))
    mean, spread = chance.shared_by_chance(*sizes.T)
    assert mean == pytest.approx(sums.mean())
    assert spread == pytest.approx(sums.std())


def test_the_normal_tail_of_large_masks_is_close_to_the_exact_one():
    total, a, b = 100_000, 20_000, 12_000
    for shared in (2_400, 2_450, 2_500):
        exact = stats.hypergeom.sf(shared - 1, total, a, b)
        assert chance.tail(shared, total, a, b) == pytest.approx(exact, rel=0.05)


def test_random_subsets_have_the_size_and_every_subset_is_as_likely():
    eligible = torch.tensor([True, False, True, True, False, True])
    rng = np.random.default_rng(0)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(1200):
        chosen = chance.random_subset(eligible, 2, rng)
        assert not (chosen & ~eligible).any()
        key = tuple(chosen.nonzero().flatten().tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == comb(4, 2)
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_random_subsets_by_part_have_every_parts_size(layout: Layout):
    parts = edge_parts(layout.graph)
    noise = torch.Generator().manual_seed(0)
    like = torch.rand(layout.graph.n_edges, generator=noise) < 0.3
    eligible = like | (torch.rand(layout.graph.n_edges, generator=noise) < 0.5)
    draw = chance.by_part(np.random.default_rng(0))
    chosen = draw(eligible, like, parts)
    assert parts.count(chosen).tolist() == parts.count(like).tolist()
    assert not (chosen & ~eligible).any()
    assert not torch.equal(chosen, like)
    assert torch.equal(chosen, chance.by_part(np.random.default_rng(0))(eligible, like, parts))
