"""The executor that sends runs to SLURM, through submitit.

What is ready goes out as one array job. A job that SLURM preempts, requeues or stops at its time
limit goes on from its checkpoint. A job that vanishes without a result (killed, its node lost) is
submitted again, a few times. Whether a job is alive is asked of `squeue`, because not every
cluster keeps accounts (`sacct`).
"""

from __future__ import annotations

import getpass
import math
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from discogp_lib.errors import ConfigError, RunError
from discogp_lib.executors import attempt
from discogp_lib.runs import Run
from discogp_lib.schedule import Outcome

LARGEST_ARRAY = 1000
"""Elements of one array job; SLURM admits 1,001 unless told otherwise."""

RESUBMISSIONS = 3
"""How often a run whose job vanished is sent again."""

PATIENCE = 600.0
"""Seconds for which `squeue` may fail before we give up."""


@dataclass(frozen=True)
class SlurmOptions:
    """What a job asks SLURM for."""

    partition: str | None = None
    gpus_per_task: int = 0
    cpus_per_task: int = 2
    minutes: int = 240
    """Time limit of a job; a search that reaches it is requeued and goes on."""
    sbatch: dict[str, str] = field(default_factory=dict)
    """Further options of sbatch, such as account, qos or mem."""
    poll: float = 10.0
    """Seconds between questions to SLURM."""

    def __post_init__(self) -> None:
        if self.minutes <= 10:
            raise ConfigError(
                f"A time limit of {self.minutes} minutes leaves a job no time to be requeued; "
                "give it more than 10."
            )
        if self.gpus_per_task < 0:
            raise ConfigError(f"gpus_per_task must be at least 0, not {self.gpus_per_task}.")
        if not 0 < self.poll < math.inf:
            raise ConfigError(f"poll is a number of seconds above 0, not {self.poll}.")


class Job:
    """What a job does; submitit calls `checkpoint` when SLURM is about to stop it."""

    def __init__(self, device: str, threads: int) -> None:
        self.device = device
        self.threads = threads

    def __call__(self, run: Run) -> Outcome:
        """Compute the run."""
        torch.set_num_threads(self.threads)
        return attempt(run, self.device)

    def checkpoint(self, run: Run) -> Any:
        """The same again: a run resumes from its own files."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, run)


@dataclass
class _Sent:
    """A run that is in SLURM's hands."""

    job: Any
    started: float
    times: int
    missed: int = 0
    """How often in a row squeue did not know the job."""


class Slurm:
    """Runs as elements of SLURM array jobs; leaving it early cancels what is still queued."""

    def __init__(self, folder: Path, options: SlurmOptions) -> None:
        if shutil.which("sbatch") is None:
            raise ConfigError("There is no sbatch here; call this on a SLURM cluster.")
        try:
            import submitit
        except ImportError:
            raise ConfigError('submitit is missing; pip install "discogp[slurm]".') from None
        folder.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.at_once = 1
        self._executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=100)
        self._executor.update_parameters(**_parameters(options))
        self._sent: dict[Run, _Sent] = {}
        self._heard = time.monotonic()

    def start(self, ready: Sequence[Run]) -> list[Run]:
        """Submit all of them."""
        self._submit(ready, times=1)
        return list(ready)

    def _submit(self, runs: Sequence[Run], times: int) -> None:
        import submitit

        job = Job("cuda" if self.options.gpus_per_task else "cpu", self.options.cpus_per_task)
        for first in range(0, len(runs), LARGEST_ARRAY):
            part = runs[first : first + LARGEST_ARRAY]
            try:
                jobs = self._executor.map_array(job, part)
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
                raise RunError(f"SLURM did not take the jobs: {error}") from None
            for run, sent in zip(part, jobs, strict=True):
                self._sent[run] = _Sent(sent, time.perf_counter(), times)

    def wait(self) -> list[Outcome]:
        """Ask every few seconds which jobs have a result, and which are gone without one."""
        while True:
            alive = self._queue()
            outcomes = [o for run in list(self._sent) if (o := self._ended(run, alive))]
            if outcomes:
                return outcomes
            time.sleep(self.options.poll)

    def _ended(self, run: Run, alive: dict[str, str] | None) -> Outcome | None:
        """The outcome of a run, None while it is on its way; a vanished job is sent again."""
        import submitit

        sent = self._sent[run]
        if sent.job.paths.result_pickle.exists():
            del self._sent[run]
            try:
                return sent.job.result()
            except submitit.core.utils.FailedJobError as error:
                reason = str(error).strip().splitlines()[-1]
                return Outcome(run, reason, time.perf_counter() - sent.started)
        if alive is None or sent.job.job_id in alive:
            sent.missed = 0
            return None
        sent.missed += 1
        if sent.missed < 3:  # its result may still be on its way through a network file system
            return None
        if sent.times <= RESUBMISSIONS:
            self._submit([run], sent.times + 1)
            return None
        del self._sent[run]
        reason = f"its job vanished {sent.times} times; the last log is {sent.job.paths.stderr}"
        return Outcome(run, reason, time.perf_counter() - sent.started)

    def _queue(self) -> dict[str, str] | None:
        """State by job id of all jobs that SLURM still holds; None when it does not answer."""
        command = ["squeue", "--noheader", "--array", "--format=%i %T", "--user", getpass.getuser()]
        asked = subprocess.run(command, capture_output=True, text=True)
        if asked.returncode:
            if time.monotonic() - self._heard > PATIENCE:
                raise RunError(f"SLURM does not answer: {asked.stderr.strip()}")
            return None
        self._heard = time.monotonic()
        states = dict(line.split(maxsplit=1) for line in asked.stdout.splitlines() if line.strip())
        ours = [states.get(sent.job.job_id) for sent in self._sent.values()]
        self.at_once = max(1, ours.count("RUNNING"))
        return states

    def __enter__(self) -> Slurm:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sent:
            ids = [sent.job.job_id for sent in self._sent.values()]
            subprocess.run(["scancel", *ids], capture_output=True)
            self._sent.clear()


def _parameters(options: SlurmOptions) -> dict[str, Any]:
    """The options in submitit's words."""
    parameters: dict[str, Any] = {
        "name": "discogp",
        "timeout_min": options.minutes,
        "cpus_per_task": options.cpus_per_task,
        "slurm_array_parallelism": LARGEST_ARRAY,
        "slurm_additional_parameters": dict(options.sbatch),
    }
    if options.partition:
        parameters["slurm_partition"] = options.partition
    if options.gpus_per_task:
        parameters["slurm_gpus_per_task"] = options.gpus_per_task
    return parameters
