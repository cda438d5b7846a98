"""Measures of several methods on the same tasks and seeds, and the two ways to judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from discogp_lib.claims.evidence import Evidence
from discogp_lib.claims.verdicts import (
    Interval,
    Judgement,
    decide,
    interval,
    not_run,
    part,
)
from discogp_lib.tasks.names import SHORT_NAMES

EVERY_TASK = tuple(SHORT_NAMES.values())
BASELINES = ("weight_pruning", "edge_pruning", "acdc", "eap")
GREEDY = ("acdc", "eap")

POINTS = 0.02
"""An accuracy this much lower is still within tolerance."""
NATS = 0.02
"""A KL divergence this much higher is."""
SHARE = 0.1
"""A density this much higher, relative to the other, is."""
NEAR_CHANCE = 0.1
"""Accuracies up to this far from chance are near it; half as much again is within tolerance."""


@dataclass(frozen=True)
class Values:
    """One measure of several methods on the same tasks and seeds."""

    wide: pd.DataFrame
    """Rows (task, seed), a column per method."""
    methods: tuple[str, ...]
    asked: int
    """How many tasks the claim is about."""

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return self.wide.index.get_level_values("short_name").nunique()

    @property
    def whole(self) -> Values:
        """The rows that all methods have."""
        return replace(self, wide=self.wide.dropna())

    @property
    def told(self) -> str:
        """The runs, for the table."""
        seeds = sorted(set(self.wide.index.get_level_values("seed")))
        return (
            f"runs of {', '.join(self.methods)}; {self.tasks} task(s), "
            f"seed(s) {', '.join(map(str, seeds))}"
        )

    @property
    def coverage(self) -> str:
        """How many of the tasks there are."""
        return part(self.tasks, self.asked, "tasks")


def values(
    evidence: Evidence,
    column: str,
    methods: Sequence[str],
    tasks: Sequence[str] = EVERY_TASK,
) -> Values | None:
    """A measure where all of the methods have it, None where they nowhere do."""
    found = first_and_any(evidence, column, methods, tasks)
    return found.whole if found is not None and found.whole.tasks else None


def first_and_any(
    evidence: Evidence,
    column: str,
    methods: Sequence[str],
    tasks: Sequence[str] = EVERY_TASK,
) -> Values | None:
    """A measure where the first method and at least one of the others have it."""
    frame = evidence.records
    chosen = frame[frame["method"].isin(methods) & frame["short_name"].isin(tasks)]
    if column not in chosen or methods[0] not in set(chosen["method"]):
        return None
    wide = chosen.pivot(index=["short_name", "seed"], columns="method", values=column)
    wide = wide.reindex(columns=list(methods)).dropna(subset=methods[0])
    if len(methods) > 1:
        wide = wide.dropna(subset=methods[1:], how="all")
    return Values(wide, tuple(methods), len(tasks)) if len(wide) else None


def per_task(series: pd.Series) -> pd.Series:
    """Means over seeds."""
    return series.groupby("short_name").mean()


def per_seed(series: pd.Series) -> pd.Series:
    """Means over tasks."""
    return series.groupby("seed").mean()


def over_tasks(series: pd.Series) -> Interval:
    """Mean over tasks, with its interval over seeds where these have the same tasks.

    A model may have more seeds of some tasks: what differs between its seeds is then the tasks.
    """
    had = {frozenset(rows.index.get_level_values(0)) for _, rows in series.groupby("seed")}
    if len(had) > 1:
        return Interval(float(per_task(series).mean()), None, None)
    return interval(per_seed(series))


class Lead(NamedTuple):
    """By how much DiscoGP is better than others, by task and seed."""

    by: pd.Series
    found: Values


def lead_over(
    evidence: Evidence,
    column: str,
    rivals: Sequence[str],
    tasks: Sequence[str] = EVERY_TASK,
) -> Lead | None:
    """By how much DiscoGP is better than the best rival that was run, by task and seed.

    Accuracies and KL are subtracted; of densities it is the share of the rival's that is saved.
    Of a task those seeds count on which the most rivals were run.
    """
    found = first_and_any(evidence, column, ("discogp", *rivals), tasks)
    if found is None:
        return None
    run = found.wide.notna().sum(axis=1)
    found = replace(found, wide=found.wide[run == run.groupby("short_name").transform("max")])
    ours, theirs = found.wide["discogp"], found.wide[list(rivals)]
    if column.endswith("density"):
        return Lead(1 - ours / theirs.min(axis=1), found)
    higher = column == "accuracy"
    return Lead(ours - theirs.max(axis=1) if higher else theirs.min(axis=1) - ours, found)


def ahead(
    evidence: Evidence,
    column: str,
    rivals: Sequence[str],
    tolerance: float,
    tasks: Sequence[str] = EVERY_TASK,
) -> Judgement:
    """Judge that DiscoGP is ahead or level on every task.

    To be behind one rival refutes that, whichever others were run; else it rests on the tasks
    that all rivals were run on.
    """
    lead = lead_over(evidence, column, rivals, tasks)
    if lead is not None and per_task(lead.by).round(9).min() >= -tolerance:
        whole = lead.found.whole
        lead = Lead(lead.by[whole.wide.index], whole) if whole.tasks else None
    if lead is None:
        return not_run(f"runs of discogp, {', '.join(rivals)} on the same task and seed")
    by_task = per_task(lead.by).round(9)
    digits = ".3f" if column == "kl" else ".1%"
    what = "mean saving" if column.endswith("density") else "mean lead"
    measured = (
        f"ahead or level on {int((by_task >= 0).sum())} of {len(by_task)} tasks; {what} "
        f"{by_task.mean():+{digits}}, smallest {by_task.min():+{digits}} ({by_task.idxmin()})"
    )
    verdict = decide(by_task.min() >= 0, by_task.min() >= -tolerance)
    coverage = lead.found.coverage
    return Judgement(verdict, measured, lead.found.told, coverage, what, *over_tasks(lead.by))


def near_chance(
    evidence: Evidence,
    column: str,
    methods: Sequence[str],
    tasks: Sequence[str] = EVERY_TASK,
    *,
    or_below: bool = False,
) -> Judgement:
    """Judge that accuracies are within 10 points of a guess on every task, or below."""
    known = [task for task in tasks if task in evidence.chance]
    found = values(evidence, column, methods, known)
    if found is None:
        return not_run(f"runs of {', '.join(methods)} on tasks whose chance is known")
    chance = found.wide.index.get_level_values("short_name").map(evidence.chance)
    away = found.wide.sub(chance.to_numpy(), axis=0)
    by_task = away.groupby("short_name").mean()
    worst = (by_task if or_below else away.abs().groupby("short_name").mean()).max(axis=1)
    within = "at most 10 points above" if or_below else "within 10 points of"
    measured = (
        f"{within} chance on {int((worst <= NEAR_CHANCE).sum())} of {len(worst)} "
        f"tasks; mean {by_task.to_numpy().mean():+.1%}, furthest {worst.max():.1%} "
        f"({worst.idxmax()})"
    )
    verdict = decide(worst.max() <= NEAR_CHANCE, worst.max() <= 1.5 * NEAR_CHANCE)
    coverage = part(found.tasks, len(tasks), "tasks")
    what, mean = "mean distance from chance", over_tasks(away.mean(axis=1))
    return Judgement(verdict, measured, found.told, coverage, what, *mean)
