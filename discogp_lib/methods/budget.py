"""Matching budgets: from scores or masks to sheaves of at least a given edge density."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from discogp_lib.config import Ablation
from discogp_lib.layout import Layout
from discogp_lib.model import MaskedTransformer
from discogp_lib.posthoc import prune
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task


def at_least(density: float, n: int) -> int:
    """The smallest number of n that is at least the density (which may be a rounded quotient)."""
    return math.ceil(density * n - 1e-6)


def some_prompts(task: Task, n: int, seed: int) -> Split:
    """Training prompts drawn by the seed; all of them where there are not more."""
    order = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(seed))
    return task.train.select(order[:n])


def edge_sheaf(
    model: MaskedTransformer, edge_mask: Bool[Tensor, " edge"], ablation: Ablation
) -> Sheaf:
    """The kept edges with all weights, after post-hoc pruning.

    The weights stay whole, because an edge method has no say about them: its complement is the
    other edges of the same model.
    """
    return replace(Sheaf.full(model), edge_mask=kept_edges(model.layout, edge_mask, ablation))


def kept_edges(
    layout: Layout, edge_mask: Bool[Tensor, " edge"], ablation: Ablation
) -> Bool[Tensor, " edge"]:
    """The edges that post-hoc pruning leaves where every weight is kept.

    Only under zero ablation: under the others a cut edge still carries something, so nothing is
    dead for sure. What is left does not depend on how wide the nodes are, so it is found on the
    narrowest model with the same graph: instead of a second for GPT-2's 85 million weights, no
    time at all.
    """
    if ablation != "zero":
        return edge_mask
    narrow = replace(layout, d_model=2 * layout.n_heads, d_head=2, d_mlp=1)
    weights = {n: torch.ones(s, dtype=torch.bool) for n, s in narrow.weight_shapes.items()}
    return prune(narrow, edge_mask, weights)[0]


def by_score(
    model: MaskedTransformer,
    scores: Float[Tensor, " edge"],
    density: float,
    ablation: Ablation,
) -> Sheaf:
    """The edges of largest absolute score: as few as give the density after post-hoc pruning.

    Edges that lead nowhere are not counted against the budget. The pruned size grows with the
    number of edges taken, so that number can be bisected.
    """
    order = scores.abs().sort(descending=True, stable=True).indices.cpu()
    target = at_least(density, len(scores))

    def take(n: int) -> Sheaf:
        mask = torch.zeros(len(order), dtype=torch.bool)
        mask[order[:n]] = True
        return edge_sheaf(model, mask, ablation)

    low, high = target, len(order)
    while low < high:
        middle = min((low + high) // 2, low + max(16, low // 4))
        if take(middle).kept_edges >= target:
            high = middle
        else:
            low = middle + 1
    return take(low)
