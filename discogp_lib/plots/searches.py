"""Figures that follow searches: one step by step, many at a glance, and what a setting does."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from discogp_lib.plots.gaps import drawn_if_run, told_if_run
from discogp_lib.plots.style import (
    CHANCE,
    COLUMN,
    DENSITY_LABELS,
    PAGE,
    house_style,
    in_order,
    label_panels,
    plain_numbers,
)

BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"
COLUMNS = 5
"""Tasks side by side in `search_paths`."""


def learning_curves(curve: pd.DataFrame, *, chance: float | None = None) -> Figure:
    """One search, step by step: losses, accuracies on dev, and both densities.

    Columns: `step`, `fidelity`, `dev_accuracy`, `weight_density`, `edge_density`; where the
    search had the loss, `completeness` and `dev_complement`.
    """
    step = curve["step"]
    looked_at_the_rest = "completeness" in curve
    with house_style():
        figure, panels = plt.subplots(2, 2, figsize=(PAGE * 0.8, 3.6), sharex=True)
        (losses, accuracies), (weights, edges) = panels
        losses.plot(step, curve["fidelity"], color=BLUE, label="fidelity")
        if looked_at_the_rest:
            losses.plot(
                step, curve["completeness"], color=RED, label="completeness", linestyle="--"
            )
        losses.set_title("losses", loc="left")
        losses.set_ylim(bottom=min(0.0, float(curve["fidelity"].min())))
        losses.legend()
        accuracies.plot(step, curve["dev_accuracy"], color=BLUE, label="sheaf")
        if looked_at_the_rest:
            values = curve["dev_complement"]
            accuracies.plot(step, values, color=RED, label="complement", linestyle="--")
        if chance is not None:
            accuracies.axhline(chance, label="chance", **CHANCE)
        accuracies.set_title("accuracy on dev", loc="left")
        accuracies.set_ylim(0, 1.03)
        accuracies.legend(loc="lower left", ncols=3, columnspacing=1)
        for axes, column in ((weights, "weight_density"), (edges, "edge_density")):
            axes.plot(step, 100 * curve[column], color=GREEN)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
            axes.set_title(DENSITY_LABELS[column], loc="left")
            axes.set_xlabel("step")
        label_panels(panels.flat)
        plt.close(figure)
    return figure


def caption_learning(curve: pd.DataFrame) -> str:
    """Where the search ended."""
    last = curve.sort_values("step").iloc[-1]
    return (
        f"One search over {last['step']:.0f} steps. It ends at a dev accuracy of "
        f"{last['dev_accuracy']:.1%} with {last['weight_density']:.2%} of the weights and "
        f"{last['edge_density']:.2%} of the edges (logarithmic axes below)."
    )


@drawn_if_run
def search_paths(paths: pd.DataFrame, ends: pd.DataFrame, *, asked: float | None = None) -> Figure:
    """Every search on its way from the full model to the sheaf, a panel per task.

    paths: `task`, `seed`, `weight_density`, `dev_accuracy`, a row per look at dev prompts.
    ends: `task`, `seed`, `weight_density`, `accuracy`, the chosen sheaf on test prompts; and
    `chance`. asked: the accuracy that a sheaf should have, as a share of the full model's.
    """
    tasks = in_order(paths["task"])
    n_columns = min(COLUMNS, len(tasks))
    n_rows = -(-len(tasks) // n_columns)
    with house_style():
        figure, panels = plt.subplots(
            n_rows,
            n_columns,
            figsize=(max(COLUMN, PAGE * n_columns / COLUMNS), 0.7 + 1.15 * n_rows),
            sharex=True,
            sharey=True,
            squeeze=False,
        )
        for axes, task in zip(panels.flat, tasks, strict=False):
            _paths(axes, paths[paths["task"] == task], ends[ends["task"] == task])
            axes.set_title(task, loc="left")
            if asked is not None:
                axes.axhline(asked, color="0.8", linewidth=0.8, zorder=0)
        # All panels share one axis, so its ends are those of all searches.
        panels[0, 0].set_xlim(115, 80 * min(0.01, paths["weight_density"].min()))
        for axes in panels.flat[len(tasks) :]:
            axes.set_visible(False)
        for number, axes in enumerate(panels.flat[: len(tasks)]):
            # Where the row below is not full, the numbers stand under the last panel above it.
            axes.tick_params(labelbottom=number + n_columns >= len(tasks))
        figure.supxlabel(DENSITY_LABELS["weight_density"], fontsize="medium")
        figure.supylabel("accuracy", fontsize="medium")
        handles = [
            Line2D([], [], color=BLUE, label="on the way, dev"),
            Line2D([], [], color=RED, marker="o", linestyle="none", label="chosen sheaf, test"),
            Line2D([], [], label="chance", **CHANCE),
        ]
        if asked is not None:
            handles.append(Line2D([], [], color="0.8", linewidth=0.8, label=f"{asked:.0%}"))
        figure.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1)
        plt.close(figure)
    return figure


def _paths(axes: Axes, paths: pd.DataFrame, ends: pd.DataFrame) -> None:
    """One panel of `search_paths`."""
    for _, rows in paths.groupby("seed"):
        rows = rows.sort_values("step")
        axes.plot(100 * rows["weight_density"], rows["dev_accuracy"], color=BLUE, alpha=0.7)
    for row in ends.to_dict("records"):
        place = 100 * row["weight_density"], row["accuracy"]
        axes.plot(*place, color=RED, marker="o", markersize=4, clip_on=False, zorder=5)
    for chance in ends["chance"].unique():
        axes.axhline(chance, **CHANCE)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.05)
    axes.set_xticks([100, 10, 1], ["100", "10", "1"])
    axes.set_xticks([], minor=True)


@told_if_run
def caption_paths(paths: pd.DataFrame, ends: pd.DataFrame, *, asked: float) -> str:
    """How many searches ended where they should, and which did not."""
    short = ends[ends["accuracy"] < asked * ends["full_accuracy"]]
    named = ", ".join(
        f"{row['task']} {row['accuracy']:.1%} (dev at most {_most(paths, row):.1%} at that size)"
        for row in short.to_dict("records")
    )
    return (
        f"{len(ends)} searches, from all weights (left) to the few that a sheaf keeps: accuracy of "
        f"the deterministic sheaf on dev prompts on the way, and of the chosen one on test prompts."
        f" At least {asked:.0%} of the full model's accuracy on test: {len(ends) - len(short)} of "
        f"{len(ends)}" + (f"; not {named}." if len(short) else ".")
    )


def _most(paths: pd.DataFrame, end: dict[Hashable, Any]) -> float:
    """The best accuracy on dev that the search of a sheaf saw with no more weights."""
    same = paths[(paths["task"] == end["task"]) & (paths["seed"] == end["seed"])]
    return float(same["dev_accuracy"][same["weight_density"] <= end["weight_density"]].max())


@drawn_if_run
def sensitivity(
    table: pd.DataFrame, *, symbol: str, default: float | None = None, chance: float | None = None
) -> Figure:
    """How one setting moves accuracy, complement and densities.

    Columns: `value`, `accuracy`, `complement_accuracy`, `weight_density`, `edge_density`; several
    rows of one value (seeds, tasks) are drawn as points, their mean as a line.
    """
    with house_style():
        figure, panels = plt.subplots(1, 2, figsize=(PAGE * 0.8, 2.2), sharex=True)
        accuracies, densities = panels
        for axes, column, label, colour, line in (
            (accuracies, "accuracy", "sheaf", BLUE, "-"),
            (accuracies, "complement_accuracy", "complement", RED, "--"),
            (densities, "weight_density", "weights", GREEN, "-"),
            (densities, "edge_density", "edges", "#CC79A7", "--"),
        ):
            scale = 100 if axes is densities else 1
            _points_and_mean(axes, table["value"], scale * table[column], label, colour, line)
        if chance is not None:
            accuracies.axhline(chance, label="chance", **CHANCE)
        accuracies.set_ylim(0, 1.03)
        accuracies.set_title("accuracy", loc="left")
        densities.set_title("kept (%)", loc="left")
        densities.set_yscale("log")
        plain_numbers(densities.yaxis)
        positive = bool((table["value"] > 0).all())
        for axes in panels:
            axes.set_xscale("log" if positive else "linear")
            axes.set_xticks(sorted(table["value"].unique()), minor=False)
            axes.set_xticks([], minor=True)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            if default is not None:
                axes.axvline(default, color="0.8", linewidth=3, zorder=0)
            axes.set_xlabel(symbol + (", grey: default" if default is not None else ""))
            axes.legend(loc="best")
        label_panels(panels)
        plt.close(figure)
    return figure


@told_if_run
def caption_sensitivity(table: pd.DataFrame, *, symbol: str) -> str:
    """The range of accuracies and densities over the values tried."""
    means = table.groupby("value")[["accuracy", "weight_density", "edge_density"]].mean()
    low, high = means.min(), means.max()
    return (
        f"{symbol} from {means.index.min():g} to {means.index.max():g}: accuracy "
        f"{low['accuracy']:.1%} to {high['accuracy']:.1%}, weights kept "
        f"{low['weight_density']:.2%} to {high['weight_density']:.2%}, edges kept "
        f"{low['edge_density']:.2%} to {high['edge_density']:.2%} (points: single runs, lines: "
        "means)."
    )


def _points_and_mean(
    axes: Axes, x: pd.Series, y: pd.Series, label: str, colour: str, line: str
) -> None:
    axes.scatter(x, y, s=8, color=colour, alpha=0.4, linewidth=0)
    mean = y.groupby(x).mean()
    axes.plot(mean.index, mean, color=colour, linestyle=line, label=label)
