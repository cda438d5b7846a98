"""One sheaf under every ablation is three evaluations with three references."""

from dataclasses import replace

import pytest
import torch

from discogp_lib.ablation import reference_for
from discogp_lib.cross_ablation import ABLATIONS, across_ablations
from discogp_lib.evaluate import evaluate
from discogp_lib.sheaf import Sheaf
from tests.reference import masked, planted_gpt2, planted_task


@pytest.fixture(scope="module")
def model():
    return masked(planted_gpt2())


def test_three_rows_each_with_its_reference(model):
    task = planted_task(16)
    mask = torch.rand(model.graph.n_edges, generator=torch.Generator().manual_seed(0)) < 0.5
    sheaf = replace(Sheaf.full(model), edge_mask=mask)
    table = across_ablations(model, task, sheaf).set_index("ablation")
    assert table.index.tolist() == list(ABLATIONS) == ["zero", "mean", "interchange"]
    for ablation in ABLATIONS:
        found = evaluate(model, sheaf, task.test, reference=reference_for(ablation, model, task))
        assert table.loc[ablation, "kl"] == pytest.approx(found.kl, abs=1e-6)
        assert table.loc[ablation, "accuracy"] == found.accuracy
    assert table.kl.nunique() == 3


def test_nothing_is_cut_from_the_full_model(model):
    table = across_ablations(model, planted_task(16), Sheaf.full(model), prompts=5)
    assert table.n.tolist() == [5, 5, 5]
    assert table.kl.abs().max() < 1e-5
