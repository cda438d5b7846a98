"""Weight pruning: DiscoGP's search with weight masks alone, the paper's baseline."""

from __future__ import annotations

from pathlib import Path

from discogp_lib.config import SearchConfig
from discogp_lib.methods.discogp import by_gradient
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task


def weight_pruning(
    model: MaskedTransformer,
    task: Task,
    config: SearchConfig | None = None,
    seed: int = 0,
    *,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """Search for weight masks, with everything else of the model kept."""
    return by_gradient(
        "weight_pruning", ("weights",), model, task, config, seed, checkpoint, progress
    )
