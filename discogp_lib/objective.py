"""The losses of the paper's objective; its third term, sparsity, is `config.Push` on the masks."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from discogp_lib.config import Fidelity
from discogp_lib.evaluate import kl_divergence
from discogp_lib.model import MaskedTransformer


def fidelity_loss(
    kind: Fidelity,
    model: MaskedTransformer,
    states: Float[Tensor, "prompt d_model"],
    full_states: Float[Tensor, "prompt d_model"],
    labels: Int[Tensor, "prompt label"],
    targets: Int[Tensor, " prompt"],
) -> Float[Tensor, ""]:
    """How far the sheaf is from the full model, mean over prompts.

    `label` is the paper's: the negative log-likelihood of the full model's own answer, among the
    label set. `distribution` and `vocabulary` are KL(full || sheaf) over labels or all tokens.
    `gold` is the negative log-likelihood of the right answers, `targets`.
    """
    if kind == "vocabulary":
        log_sheaf = (states @ model.fixed.unembedding.T).log_softmax(-1)
        log_full = (full_states @ model.fixed.unembedding.T).log_softmax(-1)
        return kl_divergence(log_full, log_sheaf).mean()
    log_sheaf = label_log_probabilities(model, states, labels)
    log_full = label_log_probabilities(model, full_states, labels)
    if kind == "distribution":
        return kl_divergence(log_full, log_sheaf).mean()
    answers = targets.to(states.device) if kind == "gold" else log_full.argmax(-1)
    return -log_sheaf.gather(-1, answers.unsqueeze(-1)).mean()


def completeness_loss(
    model: MaskedTransformer,
    states: Float[Tensor, "prompt d_model"],
    labels: Int[Tensor, "prompt label"],
) -> Float[Tensor, ""]:
    """Cross-entropy of the complement's answer with the uniform distribution over the labels."""
    return -label_log_probabilities(model, states, labels).mean()


def answer_log_odds(
    model: MaskedTransformer,
    states: Float[Tensor, "prompt d_model"],
    labels: Int[Tensor, "prompt label"],
) -> Float[Tensor, " prompt"]:
    """Log-odds of the most likely label against all others of its set.

    Unlike the losses it has a gradient at the full model, and unlike a likelihood one that does
    not fade where the model is sure.
    """
    log_labels = label_log_probabilities(model, states, labels)
    answers = log_labels.argmax(-1, keepdim=True)
    others = log_labels.scatter(-1, answers, -torch.inf).logsumexp(-1)
    return log_labels.gather(-1, answers).squeeze(-1) - others


def label_log_probabilities(
    model: MaskedTransformer,
    states: Float[Tensor, "prompt d_model"],
    labels: Int[Tensor, "prompt label"],
) -> Float[Tensor, "prompt label"]:
    """Log-probabilities among each prompt's label set."""
    rows = model.fixed.unembedding[labels.to(states.device)]
    return torch.einsum("pd,pld->pl", states, rows).log_softmax(-1)
