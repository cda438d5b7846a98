"""What all methods have in common: one signature, and where their results say they come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task


class Method(Protocol):
    """From a model and a task to a sheaf.

    `config` is of the method's own kind, None for its defaults. A method that takes long keeps
    its state in `checkpoint` and goes on from there.
    """

    def __call__(
        self,
        model: MaskedTransformer,
        task: Task,
        config: Any = None,
        seed: int = 0,
        *,
        checkpoint: Path | None = None,
        progress: bool = True,
    ) -> Sheaf:
        """The sheaf; its metadata say how it was found."""


def labelled(
    sheaf: Sheaf, method: str, task: Task, seed: int, config: dict[str, Any], **found: Any
) -> Sheaf:
    """The sheaf with where it comes from, and what its method found out on the way."""
    metadata = {
        "method": method,
        "task": task.name,
        "task_sha256": task.sha256,
        "seed": seed,
        "config": config,
        "found": found,
    }
    return replace(sheaf, metadata=metadata)
