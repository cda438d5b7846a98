"""Evaluations that are not done twice.

A large model answers for minutes what a notebook shows in a second. A memory keeps the numbers of
earlier evaluations in a file, one JSON object per line, under the hash of all that went into them;
whatever changes among that gets another hash and is evaluated again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discogp_lib.sheaf import Sheaf


class Memory:
    """Numbers by key; without a path it forgets."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._known: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path and path.exists() else []:
            try:
                entry = json.loads(line)
                self._known[entry["key"]] = entry["values"]
            except (ValueError, KeyError, TypeError):
                continue  # a line that a killed process did not finish

    def get(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The numbers kept under this key, else those made now, kept from here on."""
        if key not in self._known:
            self._known[key] = make()
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a") as file:
                    file.write(json.dumps({"key": key, "values": self._known[key]}) + "\n")
        return self._known[key]


def fingerprint(sheaf: Sheaf) -> str:
    """Hash of the model and both masks; where a sheaf comes from does not matter."""
    digest = hashlib.sha256(sheaf.checkpoint_sha256.encode())
    for mask in (sheaf.edge_mask, *sheaf.weight_masks.values()):
        digest.update(mask.contiguous().numpy().data)
    return digest.hexdigest()


def key_of(*inputs: Any) -> str:
    """One hash for all that an evaluation depends on."""
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
