"""Who wins: what the tables of methods say, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from discogp_lib.comparison import (
    AT_ITS_DENSITY,
    AVERAGE,
    CONTROLS,
    LOWER_IS_BETTER,
    name_of,
)

FREE = ("weight_pruning", "edge_pruning")
"""Baselines that choose their own size."""

ENOUGH = 0.95
"""Share of the full model's accuracy that counts as doing the task."""


def at_least(table: pd.DataFrame, rivals: Sequence[str], column: str = "accuracy") -> pd.DataFrame:
    """For each task DiscoGP's mean beside the best rival's, and whether it is at least as good."""
    sign = -1 if column in LOWER_IS_BETTER else 1
    rows = []
    for task, group in table[table["short_name"] != AVERAGE].groupby("short_name", sort=False):
        means = group.set_index("method")[column]
        others = means[[m for m in rivals if m in means.index]]
        if "discogp" not in means.index or others.empty:
            continue
        top = str((sign * others).idxmax())
        rows.append(
            {
                "short_name": task,
                "discogp": means["discogp"],
                "rival": top,
                "value": others[top],
                "at_least": bool(sign * (means["discogp"] - others[top]) >= -1e-9),
            }
        )
    return pd.DataFrame(rows, columns=["short_name", "discogp", "rival", "value", "at_least"])


def findings(table: pd.DataFrame, chance: Mapping[str, float]) -> list[str]:
    """What the main table says about baselines and controls; `chance` by the task's short name."""
    texts = [
        _against(table, AT_ITS_DENSITY, "accuracy", "every method that was given its densities"),
        _against(table, AT_ITS_DENSITY, "kl", "every method that was given its densities"),
        _against(table, FREE, "accuracy", "weight pruning and edge pruning, of their own size"),
    ]
    known = table[table["short_name"].isin(list(chance))]
    # Class-balanced, because always giving a frequent answer is no more than chance.
    above = known["balanced_accuracy"] - known["short_name"].map(chance)
    for name in ("random", "random_matched", "magnitude", *CONTROLS):
        tasks = known["short_name"][known["method"] == name]
        if tasks.empty:
            continue
        mine = above[known["method"] == name]
        real = above[(known["method"] == "discogp") & known["short_name"].isin(tasks)]
        texts.append(
            f"{name_of(name)}: {100 * mine.mean():+.1f} points against chance, class-balanced, on "
            f"average over {len(mine)} task(s), at most {100 * mine.max():+.1f}; DiscoGP on the "
            f"same {100 * real.mean():+.1f}."
        )
    return [text for text in texts if text]


def _against(table: pd.DataFrame, rivals: Sequence[str], column: str, whom: str) -> str:
    """On how many tasks DiscoGP is at least as good as some rivals, and where it is not."""
    held = at_least(table, rivals, column)
    if held.empty:
        return ""
    scale, unit = (100, "points") if column == "accuracy" else (1, "nats")
    lost = [
        f"{row['short_name']} ({name_of(row['rival'])}, by "
        f"{scale * abs(row['value'] - row['discogp']):.{1 if scale > 1 else 3}f} {unit})"
        for row in held[~held["at_least"]].to_dict("records")
    ]
    measure = "accuracy" if column == "accuracy" else "KL"
    behind = f"; behind on {', '.join(lost)}" if lost else ""
    return (
        f"By mean {measure} DiscoGP is at least as good as {whom}, on "
        f"{int(held['at_least'].sum())} of {len(held)} tasks{behind}."
    )


def smallest_sizes(curve: pd.DataFrame) -> list[str]:
    """For each panel of density curves the least density at which each method does the task."""
    texts = []
    for panel, rows in curve.groupby("panel", sort=False):
        told = []
        for method, points in rows.groupby("method", sort=False):
            good = points[points["accuracy"] >= ENOUGH * points["full_accuracy"]]
            size = f"{good['edge_density'].min():.1%}" if len(good) else "at none of the densities"
            told.append(f"{name_of(str(method))} {size}")
        texts.append(
            f"{panel}, least edge density with {ENOUGH:.0%} of the full model's accuracy: "
            f"{', '.join(told)}."
        )
    return texts
