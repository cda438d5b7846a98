"""How well a sheaf does the task alone, and what its complement still can do.

Accuracy, KL divergence and complement accuracy as the paper defines them, and beside them what
is needed to read them: ties, class-balanced accuracy (a complement that always gives the same
answer is not complete), entropy, agreement with the full model, and 95 % intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from discogp_lib.errors import TaskError
from discogp_lib.intervals import wilson
from discogp_lib.model import MaskedTransformer, Weights
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split

Reference = Callable[[Split], Float[Tensor, "batch pos sender d_model"]]
"""What cut edges carry for a batch of prompts, instead of nothing (see `ablation`)."""

BATCH = 128
"""Prompts evaluated at once."""

MOST_FLOATS = 1 << 30
"""Numbers that all senders together may write for them: with long prompts there are fewer."""


@dataclass(frozen=True)
class Evaluation:
    """What one sheaf does on one split; shares are in [0, 1], KL and entropies in nats."""

    n: int
    """Prompts."""
    accuracy: float
    """Share of prompts whose right label is above all others in the label set (a tie is wrong)."""
    accuracy_low: float
    """Lower end of its 95 % interval (Wilson)."""
    accuracy_high: float
    balanced_accuracy: float
    """Mean over classes of the accuracy within the class."""
    agreement: float
    """Share of prompts answered as the full model answers them, right or wrong (a tie is no
    answer)."""
    ties: float
    """Share of prompts whose best label is not alone."""
    kl: float
    """KL(full model || sheaf) over the label set, mean over prompts."""
    kl_paper: float
    """As the authors' code computes it: KL(sheaf || full model) over the label set, divided by
    the number of labels."""
    kl_vocabulary: float
    """KL(full model || sheaf) over all tokens."""
    top_token_agreement: float
    """Share of prompts whose most likely token of the whole vocabulary is the full model's."""
    complement_accuracy: float
    """Accuracy of the complement: the searched masks reversed (`Sheaf.complement`)."""
    complement_balanced_accuracy: float
    complement_entropy: float
    """Entropy of the complement's label distribution, divided by that of the uniform one."""
    full_accuracy: float
    """Accuracy of the full model on the same prompts."""
    weight_density: float
    edge_density: float
    n_weights: int
    """Maskable weights of the model: the denominator of the weight density."""
    n_edges: int
    """Edges of the model: the denominator of the edge density."""

    def as_dict(self) -> dict[str, int | float]:
        """Plain numbers, for records and tables."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"accuracy {self.accuracy:.1%} [{self.accuracy_low:.1%}, {self.accuracy_high:.1%}] "
            f"(full model {self.full_accuracy:.1%}), kl {self.kl:.3f}, "
            f"complement_accuracy {self.complement_accuracy:.1%} "
            f"(balanced {self.complement_balanced_accuracy:.1%}), "
            f"weight_density {self.weight_density:.2%} of {self.n_weights:,}, "
            f"edge_density {self.edge_density:.2%} of {self.n_edges:,}, n {self.n}"
        )


def evaluate(
    model: MaskedTransformer,
    sheaf: Sheaf,
    split: Split,
    *,
    reference: Reference | None = None,
    full: Float[Tensor, "prompt d_model"] | None = None,
    batch_size: int = BATCH,
) -> Evaluation:
    """Everything about a sheaf on a split of a task, under zero or another ablation.

    full: the full model's `final_states` of the split, where they are known already.
    """
    if not isinstance(split, Split):
        raise TaskError(
            f"A sheaf is evaluated on a split, such as task.test, not on a {type(split).__name__}."
        )
    sheaf.check_fits(model)
    if full is None:
        full = final_states(model, split, batch_size=batch_size)
    kept = final_states(model, split, sheaf, reference=reference, batch_size=batch_size)
    rest = final_states(
        model, split, sheaf.complement(), reference=reference, batch_size=batch_size
    )
    full_labels, kept_labels, rest_labels = (
        project_labels(model, split, states) for states in (full, kept, rest)
    )
    right = is_right(kept_labels, split.targets)
    rest_right = is_right(rest_labels, split.targets)
    low, high = wilson(int(right.sum()), len(split))
    log_full, log_kept = full_labels.log_softmax(-1), kept_labels.log_softmax(-1)
    log_rest = rest_labels.log_softmax(-1)
    kl_vocabulary, same_top = _over_vocabulary(model, full, kept)
    return Evaluation(
        n=len(split),
        accuracy=share_of(right),
        accuracy_low=low,
        accuracy_high=high,
        balanced_accuracy=balanced(right, split.groups),
        agreement=share_of(is_right(kept_labels, full_labels.argmax(-1))),
        ties=share_of((kept_labels == kept_labels.amax(-1, keepdim=True)).sum(-1) > 1),
        kl=float(kl_divergence(log_full, log_kept).mean()),
        kl_paper=float(kl_divergence(log_kept, log_full).mean()) / split.labels.shape[1],
        kl_vocabulary=kl_vocabulary,
        top_token_agreement=same_top,
        complement_accuracy=share_of(rest_right),
        complement_balanced_accuracy=balanced(rest_right, split.groups),
        complement_entropy=float(-(log_rest.exp() * log_rest).sum(-1).mean())
        / math.log(split.labels.shape[1]),
        full_accuracy=share_of(is_right(full_labels, split.targets)),
        weight_density=sheaf.weight_density,
        edge_density=sheaf.edge_density,
        n_weights=sheaf.n_weights,
        n_edges=sheaf.n_edges,
    )


@torch.no_grad()
def final_states(
    model: MaskedTransformer,
    split: Split,
    sheaf: Sheaf | None = None,
    *,
    weights: Weights | None = None,
    edge_mask: Tensor | None = None,
    reference: Reference | None = None,
    batch_size: int = BATCH,
) -> Float[Tensor, "prompt d_model"]:
    """What the unembedding sees at each prompt's last token.

    Under a sheaf, or under masked weights and an edge mask given apart.
    """
    if sheaf is not None:
        if reference is None:
            sheaf.check_cuts_to_zero()
        weights, edge_mask = model.masked_weights(sheaf), sheaf.edge_mask
    parts = [
        model.hidden(
            batch.tokens,
            weights=weights,
            edge_mask=edge_mask,
            reference=None if reference is None else reference(batch),
            last=batch.lengths - 1,
        )
        for batch in split.batches(min(batch_size, _most_prompts(model, split)))
    ]
    return torch.cat(parts)


def _most_prompts(model: MaskedTransformer, split: Split) -> int:
    """How many prompts of this length may be evaluated at once."""
    numbers = split.tokens.shape[1] * model.graph.n_senders * model.layout.d_model
    return max(1, MOST_FLOATS // max(1, numbers))


def project_labels(
    model: MaskedTransformer, split: Split, states: Float[Tensor, "prompt d_model"]
) -> Float[Tensor, "prompt label"]:
    """Logits of each prompt's label set."""
    rows = model.fixed.unembedding[split.labels.to(model.device)]
    return torch.einsum("pd,pld->pl", states, rows).cpu()


def label_logits(
    model: MaskedTransformer, split: Split, sheaf: Sheaf | None = None, batch_size: int = BATCH
) -> Float[Tensor, "prompt label"]:
    """Logits of each prompt's label set at its last token, under a sheaf or of the full model."""
    return project_labels(model, split, final_states(model, split, sheaf, batch_size=batch_size))


def is_right(
    logits: Float[Tensor, "prompt label"], targets: Int[Tensor, " prompt"]
) -> Bool[Tensor, " prompt"]:
    """Whether the right label is strictly above all others: a tie is no answer."""
    rows = torch.arange(len(targets))
    others = logits.clone()
    others[rows, targets] = -math.inf
    return logits[rows, targets] > others.amax(-1)


def balanced(right: Bool[Tensor, " prompt"], groups: Int[Tensor, " prompt"]) -> float:
    """Mean over the classes that occur of the accuracy within the class."""
    return sum(share_of(right[groups == g]) for g in groups.unique()) / len(groups.unique())


def kl_divergence(
    log_p: Float[Tensor, "prompt label"], log_q: Float[Tensor, "prompt label"]
) -> Float[Tensor, " prompt"]:
    """KL(p || q) of each prompt, in nats."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _over_vocabulary(
    model: MaskedTransformer, full: Tensor, kept: Tensor, size: int = 64
) -> tuple[float, float]:
    """KL divergence and agreement of the top token over all tokens, a few prompts at a time."""
    divergence, same = 0.0, 0
    for a, b in zip(full.split(size), kept.split(size), strict=True):
        log_a = (a @ model.fixed.unembedding.T).log_softmax(-1)
        log_b = (b @ model.fixed.unembedding.T).log_softmax(-1)
        divergence += float(kl_divergence(log_a, log_b).sum())
        same += int((log_a.argmax(-1) == log_b.argmax(-1)).sum())
    return divergence / len(full), same / len(full)


def share_of(right: Bool[Tensor, " prompt"]) -> float:
    """The share that is true, as exact as a float can be: 38 of 40 is 0.95, no less."""
    return int(right.sum()) / max(1, len(right))
