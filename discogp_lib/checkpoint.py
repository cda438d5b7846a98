"""The file from which an interrupted search goes on.

One safetensors file, replaced atomically: tensors as they are, masks packed, the rest as JSON.
It names the inputs of its search and is ignored by any other; a damaged one is ignored too,
because starting over is always right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from discogp_lib.paths import atomic_path


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds."""

    tensors: Mapping[str, Tensor]
    state: dict[str, Any]


class SearchCheckpoint:
    """A place for the checkpoint of one search."""

    def __init__(self, path: Path, inputs: list[Any]) -> None:
        self.path = path
        self.identity = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        header = {"identity": self.identity, "state": json.dumps(state)}
        cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with atomic_path(self.path) as temporary:
            save_file(cpu, temporary, metadata=header)

    def load(self) -> Saved | None:
        """The checkpoint of this very search, if there is a whole one."""
        if not self.path.is_file():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                if header.get("identity") != self.identity:
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}
                return Saved(tensors, json.loads(header["state"]))
        except (SafetensorError, OSError, ValueError, KeyError):
            return None

    def remove(self) -> None:
        """The search is done; nothing is left to resume."""
        self.path.unlink(missing_ok=True)
