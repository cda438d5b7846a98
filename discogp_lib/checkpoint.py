"""The file from which an interrupted search goes on.

One safetensors file, replaced atomically: tensors as they are, the rest as JSON.
It names the inputs of its search and is ignored by any other; a damaged one is ignored too,
because starting over is always right. It also says how long the search had taken until then, so
that the time of a search is that of all the processes that carried it on.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from discogp_lib.errors import RunError
from discogp_lib.paths import atomic_path

FORMAT = 2
"""Changes with what searches keep; a checkpoint of another format is ignored."""

PROCESS = uuid.uuid4().hex
"""By which a process knows the checkpoints that it wrote."""

NO_TIME = {"wall": 0.0, "cpu": 0.0}


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds."""

    tensors: Mapping[str, Tensor]
    state: dict[str, Any]


def seconds_since(before: Mapping[str, float] | None = None) -> dict[str, float]:
    """This process's clocks, wall and CPU, less an earlier reading."""
    now = {"wall": time.perf_counter(), "cpu": time.process_time()}
    return now if before is None else _add(now, before, -1)


def seconds_of_earlier_processes(paths: Iterable[Path]) -> dict[str, float]:
    """How long searches had taken when this process resumed them.

    paths: checkpoints; those that this process has not written are of other searches.
    """
    headers = [_header(path) for path in paths]
    mine = [h["earlier"] for h in headers if h.get("process") == PROCESS]
    return reduce(_add, map(json.loads, mine), NO_TIME)


def _header(path: Path) -> dict[str, str]:
    """What a checkpoint says of itself, nothing if it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError):
        return {}


def _add(a: Mapping[str, float], b: Mapping[str, float], sign: int = 1) -> dict[str, float]:
    return {clock: a[clock] + sign * b[clock] for clock in a}


class SearchCheckpoint:
    """A place for the checkpoint of one search."""

    def __init__(self, path: Path, inputs: list[Any]) -> None:
        self.path = path
        self.identity = hashlib.sha256(json.dumps([FORMAT, *inputs]).encode()).hexdigest()
        self.earlier = NO_TIME
        """Seconds that the search had taken when it was resumed."""
        self._begun = seconds_since()

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        header = {
            "identity": self.identity,
            "state": json.dumps(state),
            "process": PROCESS,
            "earlier": json.dumps(self.earlier),
            "seconds": json.dumps(_add(self.earlier, seconds_since(self._begun))),
        }
        cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            with atomic_path(self.path) as temporary:
                save_file(cpu, temporary, metadata=header)
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"The search cannot be kept in {self.path} ({error}); make room on the disk and "
                "call it again: it goes on from its last checkpoint."
            ) from error

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
                saved = Saved(tensors, json.loads(header["state"]))
                self.earlier = json.loads(header["seconds"])
                return saved
        except (SafetensorError, OSError, ValueError, KeyError):
            return None
