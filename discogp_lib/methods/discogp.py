"""DiscoGP: edges and weights pruned together by gradient, the paper's method.

Weight pruning and edge pruning are the same search with one kind of mask.
"""

from __future__ import annotations

from pathlib import Path

from discogp_lib.config import SearchConfig
from discogp_lib.learner import Kind
from discogp_lib.methods.base import labelled
from discogp_lib.model import MaskedTransformer
from discogp_lib.search import search
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task


def discogp(
    model: MaskedTransformer,
    task: Task,
    config: SearchConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """Search for both masks."""
    return by_gradient(
        "discogp", ("weights", "edges"), model, task, config, seed, checkpoint, progress
    )


def by_gradient(
    method: str,
    kinds: tuple[Kind, ...],
    model: MaskedTransformer,
    task: Task,
    config: SearchConfig | None,
    seed: int,
    checkpoint: Path | None,
    progress: bool,
) -> Sheaf:
    """Search for masks of some kinds; the rest of the model stays whole."""
    config = config or SearchConfig()
    result = search(
        model,
        task,
        config,
        seed,
        kinds=kinds,
        checkpoint=checkpoint,
        progress=progress,
    )
    return labelled(
        result.sheaf,
        method,
        task,
        seed,
        config.as_dict(),
        status=result.status,
        steps=result.steps,
        start=result.start,
        raw_weight_density=result.raw_weight_density,
        raw_edge_density=result.raw_edge_density,
        curve=result.curve,
    )
