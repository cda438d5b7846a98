"""Faithfulness on a model whose circuit is known, and the areas by hand."""

import numpy as np
import pytest
import torch

from discogp_lib.ablation import reference_for
from discogp_lib.errors import TaskError
from discogp_lib.faithfulness import SIZES, area, faithfulness_curve, faithfulness_of
from discogp_lib.sheaf import Sheaf
from tests.reference import (
    PLANTED_EDGES,
    make_split,
    masked,
    planted_gpt2,
    planted_task,
    random_gpt2,
    random_tokens,
    slow_logits,
)

MODEL, TASK = masked(planted_gpt2()), planted_task()
SCORES = torch.tensor([float(name in PLANTED_EDGES) for name in MODEL.graph.edges])


def test_areas_by_hand() -> None:
    assert area(np.ones(10)) == pytest.approx(0.999)
    assert area(np.array(SIZES)) == pytest.approx((1 - 0.001**2) / 2)
    step = np.array([0.0] * 9 + [1.0])  # only the last trapezoid, from 50 to 100 %
    assert area(step) == pytest.approx(0.25)


def test_planted_circuit_is_faithful_once_it_fits() -> None:
    """Four of the planted model's edges do the task; they are in from the first size that holds
    them on, and with all edges f is 1 by definition."""
    found = faithfulness_curve(MODEL, TASK.test, SCORES)
    curve = found.curve
    assert list(curve["share"]) == list(SIZES)
    assert list(curve["edges"]) == [int(share * MODEL.graph.n_edges) for share in SIZES]
    fits = curve["edges"] >= len(PLANTED_EDGES)
    assert (curve["accuracy"][fits] == 1).all()
    assert (curve["faithfulness"][~fits].abs() < 0.05).all()
    assert (curve["faithfulness"][fits] > 0.5).all()
    assert curve["faithfulness"].iloc[-1] == pytest.approx(1)
    f = curve["faithfulness"].to_numpy()
    assert found.cpr == pytest.approx(area(f))
    assert found.cmd == pytest.approx(area(np.abs(1 - f)))
    worst = faithfulness_curve(MODEL, TASK.test, 1 - SCORES)
    assert worst.cpr < found.cpr
    assert worst.cmd > found.cmd


def test_sign_of_a_score_does_not_matter() -> None:
    noise = torch.randn(MODEL.graph.n_edges, generator=torch.Generator().manual_seed(0))
    one, other = (faithfulness_curve(MODEL, TASK.test, s) for s in (noise, -noise))
    assert one.curve.equals(other.curve)


def test_interchange_starts_from_the_corrupted_prompt() -> None:
    """The empty circuit is the full model on the corrupted prompts: its f is 0 by definition."""
    hf = random_gpt2()
    model = masked(hf)
    labels = torch.tensor([[3, 4, 5]]).repeat(6, 1)
    targets = torch.arange(6) % 3
    corrupted = random_tokens(6, 5, seed=1)
    split = make_split(random_tokens(6, 5), labels, targets, corrupted=corrupted)
    reference = reference_for("interchange", model, TASK)
    scores = torch.rand(model.graph.n_edges, generator=torch.Generator().manual_seed(0))
    curve = faithfulness_curve(model, split, scores, reference=reference).curve

    def metric(tokens: torch.Tensor) -> float:
        logits = slow_logits(hf, tokens)[:, -1, 3:6]
        right = logits[torch.arange(6), targets]
        return float((right - (logits.sum(1) - right) / 2).mean())

    assert curve["edges"].iloc[0] == 0  # 0.1 % of this small model's edges
    assert curve["metric"].iloc[0] == pytest.approx(metric(corrupted), abs=1e-4)
    assert curve["faithfulness"].iloc[0] == pytest.approx(0, abs=1e-5)
    assert curve["metric"].iloc[-1] == pytest.approx(metric(split.tokens), abs=1e-4)


def test_point_of_a_sheaf() -> None:
    full, empty = Sheaf.full(MODEL), Sheaf.empty(MODEL)
    assert faithfulness_of(MODEL, TASK.test, full)["faithfulness"] == pytest.approx(1)
    assert faithfulness_of(MODEL, TASK.test, empty)["faithfulness"] == pytest.approx(0, abs=1e-6)
    assert faithfulness_of(MODEL, TASK.test, full)["share"] == 1


def test_no_scale_is_told() -> None:
    """Labels that are one token cannot be told apart, with or without edges."""
    split = make_split(TASK.test.tokens, torch.full((48, 2), 2), TASK.test.targets)
    with pytest.raises(TaskError, match="no scale"):
        faithfulness_curve(MODEL, split, SCORES)
