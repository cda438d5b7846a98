"""What cutting edges is expected to cost, against finite differences and by hand."""

import math

import pytest
import torch

from discogp_lib.methods.acdc import AcdcConfig, AcdcSearch
from discogp_lib.methods.forecast import expected_costs
from discogp_lib.methods.suffix import Upstream, blocks
from tests.reference import (
    kept_edges,
    make_split,
    make_task,
    masked,
    random_gpt2,
    random_llama,
    random_tokens,
    slow_logits,
    slow_outputs,
)

LABELS = [3, 1, 7]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def hf(request):
    if request.param == "gpt2":
        return random_gpt2(layers=2, heads=2)
    return random_llama(layers=2, heads=2, kv_heads=1)


@pytest.fixture(scope="module")
def task():
    tokens, corrupted = (random_tokens(3, 3, seed=s) for s in (0, 1))
    split = make_split(
        tokens, torch.tensor([LABELS]).repeat(3, 1), torch.arange(3), corrupted=corrupted
    )
    return make_task(split, split, split)


def slow_odds(hf, task, edges, answers, reference) -> list[float]:
    """Log-odds of each prompt's answer, in float64."""
    logits = slow_logits(hf, task.train.tokens, edges, reference=reference)[:, -1][:, LABELS]
    likely = logits.log_softmax(-1).gather(-1, answers.unsqueeze(-1)).squeeze(-1).exp()
    return (likely / (1 - likely)).log().tolist()


def cross_entropy(p: float, odds: float) -> float:
    q = 1 / (1 + math.exp(-odds))
    return -p * math.log(q) - (1 - p) * math.log(1 - q)


@pytest.mark.parametrize("ablation", ["zero", "interchange"])
def test_costs_follow_from_slopes_of_log_odds(hf, task, ablation):
    """In every block, with a third of the later edges cut already."""
    model, step = masked(hf), 1e-4
    search = AcdcSearch(model, task, AcdcConfig(ablation=ablation))
    reference = slow_outputs(hf, task.train.corrupted) if ablation == "interchange" else None
    log_full = slow_logits(hf, task.train.tokens)[:, -1][:, LABELS].log_softmax(-1)
    answers = log_full.argmax(-1)
    likely = log_full.gather(-1, answers.unsqueeze(-1)).squeeze(-1).exp().tolist()
    noise = torch.Generator().manual_seed(0)
    for block in blocks(model.graph):
        mask = torch.ones(model.graph.n_edges, dtype=torch.bool)
        mask[block.stop :] = torch.rand(len(mask) - block.stop, generator=noise) < 0.67
        upstream = Upstream(model.graph, block, mask, search.outputs, search.reference)
        costs = expected_costs(model, search.split, upstream, mask, search.log_full)
        assert len(costs) == block.stop - block.start

        def odds(masks, edges):
            return slow_odds(hf, task, kept_edges(model, masks, edges), answers, reference)

        before = slow_odds(hf, task, kept_edges(model, mask.double()), answers, reference)
        for edge in range(block.start, block.stop, 3):
            sides = []
            for sign in (1, -1):
                moved = mask.double()
                moved[edge] += sign * step
                sides.append(slow_odds(hf, task, kept_edges(model, moved), answers, reference))
            rises = []
            for p, odd, up, down in zip(likely, before, *sides, strict=True):
                slope = (up - down) / (2 * step)
                rises.append(cross_entropy(p, odd - slope) - cross_entropy(p, odd))
            expected = sum(rises) / len(rises)
            assert float(costs[edge - block.start]) == pytest.approx(expected, rel=1e-3, abs=2e-5)
