"""Figures of what sheaves share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from discogp_lib.plots.gaps import drawn_if_run, told_if_run
from discogp_lib.plots.style import CHANCE, COLUMN, PAGE, house_style, in_order

KIND_COLOURS = {"edges": "#0072B2", "weights": "#D55E00"}
MEASURES = {
    "iou": "intersection / union (%)",
    "ratio": "shared / chance",
    "ratio_matched": "shared / matched chance",
}
FAR_ABOVE = 2.0
"""Where every ratio is above this, colours begin at the least one, and chance has none."""
NAMES = {"same": "same task", "similar": "similar tasks", "different": "different tasks"}


@drawn_if_run
def overlap_matrix(
    table: pd.DataFrame, *, value: str = "ratio", tasks: Sequence[str] = ()
) -> Figure:
    """Overlap as a ratio to chance: edges below the diagonal, weights above.

    Takes `overlap.overlap_table` or `overlap.over_seeds`; the latter has each task with itself,
    over seeds, and fills the diagonal: a lower half for edges and an upper one for weights.
    `tasks` are the rows and columns, grey where they were not run; by default those of the table.
    """
    tasks = list(tasks) or in_order([*table["a"], *table["b"]])
    n = len(tasks)
    known = {
        (*sorted((tasks.index(a), tasks.index(b))), kind): ratio
        for a, b, kind, ratio in zip(
            table["a"], table["b"], table["kind"], table[value], strict=True
        )
    }
    found = table[table[value] > 0][value]
    low, limit = float(found.min()), max(float(found.max()), float(1 / found.min()), 2.0)
    first, colours, factors = 1 / limit, plt.get_cmap("PuOr_r"), [1.0]
    if low > FAR_ABOVE:
        first, colours, factors = low, plt.get_cmap("YlOrBr"), [1.0, 1.5]
    norm = LogNorm(first, limit)
    size = min(PAGE, 1.5 + 0.42 * n)
    font = 6.5 if n <= 12 else 5.0
    with house_style():
        figure, axes = plt.subplots(figsize=(size, size * 0.9))
        for i, j in combinations_with_replacement(range(n), 2):
            for kind in KIND_COLOURS:
                x, y = (i, j) if kind == "edges" else (j, i)
                ratio = known.get((i, j, kind), np.nan)
                _cell(axes, x, y, kind if i == j else "", ratio, norm, colours, font)
        axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), aspect="equal")
        axes.set_xticks(range(n), tasks, rotation=90 if n > 7 else 0)
        axes.set_yticks(range(n), tasks)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("below the diagonal: edges; above: weights")
        bar = figure.colorbar(
            ScalarMappable(norm, colours), ax=axes, shrink=0.8, label="shared / expected by chance"
        )
        steps = [factor * 2.0**power for power in range(-7, 8) for factor in factors]
        steps = [step for step in steps if first <= step <= limit]
        bar.set_ticks(steps, labels=[f"{step:.2g}" for step in steps], minor=False)
        bar.ax.minorticks_off()
        if low <= FAR_ABOVE:
            bar.ax.set_ylim(min(0.5, low), limit)  # without colours that do not occur
            bar.ax.axhline(1, color="black", linewidth=0.8)
        plt.close(figure)
    return figure


@told_if_run
def caption_overlap(table: pd.DataFrame, *, value: str = "ratio") -> str:
    """What the matrix shows, with the range of ratios of each kind."""
    pairs = table[table["a"] != table["b"]]
    ranges = []
    for kind in ("edges", "weights"):
        ratios = pairs[pairs["kind"] == kind][value]
        ranges.append(
            f"{kind} {ratios.min():.1f} to {ratios.max():.1f} (median {ratios.median():.1f})"
        )
    diagonal = (
        " On the diagonal, sheaves of one task from different seeds."
        if (table["a"] == table["b"]).any()
        else ""
    )
    how = "drawn part by part" if value == "ratio_matched" else "drawn from the whole model"
    return (
        "Shared edges (below the diagonal) and weights (above) as a ratio to what random masks of "
        f"the same sizes share, {how}; 1 is chance, a dash a task not run. Between tasks: "
        f"{'; '.join(ranges)}.{diagonal}"
    )


@drawn_if_run
def overlap_by_likeness(table: pd.DataFrame) -> Figure:
    """Every pair of tasks by how alike they are, with the seeds of one task as the yardstick.

    Takes `overlap.over_seeds`. From the paper's measure above to the strictest control below.
    """
    with house_style():
        figure, panels = plt.subplots(3, 2, figsize=(COLUMN * 1.5, 5.0), sharex=True, sharey="row")
        for row, (value, label) in zip(panels, MEASURES.items(), strict=True):
            for axes, kind in zip(row, KIND_COLOURS, strict=True):
                scale = 100.0 if value == "iou" else 1.0
                _strips(axes, table[table["kind"] == kind], value, KIND_COLOURS[kind], scale)
                if value != "iou":
                    axes.axhline(1, **CHANCE)
            row[0].set_ylim(0, 1.08 * max(scale * float(table[value].max()), 1.2))
            row[0].set_ylabel(label)
        for axes, kind in zip(panels[0], KIND_COLOURS, strict=True):
            axes.set_title(kind, loc="left")
        labels = [f"{word}\ntask" if x == 0 else f"{word}\ntasks" for x, word in enumerate(NAMES)]
        panels[0, 0].set_xticks(range(3), labels)
        panels[0, 0].set_xlim(-0.5, 2.5)
        plt.close(figure)
    return figure


def _strips(axes: Axes, rows: pd.DataFrame, value: str, colour: str, scale: float) -> None:
    """One cloud of points per likeness, with its mean."""
    for x, likeness in enumerate(NAMES):
        values = scale * np.sort(rows[rows["tasks"] == likeness][value].dropna().to_numpy())
        if not len(values):
            axes.text(x, 0, "not run\n", ha="center", va="bottom", fontsize=6, color="0.4")
            continue
        # Beside each other in an order that has nothing to do with their size.
        spread = 0.36 * (((np.arange(len(values)) * 0.618) % 1) - 0.5) * (len(values) > 1)
        axes.scatter(x + spread, values, s=9, color=colour, alpha=0.5, linewidth=0)
        axes.hlines(values.mean(), x - 0.3, x + 0.3, color="black", linewidth=1.2)


@told_if_run
def caption_likeness(table: pd.DataFrame) -> str:
    """The means in words."""
    parts = []
    for kind, rows in table.groupby("kind", sort=False):
        groups = rows.groupby("tasks")
        means = ", ".join(
            f"{NAMES[word]} {100 * one['iou'].mean():.1f} %, {one['ratio'].mean():.1f} and "
            f"{one['ratio_matched'].mean():.2f} (n = {len(one)})"
            for word in NAMES
            if word in groups.groups
            for one in [groups.get_group(word)]
        )
        parts.append(f"{kind}: {means}")
    return (
        "Overlap of pairs of sheaves: of the same task from different seeds, of similar tasks and "
        "of different tasks; one point per pair of tasks (means over seeds), lines are means. "
        "From top to bottom: intersection over union; shared entries over what random masks of "
        "the same sizes share; the same with the sizes matched in every part of the model. Dashed: "
        f"chance. Means, in this order: {'; '.join(parts)}."
    )


@drawn_if_run
def upset(table: pd.DataFrame, *, top: int = 15) -> Figure:
    """How many edges or weights lie in exactly which sheaves. Takes `overlap.memberships`."""
    tasks = [column for column in table.columns if column not in ("count", "expected")]
    shown = table.head(top)
    sizes = [int(table["count"][table[task]].sum()) for task in tasks]
    with house_style():
        figure, grid_axes = plt.subplots(
            2,
            2,
            figsize=(PAGE, 1.7 + 0.17 * len(tasks)),
            width_ratios=[1, 4],
            height_ratios=[1.5, 0.17 * len(tasks)],
            sharex="col",
            sharey="row",
        )
        (corner, bars), (totals, dots) = grid_axes
        corner.set_axis_off()
        x = np.arange(len(shown))
        bars.bar(x, shown["count"], color="0.25", width=0.6)
        bars.scatter(
            x, shown["expected"], marker="_", s=50, color="#D55E00", label="by chance", zorder=3
        )
        near = 0.14 * shown[["count", "expected"]].max().max()
        for place, count, expected in zip(x, shown["count"], shown["expected"], strict=True):
            free = expected if -0.1 * near < expected - count < near else count
            bars.text(place, free, f"{count:,}", ha="center", va="bottom", fontsize=6)
        bars.set_ylabel("in exactly these")
        bars.yaxis.set_major_formatter(lambda y, _: f"{y:,g}")
        totals.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
        bars.tick_params(bottom=False, labelleft=True, left=True)
        bars.legend(loc="upper right")
        totals.barh(range(len(tasks)), sizes, color="0.6", height=0.6)
        totals.invert_xaxis()
        totals.set_xlabel("size of the sheaf")
        totals.spines["left"].set_visible(False)
        totals.tick_params(left=False, labelleft=False)
        _dots(dots, shown, tasks)
        plt.close(figure)
    return figure


@told_if_run
def caption_upset(table: pd.DataFrame, kind: str = "edges", *, top: int = 15) -> str:
    """How much is private and how much is in all sheaves."""
    tasks = [column for column in table.columns if column not in ("count", "expected")]
    members = table[tasks].sum(axis=1)
    alone, total = table["count"][members == 1].sum(), table["count"].sum()
    everywhere = table["count"][members == len(tasks)].sum()
    some = f" (the {top} largest of {len(table)} combinations)" if len(table) > top else ""
    return (
        f"How many {kind} are in exactly the marked sheaves{some}; red: expected for random masks "
        f"of the same sizes. Of {total:,} {kind} in any sheaf, {alone:,} ({alone / total:.0%}) are "
        f"in one only and {everywhere:,} in all {len(tasks)}."
    )


def _dots(axes: Axes, shown: pd.DataFrame, tasks: list[str]) -> None:
    """Which sheaves each column of the UpSet figure stands for."""
    inside = shown[tasks].to_numpy(dtype=bool)
    for x, row in enumerate(inside):
        rows = np.flatnonzero(row)
        axes.scatter([x] * len(tasks), range(len(tasks)), s=14, color="0.88", zorder=1)
        axes.vlines(x, rows.min(), rows.max(), color="0.25", linewidth=1.2, zorder=2)
        axes.scatter([x] * len(rows), rows, s=14, color="0.25", zorder=3)
    axes.set_yticks(range(len(tasks)), tasks)
    axes.tick_params(left=False, labelleft=True, bottom=False, labelbottom=False)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.spines[:].set_visible(False)


def _cell(
    axes: Axes,
    x: int,
    y: int,
    half: str,
    value: float,
    norm: LogNorm,
    colours: plt.Colormap,
    font: float,
) -> None:
    """A square, or on the diagonal one half of it, with its number."""
    left, top, right, bottom = x - 0.48, y - 0.48, x + 0.48, y + 0.48
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    shift = {"edges": -1, "weights": 1}.get(half, 0)
    if half:
        corners.pop(1 if half == "edges" else 3)
    known = bool(np.isfinite(value))
    face = colours(norm(max(value, norm.vmin or 0))) if known else (0.9, 0.9, 0.9, 1.0)
    axes.add_patch(Polygon(corners, facecolor=face, edgecolor="none"))
    text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    axes.text(
        x + 0.2 * shift,
        y - 0.25 * shift,
        text if known else "" if half else "\N{EN DASH}",
        ha="center",
        va="center",
        fontsize=font * (0.8 if half else 1),
        color="white" if sum(face[:3]) < 1.3 else "black",
    )
