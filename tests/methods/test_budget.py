"""Budgets: sizes that are at least a share, and pruning that looks at edges alone."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib.methods.budget import at_least, edge_sheaf, kept_edges, some_prompts
from discogp_lib.sheaf import Sheaf
from tests.reference import masked, planted_task, random_gpt2, random_llama


@given(n=st.integers(1, 40_000), data=st.data())
def test_a_sheafs_own_density_gives_its_own_size(n, data):
    kept = data.draw(st.integers(0, n))
    assert at_least(kept / n, n) == kept


@given(share=st.integers(0, 1_000), n=st.integers(1, 40_000))
def test_at_least_the_share_and_no_more(share, n):
    size = at_least(share / 1_000, n)
    assert size >= Fraction(share, 1_000) * n > size - 1


@pytest.mark.parametrize("make", [random_gpt2, random_llama], ids=["gpt2", "llama"])
@pytest.mark.parametrize("density", [0.02, 0.1, 0.4, 1.0])
def test_kept_edges_are_those_of_the_pruned_sheaf(make, density):
    model = masked(make(layers=3))
    for seed in range(10):
        noise = torch.Generator().manual_seed(seed)
        mask = torch.rand(model.graph.n_edges, generator=noise) < density
        whole = replace(Sheaf.full(model), edge_mask=mask)
        assert torch.equal(kept_edges(model.layout, mask, "zero"), whole.pruned().edge_mask)


def test_only_zero_ablation_prunes():
    model = masked(random_gpt2())
    mask = torch.zeros(model.graph.n_edges, dtype=torch.bool)
    mask[0] = True
    assert edge_sheaf(model, mask, "zero").kept_edges == 0
    assert edge_sheaf(model, mask, "mean").kept_edges == 1


def test_prompts_are_drawn_by_the_seed():
    task = planted_task(32)
    first, again, other = (some_prompts(task, 8, seed) for seed in (0, 0, 1))
    assert first.prompts == again.prompts != other.prompts
    assert len(set(first.prompts)) == 8
    assert len(some_prompts(task, 99, 0)) == 32
