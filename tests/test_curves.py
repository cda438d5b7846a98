"""A curve is one evaluation per size; sizes run from 0.5 to 50 %."""

from itertools import pairwise

import pytest
import torch

from discogp_lib import curves
from discogp_lib.config import SearchConfig
from discogp_lib.curves import CURVE_METHODS, SIZES, curve_of, density_curve, ranked_with_weights
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import evaluate
from discogp_lib.methods.acdc import AcdcConfig, acdc
from discogp_lib.methods.budget import by_score
from discogp_lib.sheaf import Sheaf
from tests.reference import masked, planted_gpt2, planted_task


@pytest.fixture(scope="module")
def model():
    return masked(planted_gpt2())


def test_ten_sizes_evenly_apart():
    assert len(SIZES) == 10
    assert (SIZES[0], SIZES[-1]) == (0.005, 0.5)
    ratios = [b / a for a, b in pairwise(SIZES)]
    assert all(1.55 < r < 1.8 for r in ratios)


def test_a_curve_from_scores(model):
    task = planted_task(16)
    scores = torch.rand(model.graph.n_edges, generator=torch.Generator().manual_seed(0))
    curve = density_curve(model, task.test, scores)
    assert curve.asked_density.tolist() == list(SIZES)
    assert (curve.edge_density >= curve.asked_density - 1e-9).all()
    assert curve.edges.is_monotonic_increasing
    row = curve.iloc[7]
    found = evaluate(model, by_score(model, scores, SIZES[7], "zero"), task.test)
    assert (row.accuracy, row.kl) == (found.accuracy, found.kl)


def test_a_curve_from_sheaves(model):
    task = planted_task(16)
    sheaves = {0.2: Sheaf.empty(model), 0.9: Sheaf.full(model)}
    curve = density_curve(model, task.test, sheaves.__getitem__, sizes=tuple(sheaves))
    assert curve.edge_density.tolist() == [0.0, 1.0]
    assert curve.accuracy.iloc[1] == 1.0
    assert curve.kl.iloc[1] == pytest.approx(0, abs=1e-6)
    assert curve.kl.iloc[0] > 0.1


SEARCH = SearchConfig(steps=6, batch_size=8, weight_logit=1.0, edge_logit=1.0)


@pytest.mark.parametrize("method", [*CURVE_METHODS, "acdc@mean", "eap@interchange"])
def test_every_edge_method_has_a_curve(model, method):
    sizes = [0.05, 0.1] if method.startswith("acdc") else [0.2, 0.6]
    curve = curve_of(method, model, planted_task(16), SEARCH, sizes=[*sizes, 0.9])
    assert curve.asked_density.tolist() == sizes + [0.9] * (not method.startswith("acdc"))
    assert curve.edges.is_monotonic_increasing
    assert curve.kl.notna().all()
    whole = method != "discogp"
    assert (curve.weight_density == 1).all() == whole


def test_acdc_goes_on_from_the_larger_size_and_meets_the_smaller(model):
    task = planted_task(16)
    both = curve_of("acdc", model, task, SEARCH, sizes=(0.05, 0.1))
    alone = acdc(model, task, AcdcConfig(edge_density=0.05), progress=False)
    assert both.edge_density[0] >= 0.05
    assert both.edges[0] <= alone.kept_edges + 2  # as near to the budget as its own search


@pytest.mark.parametrize("method", ["magnitude", "discogp@mean", "weight_pruning"])
def test_methods_without_a_choice_of_edges_have_none(model, method):
    with pytest.raises(ConfigError, match="no curves of"):
        curve_of(method, model, planted_task(16), SEARCH)


def test_ranked_edges_are_as_few_as_give_the_size(model):
    logits = torch.randn(model.graph.n_edges, generator=torch.Generator().manual_seed(1))
    at = ranked_with_weights(model, logits, torch.ones(model.n_weights, dtype=torch.bool))
    sheaf = at(0.3)
    n = sheaf.kept_edges
    assert n >= 0.3 * len(logits)
    order = logits.argsort(descending=True)
    taken = max(order.tolist().index(e) for e in sheaf.edge_mask.nonzero().flatten().tolist())
    fewer = torch.zeros(len(logits), dtype=torch.bool)
    fewer[order[:taken]] = True
    full = Sheaf.full(model)
    assert curves.replace(full, edge_mask=fewer).pruned().kept_edges < 0.3 * len(logits)
