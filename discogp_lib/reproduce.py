"""Everything from nothing: the runs of a profile, then the notebooks in sequence.

A notebook is executed with papermill into `results/<profile>/notebooks/`. Beside it lies the hash
of what it was made from (the notebook, the library, its parameters, the records it may read), so
a second call does nothing, and a change reruns what depends on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
import papermill
from papermill.exceptions import PapermillExecutionError

from discogp_lib.errors import RunError
from discogp_lib.paths import PACKAGE, REPO, RESULTS, atomic_path
from discogp_lib.profiles import PROFILES, default_profile
from discogp_lib.runs import Run, load_record
from discogp_lib.sweep import plan, sweep

NOTEBOOKS = REPO / "notebooks"


def reproduce(
    profile: str | None = None,
    *,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    device: str = "cpu",
    say: Callable[[str], None] = print,
) -> None:
    """Compute the runs that are missing, then execute the notebooks that are out of date."""
    name, why = (profile, "it was asked for") if profile else default_profile()
    say(f"Profile {name} ({why}): {PROFILES[name].about}.")
    runs = plan(name, tasks, methods, seeds)
    missing = [run for run in runs if load_record(run) is None]
    say(f"{len(runs)} runs, {len(missing)} of them still to be computed.")
    outcomes = sweep(runs if missing else [], jobs=jobs or os.cpu_count() or 1, device=device)
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise RunError(f"{failed[0].run} failed ({len(failed)} in all): {failed[0].error}")
    for notebook in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        execute(notebook, name, _parameters(notebook, name, runs), runs, say)
    say(f"Tables are in {RESULTS / name / 'tables'}, figures in {REPO / 'figures' / name}.")


def _parameters(
    notebook: Path,
    profile: str,
    runs: Sequence[Run],
) -> dict[str, Any]:
    """What a notebook is told: those of our parameters that its parameters cell declares."""
    known = {
        "PROFILE": profile,
        "MODEL": PROFILES[profile].model,
        "TASKS": list(dict.fromkeys(run.task for run in runs)),
        "SEEDS": sorted({run.seed for run in runs}),
    }
    declared = papermill.inspect_notebook(str(notebook))
    if "PROFILE" not in declared:
        raise RunError(f"{notebook.name} has no parameter PROFILE; it cannot be told what to do.")
    return {key: value for key, value in known.items() if key in declared}


def execute(
    notebook: Path,
    profile: str,
    parameters: dict[str, Any],
    runs: Sequence[Run],
    say: Callable[[str], None] = print,
) -> None:
    """Execute one notebook unless its last execution was made from the same."""
    target = RESULTS / profile / "notebooks" / notebook.name
    stamp = target.with_suffix(".made_from.json")
    made_from = {"sha256": _sources_hash(notebook, parameters, runs)}
    if target.exists() and stamp.exists() and json.loads(stamp.read_text()) == made_from:
        say(f"{notebook.name}: up to date")
        return
    started = time.perf_counter()
    with atomic_path(target) as temporary:
        try:
            papermill.execute_notebook(
                notebook,
                temporary,
                parameters=parameters,
                cwd=str(NOTEBOOKS),
                progress_bar=False,
                kernel_name="python3",
            )
        except PapermillExecutionError as error:
            last = error.traceback[-1] if error.traceback else ""
            raise RunError(
                f"{notebook.name} failed in cell {error.exec_count}: {error.ename}: "
                f"{error.evalue} {last if error.ename == 'AssertionError' else ''}".strip()
            ) from None
        _strip_machine(temporary)
    with atomic_path(stamp) as temporary:
        temporary.write_text(json.dumps(made_from) + "\n")
    say(f"{notebook.name}: executed in {time.perf_counter() - started:.0f} s")


def _strip_machine(path: Path) -> None:
    """Leave out of an executed notebook what only this machine and moment explain."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
    nbformat.write(notebook, path)


def _sources_hash(notebook: Path, parameters: dict[str, Any], runs: Sequence[Run]) -> str:
    """Identity of everything a notebook's output depends on."""
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode())
    cells = nbformat.read(notebook, as_version=4).cells
    digest.update(json.dumps([(cell.cell_type, cell.source) for cell in cells]).encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    for run in sorted(runs, key=str):
        if run.record_path.exists():
            digest.update(run.record_path.read_bytes())
    return digest.hexdigest()
