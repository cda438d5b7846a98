"""Which run of a sweep comes next, and how long the rest will take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from discogp_lib.methods.settings import base_method, needs_budget, settings_for
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Run, load_record

COSTS = {
    "discogp": 1.0,
    "weight_pruning": 0.6,
    "edge_pruning": 0.8,
    "acdc": 3.0,
    "eap": 0.1,
    "eap_ig": 0.2,
    "random": 0.05,
    "random_matched": 0.05,
    "magnitude": 0.05,
}
"""Rough time of each method on the mini model, DiscoGP's being 1; measured times replace them."""

IOI_COST = 2.0
"""IOI has the longest prompts."""


@dataclass(frozen=True)
class Outcome:
    """How one run of a sweep ended."""

    run: Run
    error: str | None
    seconds: float
    computed: bool = True
    """False when the store had it already."""


def matched_run(run: Run) -> Run | None:
    """The run whose sheaf gives this one its size."""
    if not needs_budget(run.method):
        return None
    return Run(run.profile, run.task, "discogp", run.seed)


def cost(run: Run) -> float:
    """What a run takes, relative to DiscoGP on a short task."""
    return COSTS.get(base_method(run.method), 1.0) * (IOI_COST if run.task == "ioi" else 1.0)


def must_be_computed(run: Run) -> bool:
    """Whether the store lacks the run, as far as can be told without loading a model."""
    record = load_record(run, say=lambda line: None)
    if record is None:
        return True
    if needs_budget(run.method):
        return False
    config = settings_for(run.method, get_profile(run.profile), None)
    return record.data["inputs"].get("config") != config.as_dict()


class Agenda:
    """The runs of a sweep: what can start, what has ended, what is left.

    What is in the store already is looked up first, because only `compute` can tell whether it
    still holds. Then the longest go first, so that all workers end at about the same time: a run
    that others wait for counts with the longest of them.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        matched = (matched_run(run) for run in runs)
        self.runs = list(dict.fromkeys([*(run for run in matched if run is not None), *runs]))
        self.new = {run for run in self.runs if must_be_computed(run)}
        self.new |= {run for run in self.runs if matched_run(run) in self.new}
        followers = defaultdict(list)
        for run in self.runs:
            followers[matched_run(run)].append(cost(run))
        length = {run: cost(run) + max(followers[run], default=0.0) for run in self.runs}
        self._waiting = sorted(
            self.runs, key=lambda run: (run in self.new, -length[run] if run in self.new else 0)
        )
        self._running: dict[Run, float] = {}
        self._done: set[Run] = set()
        self._times: dict[tuple[str, bool], list[float]] = defaultdict(list)
        self._costs = 0.0

    @property
    def unfinished(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def progress(self) -> str:
        """How many of the runs that had to be computed have been."""
        return f"[{len(self._done & self.new)}/{len(self.new)}]"

    def ready(self) -> list[Run]:
        """What can start now, in the order in which it should."""
        unfinished = {*self._waiting, *self._running}
        return [run for run in self._waiting if matched_run(run) not in unfinished]

    def start(self, runs: Iterable[Run]) -> None:
        """Note that runs have been started."""
        for run in runs:
            self._waiting.remove(run)
            self._running[run] = time.perf_counter()

    def end(self, outcome: Outcome) -> list[Outcome]:
        """Note an outcome; returns it and what follows: runs that need a failed one fail too."""
        run = outcome.run
        self._running.pop(run, None)
        self._done.add(run)
        if outcome.error is None and not outcome.computed:
            self.new.discard(run)
            return [outcome]
        self.new.add(run)
        if outcome.error is None:
            self._times[_kind(run)].append(outcome.seconds)
            self._costs += cost(run)
            return [outcome]
        lost = [other for other in self._waiting if matched_run(other) == run]
        self._waiting = [other for other in self._waiting if other not in lost]
        self._done |= set(lost)
        self.new |= set(lost)
        return [outcome, *(Outcome(o, f"it needs {run}, which failed", 0.0) for o in lost)]

    def seconds_left(self, at_once: int) -> float | None:
        """An estimate from the runs that were computed so far; None before the first."""
        left = {run: self._expected(run) for run in self._waiting if run in self.new}
        now = time.perf_counter()
        for run in self.new & set(self._running):
            expected = self._expected(run)
            if expected is not None:
                left[run] = max(0.0, expected - (now - self._running[run]))
        seconds = [value for value in left.values() if value is not None]
        if len(seconds) < len(left):
            return None
        return max(sum(seconds) / at_once, max(seconds, default=0.0))

    def _expected(self, run: Run) -> float | None:
        """The mean time of such runs, else that of other runs by what they cost relatively."""
        if alike := self._times.get(_kind(run)):
            return sum(alike) / len(alike)
        if self._costs == 0:
            return None
        return cost(run) * sum(map(sum, self._times.values())) / self._costs


def _kind(run: Run) -> tuple[str, bool]:
    """Runs of one kind take about the same time."""
    return base_method(run.method), run.task == "ioi"


def told_left(seconds: float | None) -> str:
    """An estimate in words."""
    if seconds is None or seconds == 0:
        return ""
    if seconds < 90:
        return f", about {max(5, round(seconds / 5) * 5)} s left"
    if seconds < 90 * 60:
        return f", about {seconds / 60:.0f} min left"
    return f", about {seconds / 3600:.1f} h left"
