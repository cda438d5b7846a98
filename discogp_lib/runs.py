"""The run store: one folder per task x method x seed, written atomically, never recomputed.

`results/<profile>/runs/<task>/<method>/seed<k>/` holds `record.json` (what was run, on what, with
which result) and `sheaf.safetensors`. A run is done when its record names the hash of its inputs
and of its sheaf file; anything less is redone. The record is written last.

Sheaves of controls are not kept, because random masks of a hundred million weights hardly compress,
and nobody asks for more of them than that they do not do the task. They can be made again, and
their records name the hash of the masks.
"""

from __future__ import annotations

import hashlib
import json
import platform
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from discogp_lib.ablation import reference_for
from discogp_lib.analysis.memory import fingerprint
from discogp_lib.checkpoint import seconds_of_earlier_processes, seconds_since
from discogp_lib.errors import RunError
from discogp_lib.evaluate import (
    Reference,
    evaluate,
    final_states,
    is_right,
    project_labels,
    share_of,
)
from discogp_lib.methods import METHODS
from discogp_lib.methods.settings import (
    SUBJECTS,
    base_method,
    needs_budget,
    settings_for,
    subject,
)
from discogp_lib.model import MaskedTransformer, load_model
from discogp_lib.paths import REPO, RESULTS, atomic_path
from discogp_lib.profiles import get_profile
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks import SHORT_NAMES, Task, load_task
from discogp_lib.tasks.base import Split

RECORD_VERSION = 2

MADE_AGAIN = (
    *("random", "random_matched", "magnitude"),
    *(f"discogp@{variant}" for variant in SUBJECTS),
)
"""Methods whose sheaves are not kept."""

TRAIN_PROMPTS = 200
"""Training prompts that a record's figures are of, the first so many: in a larger model evaluating
them all takes as long as the search."""


@dataclass(frozen=True)
class Run:
    """Which run: everything else follows from the profile."""

    profile: str
    task: str
    method: str
    seed: int

    @property
    def folder(self) -> Path:
        """Where the run's files lie."""
        return RESULTS / self.profile / "runs" / self.task / self.method / f"seed{self.seed}"

    @property
    def record_path(self) -> Path:
        """The record."""
        return self.folder / "record.json"

    @property
    def sheaf_path(self) -> Path:
        """The sheaf."""
        return self.folder / "sheaf.safetensors"

    def __str__(self) -> str:
        return f"{self.task} {self.method} seed {self.seed}"


@dataclass(frozen=True)
class Record:
    """What a run found; `data` is the whole of record.json."""

    run: Run
    data: dict[str, Any]

    @property
    def test(self) -> dict[str, float | int]:
        """The evaluation on the test prompts."""
        return self.data["metrics"]["test"]

    def sheaf(self) -> Sheaf:
        """The run's sheaf, from its file or made again."""
        if self.run.method not in MADE_AGAIN:
            return Sheaf.load(self.run.sheaf_path)
        model, task, config = _prepared(self.run)
        with _alone(self.run, progress=False):
            sheaf = _find(self.run, model, task, config, progress=False)
            _forget_search(self.run)
        if fingerprint(sheaf) != self.data["sheaf_sha256"]:
            raise RunError(
                f"Made again, the sheaf of {self.run} is not that of its record; delete "
                f"{self.run.record_path}, and the run is done anew."
            )
        return sheaf


@cache
def cached_model(name: str, device: str = "cpu") -> MaskedTransformer:
    """A model, loaded once per process."""
    return load_model(name, device)


@cache
def cached_task(name: str, model: str, seed: int, device: str = "cpu") -> Task:
    """A task for a model, made once per process."""
    return load_task(name, cached_model(model, device), seed=seed)


def load_record(run: Run, *, say: Callable[[str], None] = print) -> Record | None:
    """The record of a finished run; a damaged one is reported and counts as missing."""
    if not run.record_path.exists():
        return None
    try:
        data = json.loads(run.record_path.read_text())
        whole = data["version"] == RECORD_VERSION and {"inputs", "metrics"} <= set(data)
        whole &= all(data[key] == value for key, value in asdict(run).items())
        kept = run.method not in MADE_AGAIN
        if whole and (not kept or data["sheaf_sha256"] == file_sha256(run.sheaf_path)):
            return Record(run, data)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    say(f"The record of {run} is damaged or its sheaf is; the run is done again.")
    return None


def compute(run: Run, *, device: str = "cpu", progress: bool = True) -> Record:
    """The record of a run: from the store if its inputs have not changed, else computed now."""
    base_method(run.method)  # of an unknown one nothing is written
    with _alone(run, progress):
        return _compute_locked(run, device, progress)


@contextmanager
def _alone(run: Run, progress: bool) -> Iterator[None]:
    """While no other process computes this run."""
    run.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run.folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if progress:
            print(f"{run} is being computed by another process; waiting.", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _prepared(
    run: Run, device: str = "cpu", progress: bool = False
) -> tuple[MaskedTransformer, Task, Any]:
    """Model, task and settings of a run."""
    profile = get_profile(run.profile)
    model = cached_model(profile.model, device)
    task = cached_task(run.task, profile.model, run.seed, device)
    budget = None
    if needs_budget(run.method):
        matched = Run(run.profile, run.task, "discogp", run.seed)
        budget = compute(matched, device=device, progress=progress).sheaf()
    config = settings_for(run.method, profile, budget)
    return *subject(run.method, model, task, run.seed), config


def _find(run: Run, model: MaskedTransformer, task: Task, config: Any, progress: bool) -> Sheaf:
    """Carry out the run's method."""
    method, state = METHODS[base_method(run.method)], run.folder / "search"
    return method(model, task, config, run.seed, checkpoint=state, progress=progress)


def _compute_locked(run: Run, device: str, progress: bool) -> Record:
    model, task, config = _prepared(run, device, progress)
    inputs = {
        "checkpoint_sha256": model.checkpoint_sha256,
        "task_sha256": task.sha256,
        "method": run.method,
        "seed": run.seed,
        "config": config.as_dict(),
    }
    record = load_record(run)
    if record is not None and record.data["inputs"] == inputs:
        return record
    if record is not None:
        changed = [key for key, value in inputs.items() if record.data["inputs"].get(key) != value]
        print(f"{run} was done with another {', '.join(changed)}; it is done again.")
    for left_by_a_killed_process in run.folder.glob(".*.part"):
        left_by_a_killed_process.unlink()
    begun = seconds_since()
    sheaf = _find(run, model, task, config, progress)
    earlier = seconds_of_earlier_processes(run.folder.glob("search*"))
    seconds = {clock: earlier[clock] + value for clock, value in seconds_since(begun).items()}
    record = _write(run, model, task, sheaf, inputs, seconds)
    _forget_search(run)
    return record


def _forget_search(run: Run) -> None:
    """Remove the checkpoints of a search that is done."""
    for leftover in run.folder.glob("search*"):
        leftover.unlink()


def _write(
    run: Run,
    model: MaskedTransformer,
    task: Task,
    sheaf: Sheaf,
    inputs: dict[str, Any],
    seconds: dict[str, float],
) -> Record:
    """Evaluate, then write the sheaf and, last, the record."""
    ablation = reference_for(inputs["config"].get("ablation", "zero"), model, task)
    full = full_states(model, task, task.test, "test")
    test = evaluate(model, sheaf, task.test, reference=ablation, full=full)
    data = {
        "version": RECORD_VERSION,
        "profile": run.profile,
        "task": run.task,
        "short_name": SHORT_NAMES[run.task],
        "method": run.method,
        "seed": run.seed,
        "model": model.name,
        "inputs": inputs,
        "metrics": {"train": _on_train(model, task, sheaf, ablation), "test": test.as_dict()},
        "found": sheaf.metadata.get("found", {}),
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(),
        "environment": environment(model.device),
    }
    if run.method in MADE_AGAIN:
        data["sheaf_sha256"] = fingerprint(sheaf)
    else:
        sheaf.save(run.sheaf_path)
        data["sheaf_sha256"] = file_sha256(run.sheaf_path)
    with atomic_path(run.record_path) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n")
    return Record(run, data)


def _on_train(
    model: MaskedTransformer, task: Task, sheaf: Sheaf, ablation: Reference | None
) -> dict[str, int | float]:
    """How often the sheaf and the full model are right on training prompts."""
    train = task.train.first(TRAIN_PROMPTS)

    def accuracy(states: Tensor) -> float:
        return share_of(is_right(project_labels(model, train, states), train.targets))

    return {
        "n": len(train),
        "accuracy": accuracy(final_states(model, train, sheaf, reference=ablation)),
        "full_accuracy": accuracy(full_states(model, task, train, "train")),
    }


FULL_STATES: dict[tuple[str, ...], Tensor] = {}
"""What the full model says to the prompts of a record, kept for the other methods' records."""


def full_states(model: MaskedTransformer, task: Task, split: Split, name: str) -> Tensor:
    """The full model's `final_states` of a split that goes by this name, computed once."""
    key = (model.checkpoint_sha256, str(model.device), task.sha256, name)
    if key not in FULL_STATES:
        FULL_STATES[key] = final_states(model, split)
    return FULL_STATES[key]


def peak_memory_mb() -> float:
    """The most memory this process has held.

    Linux tells it of this very program; the portable count starts from that of the parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(t for t in status.read_text().splitlines() if t.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def environment(device: torch.device) -> dict[str, str]:
    """On what a run was made."""
    packages = ("discogp", "torch", "transformers", "transformer-lens", "numpy")
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "python": sys.version.split()[0],
        **{name: _version(name) for name in packages},
        "device": f"{device.type} ({processor})",
        "git": git_revision(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str:
    """The version of a package; this one may be used without being installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


@cache
def git_revision() -> str:
    """The revision of the code, with a mark if it has uncommitted changes."""
    command = ["git", "-C", str(REPO), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()


def file_sha256(path: Path) -> str:
    """Hash of a file's contents."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def finished(profile: str) -> list[Record]:
    """All records of a profile that are whole, in a fixed order."""
    root = RESULTS / profile / "runs"
    records = []
    for path in sorted(root.rglob("record.json")):
        *task, method, seed = ("", "", *path.parent.relative_to(root).parts)
        number = seed.removeprefix("seed")
        if not number.isdecimal():
            continue  # somebody's copy
        run = Run(profile, "/".join(filter(None, task)), method, int(number))
        if (record := load_record(run)) is not None:
            records.append(record)
    return records
