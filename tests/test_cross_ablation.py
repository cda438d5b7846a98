"""One sheaf under every ablation is three evaluations with three references."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from discogp_lib.ablation import reference_for
from discogp_lib.cross_ablation import (
    ABLATIONS,
    EMPTY,
    across_ablations,
    findings,
    mean_ablation_findings,
    without_edges,
)
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


def test_without_edges_interchange_answers_as_the_corrupted_prompt(model):
    task = planted_task(16)
    table = across_ablations(model, task, without_edges(model)).set_index("ablation")
    assert table.edge_density.tolist() == [0, 0, 0]
    corrupted = replace(task.test, tokens=task.test.corrupted)
    other = evaluate(model, Sheaf.full(model), corrupted)
    assert table.loc["interchange", "accuracy"] == other.accuracy


def test_the_sentences_tell_the_changes():
    rows = [
        {"short_name": "AGA", "method": m, "seed": 0, "ablation": a, "accuracy": v}
        for m, values in {"discogp": (1.0, 0.98, 0.4), EMPTY: (0.5, 0.5, 0.1)}.items()
        for a, v in zip(ABLATIONS, values, strict=True)
    ]
    texts = findings(pd.DataFrame(rows), {"AGA": 0.5})
    assert "under mean ablation in 1 of 1 sheaves (mean change -2.0 points" in texts[0]
    assert "under interchange ablation in 0 of 1 sheaves" in texts[1]
    assert texts[2].endswith("zero +0.0, mean +0.0, interchange -40.0.")


def test_the_mean_ablation_sentence_needs_both_methods():
    row = {"accuracy": 1.0, "edge_density": 0.02, "weight_density": 0.01, "kl": 0.1}
    table = pd.DataFrame(
        [
            {"short_name": "IOI", "method": "discogp@mean", **row},
            {"short_name": "IOI", "method": "acdc@mean", **row, "accuracy": 0.6},
            {"short_name": "DNA", "method": "discogp@mean", **row},
        ]
    )
    (text,) = mean_ablation_findings(table)
    assert text.startswith("IOI: under mean ablation DiscoGP has 100.0%")
    assert "(+40.0 points for DiscoGP)" in text
