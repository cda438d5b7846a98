"""EAP and EAP-IG: every edge judged at once, by gradient.

Edge attribution patching (Syed et al., 2024) estimates what cutting an edge does to a metric by
its first-order effect: the difference the cut makes to the receiver's input, times the metric's
gradient there. With a mask over edges that is minus the gradient of the mask at all ones, which
one forward and one backward pass give for every edge.

EAP-IG (Hanna et al., 2024) takes the gradients not at the prompt alone but averaged on the way
from the corrupted prompt's embedding to the clean one's: a metric that is flat at the clean
prompt is not flat all the way. The differences stay those of the clean prompt. A corrupted prompt
may be another prompt of the task, and then also one of the test split (see `tasks.corrupt`).

The metric is the paper's fidelity: the log-likelihood of the full model's answer among the label
set. KL to the full model will not do, since its gradient at the full model is zero. The logit
difference was tried on the development prompts of the mini model's tasks: no better for EAP, and
worse for EAP-IG.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from discogp_lib.ablation import reference_for
from discogp_lib.config import check_count
from discogp_lib.evaluate import Reference, final_states
from discogp_lib.methods.base import labelled
from discogp_lib.methods.budget import by_score, some_prompts
from discogp_lib.methods.edge_config import EdgeConfig
from discogp_lib.model import MaskedTransformer
from discogp_lib.objective import label_log_probabilities
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split, Task
from discogp_lib.unrolled import UnrolledStream

BATCH = 32
"""Prompts per forward and backward pass."""


@dataclass(frozen=True, kw_only=True)
class EapConfig(EdgeConfig):
    """Settings of EAP."""


@dataclass(frozen=True, kw_only=True)
class EapIgConfig(EdgeConfig):
    """Settings of EAP-IG."""

    steps: int = 8
    """Points between the corrupted and the clean embedding, at the middles of as many equal
    parts. Hanna et al. use 5."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)


def eap(
    model: MaskedTransformer,
    task: Task,
    config: EapConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """The edges of largest attribution; takes seconds, so it neither resumes nor shows progress."""
    config = config or EapConfig()
    return _ranked("eap", model, task, config, seed, eap_scores(model, task, config, seed))


def eap_ig(
    model: MaskedTransformer,
    task: Task,
    config: EapIgConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """The edges of largest attribution by integrated gradients."""
    config = config or EapIgConfig()
    return _ranked("eap_ig", model, task, config, seed, eap_ig_scores(model, task, config, seed))


def _ranked(
    method: str,
    model: MaskedTransformer,
    task: Task,
    config: EdgeConfig,
    seed: int,
    scores: Float[Tensor, " edge"],
) -> Sheaf:
    """The sheaf of a budget, with a summary of the scores.

    Ranked by absolute value, as the authors of EAP do: an edge that works against the answer is
    as much a part of what the model does as one that works for it.
    """
    sheaf = by_score(model, scores, config.budget, config.ablation)
    kept = scores.abs()[sheaf.edge_mask.to(scores.device)]
    return labelled(
        sheaf,
        method,
        task,
        seed,
        config.as_dict(),
        threshold=float(kept.min()) if len(kept) else None,
        largest=float(scores.abs().max()),
        positive=float((scores > 0).float().mean()),
    )


def eap_scores(
    model: MaskedTransformer, task: Task, config: EapConfig, seed: int = 0
) -> Float[Tensor, " edge"]:
    """What cutting each edge takes from the answer's log-likelihood, to first order, in nats; mean
    over prompts."""
    split = some_prompts(task, config.prompts, seed)
    reference = reference_for(config.ablation, model, task)
    scores = torch.zeros(model.graph.n_edges, device=model.device)
    for batch in split.batches(BATCH):
        start = model.embed(batch.tokens)
        values = None if reference is None else reference(batch)
        scores += len(batch) * _attribution(model, batch, start, values)
    return scores / len(split)


def eap_ig_scores(
    model: MaskedTransformer, task: Task, config: EapIgConfig, seed: int = 0
) -> Float[Tensor, " edge"]:
    """The same, with gradients averaged between the corrupted and the clean embedding.

    The path leads from the corrupted prompt under every ablation. With zero or mean ablation only
    the difference an edge makes is another one (clean minus nothing, or minus the average). A
    path that shrinks all edges, or the embedding, to zero would lead nowhere: the norms undo any
    common factor.
    """
    split = some_prompts(task, config.prompts, seed)
    reference = reference_for(config.ablation, model, task)
    scores = torch.zeros(model.graph.n_edges, device=model.device)
    for batch in split.batches(BATCH):
        clean, corrupted = model.embed(batch.tokens), model.embed(batch.corrupted)
        difference = _difference(model, batch, reference)
        for step in range(config.steps):
            start = torch.lerp(corrupted, clean, (step + 0.5) / config.steps)
            # With every edge kept the reference changes no value, only what the gradient of an
            # edge is multiplied with: so choose the one that makes it the clean difference.
            values = model.sender_outputs_from(start).sub_(difference)
            scores += len(batch) * _attribution(model, batch, start, values)
    return scores / (len(split) * config.steps)


def _difference(
    model: MaskedTransformer, batch: Split, reference: Reference | None
) -> Float[Tensor, "batch pos sender d_model"]:
    """What each sender writes on the clean prompts, minus what a cut edge would carry."""
    outputs = model.sender_outputs(batch.tokens)
    return outputs if reference is None else outputs.sub_(reference(batch))


def _attribution(
    model: MaskedTransformer,
    batch: Split,
    start: Float[Tensor, "batch pos d_model"],
    reference: Float[Tensor, "batch pos sender d_model"] | None,
) -> Float[Tensor, " edge"]:
    """Gradient of the metric for the edge mask at all ones: one forward, one backward."""
    answers = label_answers(model, batch)
    mask = torch.ones(1, model.graph.n_edges, device=model.device, requires_grad=True)
    flat = None if reference is None else reference.flatten(0, 1)
    stream = UnrolledStream(start.flatten(0, 1), mask, model.graph.n_senders, flat)
    shape = (start.shape[0], start.shape[1])
    states = model.run(stream, shape, last=batch.lengths - 1)
    (gradient,) = torch.autograd.grad(log_likelihood(model, batch, states, answers), mask)
    return gradient.squeeze(0)


def label_answers(model: MaskedTransformer, batch: Split) -> Int[Tensor, " batch"]:
    """The full model's answer to each prompt, a column of the label set."""
    return label_log_probabilities(model, final_states(model, batch), batch.labels).argmax(-1)


def log_likelihood(
    model: MaskedTransformer,
    batch: Split,
    states: Float[Tensor, "batch d_model"],
    answers: Int[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Log-likelihood of the answers among the label set, mean over prompts."""
    log_labels = label_log_probabilities(model, states, batch.labels)
    return log_labels.gather(-1, answers.unsqueeze(-1)).mean()
