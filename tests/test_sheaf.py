"""Sheaves are sets: laws of the algebra, densities, and whose model they belong to."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib.errors import SheafError
from discogp_lib.sheaf import Overlap, Sheaf
from tests.reference import masked, random_gpt2, random_llama, random_sheaf

MODELS = [masked(random_gpt2(layers=1, heads=2, d_head=2)), masked(random_llama(layers=1))]


DENSITY = st.sampled_from([0.0, 0.05, 0.5, 0.9, 1.0])
CHOICE = st.tuples(DENSITY, DENSITY, st.integers(0, 1000))
"""Edge density, weight density and seed of a random sheaf."""


@given(st.sampled_from(MODELS), CHOICE, CHOICE, CHOICE)
def test_laws_of_sets(model, first, second, third):
    a, b, c = (random_sheaf(model, *choice) for choice in (first, second, third))
    assert ~(a | b) == ~a & ~b
    assert ~(a & b) == ~a | ~b
    assert a | a == a == a & a
    assert ~~a == a
    assert a - b == a & ~b
    assert a | b == b | a
    assert a & b == b & a
    assert a & (b | c) == (a & b) | (a & c)
    assert (a - b) | (a & b) == a
    assert (a | b).kept_edges == a.kept_edges + b.kept_edges - (a & b).kept_edges
    assert (a | b).kept_weights == a.kept_weights + b.kept_weights - (a & b).kept_weights


@given(st.sampled_from(MODELS), CHOICE, CHOICE)
def test_overlap_is_symmetric_and_between_zero_and_one(model, first, second):
    a, b = random_sheaf(model, *first), random_sheaf(model, *second)
    overlap = a.iou(b)
    assert overlap == b.iou(a)
    assert all(0 <= share <= 1 for share in overlap)
    assert a.iou(a) == Overlap(1.0, 1.0)
    if a.kept_edges:
        assert a.iou(~a).edges == 0
    if a.kept_weights:
        assert a.iou(~a).weights == 0


def test_overlap_by_hand():
    model = MODELS[0]
    a, b = Sheaf.empty(model), Sheaf.empty(model)
    a.edge_mask[:4] = True  # 0 1 2 3
    b.edge_mask[3:5] = True  # 3 4: one of five
    a.weight_masks["transformer.h.0.mlp.c_fc.bias"][:2] = True
    b.weight_masks["transformer.h.0.mlp.c_fc.bias"][:3] = True  # two of three
    assert a.iou(b) == Overlap(edges=1 / 5, weights=2 / 3)
    assert Sheaf.empty(model).iou(Sheaf.empty(model)) == Overlap(1.0, 1.0)


@pytest.mark.parametrize("model", MODELS)
def test_full_and_empty(model):
    full, empty = Sheaf.full(model), Sheaf.empty(model)
    assert ~full == empty
    assert (full.edge_density, full.weight_density) == (1, 1)
    assert (empty.edge_density, empty.weight_density) == (0, 0)
    assert full.keeps_all_edges
    assert full.keeps_all_weights
    assert not empty.keeps_all_edges
    assert not empty.keeps_all_weights
    assert full.edges == model.graph.edges
    assert empty.edges == ()
    assert full != empty


def test_densities_name_their_denominators():
    model = MODELS[0]
    sheaf = Sheaf.empty(model)
    sheaf.edge_mask[[0, 3, 5]] = True
    sheaf.weight_masks["transformer.h.0.attn.c_attn.weight"][1, :7] = True
    assert sheaf.n_edges == model.graph.n_edges == 13
    assert sheaf.n_weights == model.n_weights
    assert (sheaf.kept_edges, sheaf.kept_weights) == (3, 7)
    assert sheaf.edge_density == 3 / 13
    assert sheaf.weight_density == 7 / model.n_weights
    assert sheaf.edges == tuple(model.graph.edges[i] for i in (0, 3, 5))
    text = repr(replace(sheaf, metadata={"task": "ioi", "seed": 3, "config": {}}))
    assert "edges=3 of 13 (23.08%)" in text
    assert f"weights=7 of {model.n_weights}" in text
    assert "task='ioi', seed=3" in text


def test_flat_mask_is_in_the_order_of_the_flat_weights():
    model = MODELS[1]
    sheaf = random_sheaf(model, 0.5, 0.5)
    flat = torch.cat([w.flatten() for w in model.masked_weights(sheaf).values()])
    assert torch.equal(flat, model.flat_weights * sheaf.flat_weight_mask)


def test_complement_leaves_a_kind_of_mask_that_cuts_nothing():
    model = MODELS[0]
    both = random_sheaf(model, 0.5, 0.5)
    assert both.complement() == ~both
    edges_only = random_sheaf(model, 0.5, 1.0)
    assert torch.equal(edges_only.complement().edge_mask, ~edges_only.edge_mask)
    assert edges_only.complement().keeps_all_weights
    weights_only = random_sheaf(model, 1.0, 0.5)
    assert weights_only.complement().keeps_all_edges
    assert torch.equal(weights_only.complement().flat_weight_mask, ~weights_only.flat_weight_mask)


def test_a_sheaf_is_frozen_and_can_be_replaced():
    sheaf = random_sheaf(MODELS[0], 0.5, 0.5)
    with pytest.raises(FrozenInstanceError):
        sheaf.edge_mask = ~sheaf.edge_mask
    before = sheaf.kept_edges
    other = replace(sheaf, edge_mask=~sheaf.edge_mask)
    assert other.kept_edges == sheaf.n_edges - before  # counts are not carried over
    assert sheaf.kept_edges == before
    assert replace(sheaf, metadata={"task": "ioi"}) == sheaf
    with pytest.raises(TypeError):
        hash(sheaf)


def test_results_of_the_algebra_do_not_claim_to_come_from_a_search():
    a = replace(random_sheaf(MODELS[0], 0.5, 0.5), metadata={"task": "ioi"})
    for made in (a | a, a & a, a - a, ~a):
        assert made.metadata == {}
    assert a.metadata == {"task": "ioi"}


def test_what_cut_edges_carry_is_not_forgotten():
    zero, mean = (
        replace(random_sheaf(MODELS[0], 0.5, 0.5), metadata={"config": {"ablation": name}})
        for name in ("zero", "mean")
    )
    for made in (mean | mean, mean & mean, mean - mean, ~mean, mean.complement()):
        assert made.ablation == "mean"
    with pytest.raises(SheafError, match="under zero ablation, the other under mean ablation"):
        _ = zero | mean
    # What is cut carries something, so nothing of it is idle.
    assert mean.pruned() == mean
    assert zero.pruned() != zero


def test_only_sheaves_combine():
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = random_sheaf(MODELS[0], 0.5, 0.5) | 3


def test_operands_are_left_alone():
    a, b = (random_sheaf(MODELS[0], 0.5, 0.5, seed) for seed in (1, 2))
    copies = [(s.edge_mask.clone(), s.flat_weight_mask) for s in (a, b)]
    _ = (a | b, a & b, a - b, ~a, a.pruned(), a.complement(), a.iou(b))
    for sheaf, (edges, weights) in zip((a, b), copies, strict=True):
        assert torch.equal(sheaf.edge_mask, edges)
        assert torch.equal(sheaf.flat_weight_mask, weights)


def test_equality_asks_for_the_same_model_and_masks():
    sheaf = random_sheaf(MODELS[0], 0.5, 0.5)
    assert sheaf == random_sheaf(MODELS[0], 0.5, 0.5)
    assert sheaf != random_sheaf(MODELS[0], 0.5, 0.5, seed=1)
    assert sheaf != random_sheaf(masked(random_gpt2(layers=1, heads=2, d_head=3)), 0.5, 0.5)
    assert sheaf != replace(sheaf, checkpoint_sha256="f" * 64)
    assert sheaf != "a sheaf"


@pytest.mark.parametrize("combine", [Sheaf.__or__, Sheaf.__and__, Sheaf.__sub__, Sheaf.iou])
def test_sheaves_of_two_models_do_not_combine(combine):
    sheaf = Sheaf.full(MODELS[0])
    other_shape, other_weights = Sheaf.full(MODELS[1]), replace(sheaf, checkpoint_sha256="f" * 64)
    for other in (other_shape, other_weights):
        with pytest.raises(SheafError, match="belongs to the model 'random'"):
            combine(sheaf, other)
    with pytest.raises(SheafError, match="load the model it was found in"):
        sheaf.check_fits(MODELS[1])


def test_masks_that_do_not_fit_are_refused():
    sheaf = Sheaf.full(MODELS[0])
    with pytest.raises(SheafError, match="bool vector of 13 edges"):
        replace(sheaf, edge_mask=torch.ones(12, dtype=torch.bool))
    missing = dict(sheaf.weight_masks)
    name, mask = missing.popitem()
    with pytest.raises(SheafError, match="names and shapes"):
        replace(sheaf, weight_masks=missing)
    with pytest.raises(SheafError, match="names and shapes"):
        replace(sheaf, weight_masks={**missing, name: mask[:1]})
    with pytest.raises(SheafError, match="must be bool"):
        replace(sheaf, weight_masks={**missing, name: mask.float()})
