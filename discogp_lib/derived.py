"""What is computed from a run and kept beside its record, so that it is computed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from discogp_lib.paths import atomic_path
from discogp_lib.runs import Run


def derived(
    run: Run, name: str, inputs: dict[str, Any], make: Callable[[], pd.DataFrame]
) -> pd.DataFrame:
    """The table `name`.json in the run's folder if it was made from these inputs, else a new one.

    inputs: plain values that say everything the table depends on.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    path = run.folder / f"{name}.json"
    with FileLock(run.folder / f".{name}.lock"):
        if (rows := _load(path, inputs)) is None:
            # Through text and back, so that the first reader sees what the second will.
            rows = json.loads(json.dumps(make().to_dict("records")))
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps({"inputs": inputs, "rows": rows}, indent=1) + "\n")
    return pd.DataFrame(rows)


def _load(path: Path, inputs: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of a table that is whole and of these inputs."""
    try:
        saved = json.loads(path.read_text())
        return saved["rows"] if saved["inputs"] == inputs else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
