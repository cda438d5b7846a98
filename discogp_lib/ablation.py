"""What a cut edge carries: nothing (zero ablation), an average, or another prompt's value.

All three share one mechanism of the engine: a reference value per sender, zero by default.
References are values of the *full* model.

* zero: the paper's choice for sheaves; what is cut is gone.
* mean: the sender's average output over the training prompts, apart for each position counted
  from the end of the prompt (so that the last token's average is a last token's).
* interchange: the sender's output on the corrupted version of the same prompt.

A fourth, random, is not for searching but for comparison: the sender's output on a prompt of
random tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from discogp_lib.config import Ablation
from discogp_lib.errors import TaskError
from discogp_lib.evaluate import Reference
from discogp_lib.model import MaskedTransformer
from discogp_lib.tasks.base import Split, Task

MEAN_PROMPTS = 128
"""Training prompts that the average is taken over."""


def reference_for(ablation: Ablation, model: MaskedTransformer, task: Task) -> Reference | None:
    """The reference values of an ablation, as the engine wants them; None for zero."""
    if ablation == "zero":
        return None
    if ablation == "interchange":
        if all(torch.equal(s.corrupted, s.tokens) for s in (task.train, task.dev, task.test)):
            raise TaskError(
                f"No prompt of task {task.name!r} has a counterpart of another class and as many "
                "tokens, so interchange ablation would change nothing; give corrupted prompts."
            )
        return lambda split: model.sender_outputs(split.corrupted)
    means = mean_outputs(model, task.train.first(MEAN_PROMPTS))

    def from_means(split: Split) -> Float[Tensor, "batch pos sender d_model"]:
        return means[positions_from_end(split, len(means)).to(model.device)]

    return from_means


def random_reference(model: MaskedTransformer, seed: int = 0) -> Reference:
    """Values of prompts of as many tokens, drawn uniformly from the vocabulary.

    The token before every prompt, where the model has one, stays. The draw depends on the seed and
    the shape of the batch alone.
    """

    def from_noise(split: Split) -> Float[Tensor, "batch pos sender d_model"]:
        generator = torch.Generator().manual_seed(seed)
        shape = tuple(split.tokens.shape)
        tokens = torch.randint(model.vocabulary_size, shape, generator=generator)
        if model.bos is not None:
            tokens[:, 0] = model.bos
        return model.sender_outputs(tokens)

    return from_noise


def mean_outputs(
    model: MaskedTransformer, split: Split
) -> Float[Tensor, "pos_from_end sender d_model"]:
    """Average output of each sender at each position counted from the end of the prompt.

    Positions that few prompts reach (the start of the longest) are averaged over those few.
    """
    width = int(split.lengths.max())
    sums = torch.zeros(width, model.graph.n_senders, model.layout.d_model, device=model.device)
    counts = torch.zeros(width, device=model.device)
    for batch in split.batches(16):
        place = positions_from_end(batch, width).to(model.device)
        real = torch.arange(place.shape[1])[None, :] < batch.lengths[:, None]
        outputs = model.sender_outputs(batch.tokens)
        chosen = real.to(model.device)
        sums.index_add_(0, place[chosen], outputs[chosen])
        counts += torch.bincount(place[chosen], minlength=width)
    return sums / counts.clamp(min=1)[:, None, None]


def positions_from_end(split: Split, width: int) -> Int[Tensor, "prompt pos"]:
    """0 at each prompt's last token, rising to the left; padding counts as 0."""
    positions = torch.arange(split.tokens.shape[1])
    return (split.lengths[:, None] - 1 - positions[None, :]).clamp(0, width - 1)
