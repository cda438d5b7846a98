"""One call from a model and a task to a sheaf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discogp_lib.config import PlainConfig, SearchConfig
from discogp_lib.errors import ConfigError, TaskError
from discogp_lib.methods import METHODS
from discogp_lib.methods.acdc import AcdcConfig
from discogp_lib.methods.controls import MagnitudeConfig, MatchedConfig, RandomConfig
from discogp_lib.methods.eap import EapConfig, EapIgConfig
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

CONFIGS: dict[str, type[PlainConfig]] = {
    "discogp": SearchConfig,
    "weight_pruning": SearchConfig,
    "edge_pruning": SearchConfig,
    "acdc": AcdcConfig,
    "eap": EapConfig,
    "eap_ig": EapIgConfig,
    "random": RandomConfig,
    "random_matched": MatchedConfig,
    "magnitude": MagnitudeConfig,
}
"""The kind of settings that each method has."""


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

    config: settings of the method's own kind, as in `CONFIGS`.
    checkpoint: where an interrupted search leaves its state, and goes on from.
    """
    if not isinstance(task, Task):
        raise TaskError(
            f"A search needs a task, such as load_task({str(task)!r}, model), not a "
            f"{type(task).__name__}."
        )
    if method not in METHODS:
        raise ConfigError(f"There is no method {method!r}; the methods are {', '.join(METHODS)}.")
    kind = CONFIGS.get(method, object)  # a method of one's own takes what it likes
    if config is not None and not isinstance(config, kind):
        raise ConfigError(
            f"The config of {method!r} is of type {type(config).__name__}; make it with "
            f"{kind.__name__}(...), of {kind.__module__}."
        )
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and not path.name:
        raise ConfigError(f"A checkpoint is a file; {str(checkpoint)!r} names none.")
    return METHODS[method](model, task, config, seed, checkpoint=path, progress=progress)
