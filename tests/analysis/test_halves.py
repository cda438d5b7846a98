"""Half a sheaf is the sheaf with one mask whole."""

import pytest
import torch

from discogp_lib.analysis.halves import BOTH, ITS_EDGES, ITS_WEIGHTS, halves, halves_table
from discogp_lib.evaluate import evaluate
from tests.reference import masked, planted_gpt2, planted_task, random_sheaf


@pytest.fixture(scope="module")
def model():
    return masked(planted_gpt2())


def test_each_half_keeps_one_mask_and_all_of_the_other(model):
    sheaf = random_sheaf(model, 0.4, 0.3)
    found = halves(sheaf)
    assert found[BOTH] == sheaf
    assert torch.equal(found[ITS_EDGES].edge_mask, sheaf.edge_mask)
    assert found[ITS_EDGES].keeps_all_weights
    assert torch.equal(found[ITS_WEIGHTS].flat_weight_mask, sheaf.flat_weight_mask)
    assert found[ITS_WEIGHTS].keeps_all_edges


def test_rows_are_evaluations_of_the_halves(model):
    sheaf, split = random_sheaf(model, 0.4, 0.3), planted_task(8).test
    table = halves_table(model, sheaf, split).set_index("kept")
    assert list(table.index) == [BOTH, ITS_WEIGHTS, ITS_EDGES]
    for kept, half in halves(sheaf).items():
        assert table.loc[kept].to_dict() == evaluate(model, half, split).as_dict()
    assert table.loc[ITS_WEIGHTS, "edge_density"] == table.loc[ITS_EDGES, "weight_density"] == 1
