"""One call from a model and a task to a sheaf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discogp_lib.errors import ConfigError
from discogp_lib.methods import METHODS
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task


def discover(
    model: MaskedTransformer,
    task: Task,
    method: str = "discogp",
    seed: int = 0,
    *,
    config: Any = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Sheaf:
    """Search for the sheaf of a task with one of `METHODS`.

    config: settings of the method's own kind (`SearchConfig` for the gradient methods).
    checkpoint: where an interrupted search leaves its state, and goes on from.
    """
    if method not in METHODS:
        raise ConfigError(f"There is no method {method!r}; the methods are {', '.join(METHODS)}.")
    path = None if checkpoint is None else Path(checkpoint)
    return METHODS[method](model, task, config, seed, checkpoint=path, progress=progress)
