"""A curve is one evaluation per size; sizes run from 0.5 to 50 %."""

from itertools import pairwise

import pytest
import torch

from discogp_lib.curves import SIZES, density_curve
from discogp_lib.evaluate import evaluate
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
