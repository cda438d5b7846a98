"""Figures that compare methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from discogp_lib.plots.style import (
    CHANCE,
    COLUMN,
    DENSITY_LABELS,
    METHOD_COLOURS,
    METHOD_MARKERS,
    PAGE,
    house_style,
    in_order,
    label_panels,
    method_name,
    plain_numbers,
)

VALUE_LABELS = {"accuracy": "accuracy", "kl": "KL divergence (nats)"}
LEVELS: dict[str, dict[str, Any]] = {
    "chance": CHANCE,
    "full": {"color": "black", "linewidth": 1.0},
}
"""How the levels that every method is held against are drawn."""
CONTROL_LOOKS = {
    "random_matched": ("#8C8C8C", "h", "random, matched"),
    "discogp@shuffled": ("#0072B2", "X", "shuffled labels"),
    "discogp@untrained": ("#0072B2", "P", "untrained model"),
}
"""Controls that are kin to a method: its colour, a hollow marker, a name."""

Level = float | Mapping[str, float] | None
"""One value for all panels, or one for each."""


def pareto(
    points: pd.DataFrame,
    *,
    x: str | Sequence[str] = "edge_density",
    y: str | Sequence[str] = "accuracy",
    chance: Level = None,
    mark: Level = None,
    paper: pd.DataFrame | None = None,
) -> Figure:
    """Accuracy or KL against density; the paper's points are hollow.

    Columns: `method`, and those named by `x` and `y`; `paper` has the same. With a column `task`
    every task is a small point and their mean a large one, else a method is a line. With a column
    `panel` there is a panel for each of its values, and one for each of several `x` or `y`.
    mark: an edge density to mark, DiscoGP's own.
    """
    xs, ys = (_listed(name) for name in (x, y))
    panels = in_order(points["panel"]) if "panel" in points else [""]
    if len(panels) == 1:
        grid = [[(panels[0], name, value) for name in xs for value in ys]]
    elif len(xs) > 1:
        grid = [[(panel, name, ys[0]) for name in xs] for panel in panels]
    else:
        grid = [[(panel, xs[0], value) for panel in panels] for value in ys]
    n_rows, n_columns = len(grid), len(grid[0])
    width = COLUMN if n_columns == 1 else min(PAGE, 0.5 + 2.5 * n_columns)
    height = 0.75 + (1.85 if n_columns == 1 else 1.6) * n_rows
    with house_style():
        figure, axes = plt.subplots(
            n_rows,
            n_columns,
            figsize=(width, height),
            squeeze=False,
            sharex="col" if len(xs) > 1 else "all",
            sharey="row" if len(panels) > 1 or len(ys) == 1 else False,
        )
        for i, line in enumerate(grid):
            for j, (panel, column, value) in enumerate(line):
                rows = points[points["panel"] == panel] if panel else points
                hollow = paper
                if paper is not None and panel and "panel" in paper:
                    hollow = paper[paper["panel"] == panel]
                place = axes[i, j]
                _tradeoff(place, rows, column, value, hollow, _level(chance, panel))
                if column == "edge_density" and (own := _level(mark, panel)) is not None:
                    place.axvline(100 * own, color="0.85", linewidth=3, zorder=0)
                if j == 0 or value != line[0][2]:
                    place.set_ylabel(VALUE_LABELS[value])
                if i == n_rows - 1:
                    place.set_xlabel(DENSITY_LABELS[column])
                place.set_title(panel, loc="left")
        if axes.size > 1:
            label_panels(axes.flat)
        shown = [*points["method"], *([] if paper is None else paper["method"])]
        handles = [Line2D([], [], label=_name(m), **_look(m)) for m in in_order(shown)]
        if chance is not None and "accuracy" in ys:
            handles.append(Line2D([], [], label="chance", **CHANCE))
        if mark is not None:
            handles.append(Line2D([], [], label="DiscoGP's run", color="0.85", linewidth=3))
        if paper is not None:
            look = {"color": "0.3", "markerfacecolor": "white", "markersize": 6}
            handles.append(
                Line2D([], [], label="paper", linestyle="none", marker="o", **look)  # type: ignore[arg-type]
            )
        ncols = 3 if width == COLUMN else 4
        figure.legend(handles=handles, loc="outside upper center", ncols=ncols, columnspacing=1)
        plt.close(figure)
    return figure


def _tradeoff(
    axes: Axes,
    points: pd.DataFrame,
    x: str,
    y: str,
    paper: pd.DataFrame | None,
    chance: float | None,
) -> None:
    """One panel of `pareto`."""
    for method in in_order(points["method"]):
        rows = points[points["method"] == method].sort_values(x)
        look = _look(method)
        if "task" in rows:
            small = look | {"markersize": 3, "markeredgewidth": 0.4, "alpha": 0.5}
            axes.plot(100 * rows[x], rows[y], linestyle="none", **small)
            edge = "white" if "markerfacecolor" not in look else look["color"]
            large = look | {"markersize": 6, "markeredgecolor": edge, "markeredgewidth": 0.7}
            mean = np.exp(np.log(rows[x]).mean())
            axes.plot(100 * mean, rows[y].mean(), linestyle="none", zorder=5, **large)
        else:
            line = "-" if len(rows) > 1 else "none"
            axes.plot(100 * rows[x], rows[y], linestyle=line, alpha=0.9, **look)
    for row in [] if paper is None else paper.to_dict("records"):
        look = _look(str(row["method"])) | {"markerfacecolor": "white", "markersize": 6}
        axes.plot(100 * row[x], row[y], linestyle="none", zorder=4, **look)
    axes.set_xscale("log")
    plain_numbers(axes.xaxis)
    if y == "accuracy":
        lowest = float(min(points[y].min(), chance if chance is not None else 0.0))
        axes.set_ylim(max(lowest - 0.04, -0.04), 1.05)
        if chance is not None:
            axes.axhline(chance, **CHANCE)
    else:
        axes.set_ylim(bottom=0)


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _level(level: Level, panel: str) -> float | None:
    return level.get(panel) if isinstance(level, Mapping) else level


def caption_pareto(points: pd.DataFrame, *, y: str = "accuracy", paper: bool = False) -> str:
    """The best point of each method in words, or the mean over tasks; panels together."""
    told, size = [], "edge_density"
    for method in in_order(points["method"]):
        rows = points[points["method"] == method].sort_values(
            [y, size], ascending=[y != "accuracy", True]
        )
        value, share, some = rows[y].iloc[0], rows[size].iloc[0], ""
        if "task" in points:
            value, share = rows[y].mean(), np.exp(np.log(rows[size]).mean())
            some = _some(rows, points)
        shown = f"{value:.1%}" if y == "accuracy" else f"{value:.3f}"
        told.append(f"{_name(method)} {shown} at {share:.2%}{some}")
    what = "Means over tasks (densities: geometric)" if "task" in points else "Best"
    hollow = " Hollow: the paper's numbers." if paper else ""
    return (
        f"{VALUE_LABELS[y][0].upper()}{VALUE_LABELS[y][1:]} against the share of edges kept. "
        f"{what}: {'; '.join(told)}.{hollow}"
    )


def _some(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """On how many tasks a mean rests, where it is not all."""
    n = rows["task"].nunique()
    return "" if n == table["task"].nunique() else f" ({n} {'task' if n == 1 else 'tasks'})"


def method_intervals(table: pd.DataFrame) -> Figure:
    """Accuracy of every method on every task: mean and interval; chance is dashed, the full model
    a line.

    Columns: `task`, `method`, `mean`, `low`, `high`; optional `chance` and `full` (by task).
    More than eight tasks are set in three columns. The axis starts at zero.
    """
    tasks, methods = in_order(table["task"]), in_order(table["method"])
    columns = 1 if len(tasks) <= 8 else 3
    lines = -(-len(tasks) // columns)
    height = 0.8 + lines * max(0.075 * len(methods) + 0.07, 0.17)
    with house_style():
        width = PAGE if columns > 1 else PAGE * 0.75
        figure, panels = plt.subplots(
            1, columns, figsize=(width, height), sharex=True, squeeze=False
        )
        for number, axes in enumerate(panels.flat):
            shown = tasks[number * lines : (number + 1) * lines]
            _intervals(axes, table[table["task"].isin(shown)], shown, methods)
            axes.set_ylim(lines - 0.5, -0.5)
            axes.set_xlim(0, 1.02)
            axes.set_xlabel("accuracy")
        handles = [Line2D([], [], label=_name(m), **_look(m)) for m in methods]
        names = {"chance": "chance", "full": "full model"}
        handles += [
            Line2D([], [], label=names[level], **look)
            for level, look in LEVELS.items()
            if level in table
        ]
        ncols = 5 if columns > 1 else 4
        figure.legend(handles=handles, loc="outside upper center", ncols=ncols, columnspacing=1)
        plt.close(figure)
    return figure


def _intervals(axes: Axes, table: pd.DataFrame, tasks: list[str], methods: list[str]) -> None:
    """One panel of `method_intervals`."""
    step = 0.8 / len(methods)
    for number, method in enumerate(methods):
        rows = table[table["method"] == method]
        y = rows["task"].map(tasks.index).to_numpy(float) - 0.4 + (number + 0.5) * step
        look = _look(method) | {"linestyle": "none", "markersize": 3.4, "clip_on": False}
        axes.hlines(y, rows["low"], rows["high"], color=look["color"], linewidth=0.9, alpha=0.8)
        (points,) = axes.plot(rows["mean"], y, zorder=3, **look)
        points.set_in_layout(False)
    places = np.arange(len(tasks))
    for level, look in LEVELS.items():
        if level in table:
            values = table.drop_duplicates("task").set_index("task")[level].reindex(tasks)
            axes.vlines(values, places - 0.45, places + 0.45, zorder=1, **look)
    for line in range(1, len(tasks)):
        axes.axhline(line - 0.5, color="0.9", linewidth=0.5, zorder=0)
    axes.set_yticks(places, tasks)
    axes.tick_params(axis="y", length=0)


def caption_intervals(table: pd.DataFrame, *, runs: int) -> str:
    """Means over tasks, method by method."""
    parts = "; ".join(
        f"{_name(str(method))} {rows['mean'].mean():.3f}{_some(rows, table)}"
        for method, rows in table.groupby("method", sort=False)
    )
    return (
        f"Mean accuracy of each method on each task with 95 % intervals over {runs} "
        f"{'seed' if runs == 1 else 'seeds'}. Means over tasks: {parts}."
    )


def _look(method: str) -> dict[str, Any]:
    """Colour and marker: a variant has its method's colour and is hollow."""
    if method in CONTROL_LOOKS:
        colour, marker, _ = CONTROL_LOOKS[method]
        return {"color": colour, "marker": marker, "markerfacecolor": "white"}
    return {
        "color": METHOD_COLOURS.get(method, "0.3"),
        "marker": METHOD_MARKERS.get(method, "o"),
    }


def _name(method: str) -> str:
    return CONTROL_LOOKS[method][2] if method in CONTROL_LOOKS else method_name(method)
