"""Measures of several methods on the same tasks and seeds, and the two ways to judge them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from discogp_lib.claims.evidence import Evidence
from discogp_lib.claims.verdicts import Judgement, decide, interval, not_run, part
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
        """How many tasks all methods have been run on."""
        return self.wide.index.get_level_values("short_name").nunique()

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
    frame = evidence.records
    chosen = frame[frame["method"].isin(methods) & frame["short_name"].isin(tasks)]
    if column not in chosen or not set(methods) <= set(chosen["method"]):
        return None
    wide = chosen.pivot(index=["short_name", "seed"], columns="method", values=column)
    wide = wide[list(methods)].dropna()
    return Values(wide, tuple(methods), len(tasks)) if len(wide) else None


def per_task(series: pd.Series) -> pd.Series:
    """Means over seeds."""
    return series.groupby("short_name").mean()


def per_seed(series: pd.Series) -> pd.Series:
    """Means over tasks."""
    return series.groupby("seed").mean()


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
    """By how much DiscoGP is better than the best rival, by task and seed.

    Accuracies and KL are subtracted; of densities it is the share of the rival's that is saved.
    """
    found = values(evidence, column, ("discogp", *rivals), tasks)
    if found is None:
        return None
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
    """Judge that DiscoGP is ahead or level on every task."""
    lead = lead_over(evidence, column, rivals, tasks)
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
    by_seed = interval(per_seed(lead.by))
    return Judgement(verdict, measured, lead.found.told, lead.found.coverage, what, *by_seed)


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
    worst = (by_task if or_below else by_task.abs()).max(axis=1)
    within = "at most 10 points above" if or_below else "within 10 points of"
    measured = (
        f"{within} chance on {int((worst <= NEAR_CHANCE).sum())} of {len(worst)} "
        f"tasks; mean {by_task.to_numpy().mean():+.1%}, furthest {worst.max():.1%} "
        f"({worst.idxmax()})"
    )
    verdict = decide(worst.max() <= NEAR_CHANCE, worst.max() <= 1.5 * NEAR_CHANCE)
    by_seed = interval(per_seed(away.mean(axis=1)))
    coverage = part(found.tasks, len(tasks), "tasks")
    what = "mean distance from chance"
    return Judgement(verdict, measured, found.told, coverage, what, *by_seed)
