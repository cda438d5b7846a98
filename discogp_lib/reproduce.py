"""Everything from nothing: the runs of a profile, then the notebooks in sequence.

A notebook is executed with papermill into `results/<profile>/notebooks/`, unless the last
execution was made from the same (`stamps.py`).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from discogp_lib.checklist import write_index
from discogp_lib.errors import RunError
from discogp_lib.executors import default_device, default_jobs
from discogp_lib.manifest import write_manifest
from discogp_lib.paths import FIGURES, REPO, RESULTS, atomic_path
from discogp_lib.profiles import PROFILES, default_profile
from discogp_lib.runs import Run
from discogp_lib.schedule import must_be_computed
from discogp_lib.stamps import Stamp, library_hash, notebook_hash, records_hash, written_files
from discogp_lib.sweep import plan, sweep

NOTEBOOKS = REPO / "notebooks"


@dataclass(frozen=True)
class Need:
    """What must have been asked for, so that a notebook has something to say."""

    tasks: re.Pattern[str]
    """What their names are like."""
    least: int
    """How many of them."""
    said: str


NEEDS = {
    "04": Need(re.compile("(?!pararel/)"), 2, "two tasks other than relations"),
    "05": Need(re.compile(""), 2, "two tasks"),
    "06": Need(re.compile("pararel/"), 1, "a relation"),
}
"""By the notebook's number; the others make do with any task."""


def reproduce(
    profile: str | None = None,
    *,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    device: str | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Compute the runs that are missing, then execute the notebooks that are out of date.

    DiscoGP is always among the methods: the others are measured against it. Where runs take
    seconds the notebooks tell of the runs asked for; of a larger model, whose runs come in over
    days, they tell of all that the store has, and name what it has not.
    """
    name, why = (profile, "it was asked for") if profile else default_profile()
    say(f"Profile {name} ({why}): {PROFILES[name].about}.")
    runs = plan(name, tasks, methods and unique(["discogp", *methods]), seeds)
    fill_store(name, runs, jobs=jobs, device=device, say=say)
    asked = {"TASKS": unique(run.task for run in runs), "SEEDS": list(seeds or [])}
    asked["METHODS"] = unique(run.method for run in runs if "@" not in run.method)
    if not PROFILES[name].is_small:
        runs = [run for run in plan(name) if run.record_path.exists()]
        asked = {}
    notebooks = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    if not notebooks:
        raise RunError(f"There are no notebooks in {NOTEBOOKS}.")
    executed = [execute_if_changed(n, name, runs, asked, notebooks, say) for n in notebooks]
    written = [RESULTS / name / "manifest.json", RESULTS / name / "INDEX.md"]
    if any(executed) or not all(path.exists() for path in written):
        write_index(name)
        write_manifest(name, runs)
    places = (RESULTS / name / "INDEX.md", RESULTS / name / "tables", FIGURES / name)
    index, table, figure = (os.path.relpath(place, REPO) for place in places)
    say(f"Done: {index} lists everything; tables are in {table}, figures in {figure}.")


def fill_store(
    profile: str,
    runs: Sequence[Run],
    *,
    jobs: int | None = None,
    device: str | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Compute the runs that the store lacks, or whose inputs have changed."""
    stamp = Stamp(profile, "runs")
    library = library_hash()
    missing = sum(map(must_be_computed, runs))
    say(f"{len(runs)} runs, {missing} of them to be computed.")
    if missing == 0 and stamp.holds(library + records_hash(runs)):
        return
    device = device or default_device()
    outcomes = sweep(runs, jobs=jobs or default_jobs(device), device=device, say=say)
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise RunError(
            f"{len(failed)} of {len(runs)} runs failed, the first is {failed[0].run}: "
            f"{failed[0].error}"
        )
    stamp.write(library + records_hash(runs), [])


def execute_if_changed(
    notebook: Path,
    profile: str,
    runs: Sequence[Run],
    asked: Mapping[str, list[Any]],
    notebooks: Sequence[Path],
    say: Callable[[str], None] = print,
) -> bool:
    """Execute a notebook unless its last execution was made from the same; whether it was.

    runs: what it can tell of. asked: the parameters by which it is narrowed, if it has them.
    """
    need = NEEDS.get(notebook.name[:2])
    chosen = {run.task for run in runs}
    if need and sum(bool(need.tasks.match(task)) for task in chosen) < need.least:
        say(f"{notebook.name}: skipped, it needs {need.said}, there are fewer")
        return False
    parameters = _parameters(notebook, profile, runs, asked)
    place = notebooks.index(notebook)
    stamps = [Stamp(profile, other.stem) for other in notebooks]
    inputs = notebook_hash(notebook, parameters, runs, stamps[:place])
    later = {name for stamp in stamps[place + 1 :] for name in stamp.outputs}
    if stamps[place].holds(inputs, overwritten=later):
        say(f"{notebook.name}: up to date")
        return False
    before, started = written_files(profile), time.perf_counter()
    target = RESULTS / profile / "notebooks" / notebook.name
    execute(notebook, target, parameters)
    after = written_files(profile)
    changed = [path for path, mark in after.items() if before.get(path) != mark]
    stamps[place].write(inputs, [target, *changed])
    say(f"{notebook.name}: executed in {time.perf_counter() - started:.0f} s")
    return True


def _parameters(
    notebook: Path, profile: str, runs: Sequence[Run], asked: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """What a notebook is told: those of our parameters that its parameters cell declares."""
    tasks = unique(run.task for run in runs)
    known = {"PROFILE": profile, "MODEL": PROFILES[profile].model, **asked}
    declared = papermill.inspect_notebook(str(notebook))
    if "PROFILE" not in declared:
        raise RunError(f"{notebook.name} has no parameter PROFILE; it cannot be told what to do.")
    if "SHOWN" in declared and declared["SHOWN"]["default"].strip("\"'") not in tasks:
        known["SHOWN"] = tasks[0]
    return {key: value for key, value in known.items() if key in declared}


def unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, in the order of their first appearance."""
    return list(dict.fromkeys(values))


def execute(notebook: Path, target: Path, parameters: dict[str, Any]) -> None:
    """Execute one notebook with parameters; the target appears only when all cells have run."""
    declared = papermill.inspect_notebook(str(notebook))
    if unknown := sorted(set(parameters) - set(declared)):
        raise RunError(
            f"{notebook.name} has no parameter {', '.join(unknown)}; it has {', '.join(declared)}."
        )
    try:
        with _kernel_messages() as messages:
            executed = papermill.execute_notebook(
                notebook,
                None,
                parameters=parameters,
                cwd=str(NOTEBOOKS),
                progress_bar=False,
                kernel_name="python3",
            )
    except PapermillExecutionError as error:
        first = error.source.strip().splitlines()[0] if error.source.strip() else ""
        raise RunError(
            f"{notebook.name} failed in cell In [{error.exec_count}] ({first}): "
            f"{error.ename}: {error.evalue}".rstrip(": ")
        ) from None
    except DeadKernelError:
        last = "".join(messages[-1:])
        raise RunError(
            f"The kernel of {notebook.name} died, often for want of memory. {last}".strip()
        ) from None
    _strip_machine(executed)
    for left_by_a_killed_process in target.parent.glob(".*.part"):
        left_by_a_killed_process.unlink()
    with atomic_path(target) as temporary:
        temporary.write_text(nbformat.writes(executed) + "\n", encoding="utf-8")


@contextmanager
def _kernel_messages() -> Iterator[list[str]]:
    """Keep what kernels say about themselves off the screen; afterwards it is in the list.

    What cells write comes through the notebook; this is the kernel's own standard error, with the
    trace it leaves when it is stopped.
    """
    lines: list[str] = []
    sys.stderr.flush()
    screen = os.dup(2)
    with tempfile.TemporaryFile(mode="w+") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(screen, 2)
            os.close(screen)
            file.seek(0)
            lines += file.read().splitlines()


def _strip_machine(notebook: nbformat.NotebookNode) -> None:
    """Leave out of an executed notebook what only this machine and moment explain."""
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
