"""Many runs: in this process, or in several worker processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

import torch

from discogp_lib.errors import ConfigError, DiscoGPError
from discogp_lib.methods.settings import needs_budget, variant_names
from discogp_lib.profiles import Profile, get_profile
from discogp_lib.runs import Run, compute, load_record
from discogp_lib.tasks import SHORT_NAMES


@dataclass(frozen=True)
class Outcome:
    """How one run of a sweep ended."""

    run: Run
    error: str | None
    seconds: float


def plan(
    profile_name: str,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Run]:
    """The runs of a profile, narrowed as asked; those that others build on come first."""
    profile = get_profile(profile_name)
    chosen = [resolve_task(profile, name) for name in tasks] if tasks else list(profile.tasks)
    numbers = profile.seeds if seeds is None else tuple(seeds)
    runs = [
        Run(profile_name, task, method, seed)
        for method in methods or profile.methods
        for task in chosen
        for seed in numbers
    ]
    if methods is None:
        runs += [run for run in variants(profile_name, numbers[0]) if run.task in chosen]
    return sorted(runs, key=lambda run: needs_budget(run.method))


def variants(profile_name: str, seed: int) -> list[Run]:
    """DiscoGP with one thing changed, on the tasks that the profile names for it."""
    return [
        Run(profile_name, task, f"discogp@{variant}", seed)
        for variant in variant_names()
        for task in get_profile(profile_name).variant_tasks
    ]


def resolve_task(profile: Profile, name: str) -> str:
    """A task by its full or short name."""
    by_short = {SHORT_NAMES[task]: task for task in profile.tasks}
    task = by_short.get(name, name)
    if task not in profile.tasks:
        raise ConfigError(
            f"The profile {profile.name!r} has no task {name!r}; it has {', '.join(by_short)}."
        )
    return task


def sweep(
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    device: str = "cpu",
    say: Callable[[str], None] = print,
) -> list[Outcome]:
    """Compute all runs that are not in the store; one line each, failures do not stop the rest."""
    started, outcomes = time.perf_counter(), []
    for outcome in _each(runs, jobs, device):
        outcomes.append(outcome)
        left = len(runs) - len(outcomes)
        spent = time.perf_counter() - started
        estimate = f", about {spent / len(outcomes) * left / 60:.0f} min left" if left else ""
        say(f"[{len(outcomes)}/{len(runs)}] {_told(outcome)}{estimate}")
    return outcomes


def _told(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"{outcome.run} FAILED: {outcome.error}"
    record = load_record(outcome.run)
    if record is None:
        return f"{outcome.run}: no record"
    test = record.test
    return (
        f"{outcome.run}: accuracy {test['accuracy']:.1%}, weights {test['weight_density']:.2%}, "
        f"edges {test['edge_density']:.2%} ({outcome.seconds:.0f} s)"
    )


def _each(runs: Sequence[Run], jobs: int, device: str) -> Iterator[Outcome]:
    if jobs == 1:
        for run in runs:
            yield _one(run, device)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_one_thread) as pool:
        # Runs that need another's density wait for it, so that no two compute the same one.
        stages = [
            [run for run in runs if not needs_budget(run.method)],
            [run for run in runs if needs_budget(run.method)],
        ]
        for stage in stages:
            waiting: set[Future[Outcome]] = {pool.submit(_one, run, device) for run in stage}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)


def _one(run: Run, device: str) -> Outcome:
    """One run; what a user can mend is told, what is a bug is raised."""
    started = time.perf_counter()
    error = None
    try:
        compute(run, device=device, progress=False)
    except DiscoGPError as mistake:
        error = str(mistake)
    return Outcome(run, error, time.perf_counter() - started)


def _one_thread() -> None:
    """Workers side by side share the cores instead of fighting for them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
