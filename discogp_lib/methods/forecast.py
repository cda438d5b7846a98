"""What cutting each edge of a block would cost, to first order: the order in which to try them.

Cutting an edge moves the log-odds of a prompt's answer by about minus the gradient of the edge's
mask, and KL(full model || sheaf) follows from the moved log-odds. Gradients are kept prompt by
prompt, since costs of different prompts do not cancel as their gradients would.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from discogp_lib.methods.suffix import Upstream
from discogp_lib.model import MaskedTransformer
from discogp_lib.objective import answer_log_odds
from discogp_lib.tasks.base import Split
from discogp_lib.unrolled import UnrolledStream


def expected_costs(
    model: MaskedTransformer,
    split: Split,
    upstream: Upstream,
    edge_mask: Bool[Tensor, " edge"],
    log_full: Float[Tensor, "prompt label"],
) -> Float[Tensor, " decided"]:
    """By how much KL would rise if one edge of the block were cut, for each of its edges.

    KL is that between answering as the full model and answering otherwise, mean over prompts.
    """
    answers = log_full.argmax(-1)
    odds, slopes = _odds_and_slopes(model, split, upstream, edge_mask, answers)
    p = log_full.gather(-1, answers.unsqueeze(-1)).exp().to(odds)
    before = _cross_entropy(p, odds.unsqueeze(-1))
    return (_cross_entropy(p, odds.unsqueeze(-1) - slopes) - before).mean(0).cpu()


def _odds_and_slopes(
    model: MaskedTransformer,
    split: Split,
    upstream: Upstream,
    edge_mask: Bool[Tensor, " edge"],
    answers: Int[Tensor, " prompt"],
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, "prompt decided"]]:
    """Log-odds of each prompt's answer, and their gradients for the mask of the block's edges.

    Every prompt is given a mask of its own, so one backward pass has the gradients of all.
    """
    batch, length = split.tokens.shape
    masks = edge_mask.to(model.device, torch.float32).repeat(batch, 1).requires_grad_()
    known, reference = upstream.known, upstream.reference
    if reference is not None:
        known = known + reference[: upstream.n_known]
        reference = reference.transpose(0, 1)
    stream = UnrolledStream(known[0], masks, model.graph.n_senders, reference)
    stream.resume(1, known[1:])
    states = model.run(stream, (batch, length), last=split.lengths - 1, first_layer=upstream.layer)
    odds = answer_log_odds(model, states, split.labels, answers.to(model.device))
    (slopes,) = torch.autograd.grad(odds.sum(), masks)
    block = upstream.block
    return odds.detach().double(), slopes[:, block.start : block.stop].double()


def _cross_entropy(
    p: Float[Tensor, "prompt 1"], odds: Float[Tensor, "prompt _"]
) -> Float[Tensor, "prompt _"]:
    """Of a yes with probability p and one with these log-odds."""
    return p * F.softplus(-odds) + (1 - p) * F.softplus(odds)
