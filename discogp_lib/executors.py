"""Where the runs of a sweep are computed: in this process, or in worker processes beside it.

An executor takes as many runs as it has room for and says which have ended. SLURM is a third one,
in `slurm.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from discogp_lib.errors import DiscoGPError
from discogp_lib.runs import Run, compute
from discogp_lib.schedule import Outcome

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Executor(Protocol):
    """What a sweep needs of one."""

    at_once: int
    """About how many runs are computed side by side."""

    def start(self, ready: Sequence[Run]) -> list[Run]:
        """Start as many as there is room for, the first ones first; returns those."""

    def wait(self) -> list[Outcome]:
        """Wait until at least one of the started runs has ended."""

    def __enter__(self) -> Executor:
        """Get ready."""

    def __exit__(self, *_: object) -> None:
        """Stop whatever still runs; its search can be resumed."""


def attempt(run: Run, device: str) -> Outcome:
    """One run; whatever goes wrong is told, so that the others go on.

    The trace of an error that is no mistake of the user's is kept beside the run.
    """
    started = time.perf_counter()
    before = _stamp(run)
    trace = run.folder / "error.txt"
    error = None
    try:
        compute(run, device=device, progress=False)
        # Killed between writing its record and clearing up, a run leaves its search behind.
        for leftover in (*run.folder.glob("search*"), trace):
            leftover.unlink(missing_ok=True)
    except DiscoGPError as mistake:
        error = str(mistake)
    except Exception as bug:
        error = f"{type(bug).__name__}: {bug}{_kept(trace)}"
    return Outcome(run, error, time.perf_counter() - started, _stamp(run) != before)


def _kept(trace: Path) -> str:
    """Keep the trace of the error at hand; says where, or nothing if it cannot be written."""
    try:
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_text(traceback.format_exc())
    except OSError:  # the disk may be what the error at hand is about
        return ""
    return f" (see {trace})"


def _stamp(run: Run) -> tuple[int, int] | None:
    """Changes whenever the record is written; None if there is none to be seen."""
    try:
        status = run.record_path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


class InProcess:
    """One run after the other, here."""

    at_once = 1

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._next: list[Run] = []

    def start(self, ready: Sequence[Run]) -> list[Run]:
        """Take the first one."""
        self._next = list(ready[:1])
        return self._next

    def wait(self) -> list[Outcome]:
        """Compute it."""
        return [attempt(run, self.device) for run in self._next]

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class _Worker:
    """A worker process, our end of its pipe, and what it is doing."""

    process: BaseProcess
    pipe: Connection
    device: str
    run: Run | None = None
    started: float = 0.0


class Workers:
    """Worker processes on one machine, one GPU each where there are several.

    A worker that is killed takes only its own run with it: that run is told as failed, a new
    worker takes the place, and the next sweep resumes the search.
    """

    def __init__(self, jobs: int, device: str = "cpu") -> None:
        self.at_once = jobs
        self._context = _context()
        self._devices = [spread(device, index) for index in range(jobs)]
        self._workers: list[_Worker] = []

    def start(self, ready: Sequence[Run]) -> list[Run]:
        """Give a run to every idle worker; workers are started when first needed."""
        started = []
        for worker in [w for w in self._workers if w.run is None and not w.process.is_alive()]:
            self._dismiss(worker)
        idle = [worker for worker in self._workers if worker.run is None]
        for run in ready[: self.at_once - len(self._workers) + len(idle)]:
            worker = idle.pop() if idle else self._hire()
            worker.pipe.send(run)
            worker.run, worker.started = run, time.perf_counter()
            started.append(run)
        return started

    def wait(self) -> list[Outcome]:
        """Wait for results, and for workers that died."""
        busy = {worker.pipe: worker for worker in self._workers if worker.run is not None}
        signs: list[Any] = [*busy, *(worker.process.sentinel for worker in busy.values())]
        signalled = set(wait(signs))
        outcomes = []
        for pipe, worker in busy.items():
            if pipe in signalled or worker.process.sentinel in signalled:
                outcomes.append(self._outcome(worker))
        return outcomes

    def _outcome(self, worker: _Worker) -> Outcome:
        run = worker.run
        assert run is not None
        try:
            outcome = worker.pipe.recv() if worker.pipe.poll() else None
        except (EOFError, OSError):
            outcome = None
        worker.run = None
        if outcome is not None:
            return outcome
        self._dismiss(worker)
        seconds = time.perf_counter() - worker.started
        return Outcome(run, _cause_of_death(worker.process.exitcode), seconds)

    def _dismiss(self, worker: _Worker) -> None:
        """Forget a worker that has ended."""
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)

    def _hire(self) -> _Worker:
        taken = [worker.device for worker in self._workers]
        device = min(self._devices, key=taken.count)
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, device), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, device)
        self._workers.append(worker)
        return worker

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.run is not None:
                worker.process.terminate()
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(timeout=10)
            worker.process.kill()
        self._workers.clear()


def default_device() -> str:
    """The GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def default_jobs(device: str) -> int:
    """One worker per GPU, one on a device that was named, or one per core we may use."""
    if device == "cuda":
        return max(1, torch.cuda.device_count())
    if not device.startswith("cpu"):
        return 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spread(device: str, index: int) -> str:
    """The device of a worker: plain "cuda" is spread over all GPUs."""
    if device == "cuda" and (count := torch.cuda.device_count()) > 1:
        return f"cuda:{index % count}"
    return device


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        often = ", often for want of memory" if name == "SIGKILL" else ""
        return f"its process was killed ({name}{often}); the next call resumes it"
    return f"its process ended with exit code {exit_code}; the next call resumes it"


def side_by_side(make: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`make` of every item, in order, computed in one process per core.

    make: a function of a module, since a worker has to find it by name.
    """
    jobs = min(default_jobs("cpu"), len(items))
    if jobs <= 1:
        return [make(item) for item in items]
    with ProcessPoolExecutor(jobs, _context(), initializer=_settle_in) as pool:
        return list(pool.map(make, items))


def _context() -> ForkServerContext:
    """Workers are forked from a small server that has imported the library and done nothing else,
    so that a new one is there at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["discogp_lib.executors"])
    return context


def _settle_in() -> None:
    """Make this process a worker: quiet, alone on its core, gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leave nothing half written behind
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = "1"  # side by side they share the cores, not fight for them
    torch.set_num_threads(1)


def _work(pipe: Connection, device: str) -> None:
    """What a worker process does: runs, until the pipe is closed."""
    _settle_in()
    while True:
        try:
            run = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(run, device))


def _die_with_parent() -> None:
    """A killed parent must not leave workers behind that hold locks and cores."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
