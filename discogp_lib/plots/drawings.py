"""Drawings of sheaves on the grid, and layer x head maps of many at once."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection, PatchCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Wedge
from matplotlib.path import Path

from discogp_lib import grid
from discogp_lib.plots.gaps import drawn_if_run, told_if_run
from discogp_lib.plots.style import PAGE, house_style, in_order

WHERE_COLOURS = {"a": "#0072B2", "b": "#D55E00", "both": "#000000"}
"""Only in the first sheaf, only in the second, in both."""

MOST_EDGES = 1_500
"""Beyond this many edges a comparison draws only those that both sheaves have."""


def sheaf_drawing(nodes: pd.DataFrame, edges: pd.DataFrame) -> Figure:
    """One sheaf, as the viewer shows it. Takes `grid.nodes` and `grid.edges`."""
    with house_style():
        figure, axes = _canvas(nodes)
        weak = _opacity(len(edges) - grid.STRONG, 0.9)
        for strong, alpha, width in ((False, weak, 0.6), (True, 0.9, 0.9)):
            for kind, colour in grid.INPUT_COLOURS.items():
                chosen = edges[(edges["input"] == kind) & (edges["strong"] == strong)]
                _curves(axes, chosen, colour, alpha, width, 2 + int(strong))
        _discs(axes, nodes, nodes["radius"], color="0.1", zorder=5)
        keys = [
            Line2D([], [], color=colour, label=f"into {name}")
            for colour, name in zip(
                grid.INPUT_COLOURS.values(),
                ("queries", "keys", "values", "an MLP", "the logits"),
                strict=True,
            )
        ]
        keys.append(_ring_key(nodes["share"].max()))
        figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), columnspacing=1)
        plt.close(figure)
    return figure


def _ring_key(largest: float) -> Line2D:
    """The share of a node's weights that its ring stands for."""
    label = f"ring: {largest:.0%} kept"
    return Line2D([], [], marker="o", linestyle="none", color="0.6", fillstyle="none", label=label)


def caption_sheaf(nodes: pd.DataFrame, edges: pd.DataFrame) -> str:
    """What the drawing shows, and the node that keeps most."""
    top = nodes.sort_values("share", ascending=False).iloc[0]
    opaque = (
        f" The {edges['strong'].sum()} edges between the nodes that keep the largest shares of "
        "their weights are opaque, the rest faint."
        if len(edges) > edges["strong"].sum()
        else ""
    )
    return (
        f"A sheaf of {len(edges):,} edges and {nodes['kept'].sum():,} weights inside nodes. Layers "
        "run from left to right, MLPs lie below the heads. The area of a node is the share of its "
        f"weights that is kept (largest: {top['node']}, {top['share']:.2%}).{opaque}"
    )


@drawn_if_run
def sheaf_comparison(
    nodes: pd.DataFrame, edges: pd.DataFrame, names: Sequence[str] = ("A", "B")
) -> Figure:
    """Two sheaves in one drawing: what only one has, and what both have. Takes `grid.compare`."""
    texts = {"a": f"only {names[0]}", "b": f"only {names[1]}", "both": "both"}
    ring = nodes["radius"].max()
    largest = np.nanmax(nodes[["share_a", "share_b"]].to_numpy()) or 1.0
    with house_style():
        figure, axes = _canvas(nodes)
        crowded = len(edges) > MOST_EDGES
        for where, colour in WHERE_COLOURS.items():
            if where == "both" or not crowded:
                chosen = edges[edges["where"] == where]
                _curves(axes, chosen, colour, _opacity(len(chosen), 0.7), 0.6, 2)
        for where, start in (("a", 90), ("b", -90)):
            radii = ring * (nodes[f"share_{where}"] / largest) ** 0.5
            halves = [
                Wedge((x, y), radius, start, start + 180)
                for x, y, radius in zip(nodes["x"], nodes["y"], radii, strict=True)
                if radius > 0
            ]
            colour = WHERE_COLOURS[where]
            axes.add_collection(PatchCollection(halves, color=colour, linewidth=0, zorder=5))
        ends = nodes[nodes["share"].isna()]
        _discs(axes, ends, ends["radius"], color="0.1", zorder=5)
        keys = [
            Line2D([], [], color=WHERE_COLOURS[where], label=f"{text}: {count:,} edges{hidden}")
            for where, text in texts.items()
            for count in [int((edges["where"] == where).sum())]
            for hidden in [" (not drawn)" if crowded and where != "both" else ""]
        ]
        keys.append(_ring_key(largest))
        figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), columnspacing=1)
        plt.close(figure)
    return figure


@told_if_run
def caption_comparison(edges: pd.DataFrame, names: Sequence[str] = ("A", "B")) -> str:
    """How much the two sheaves share."""
    counts = edges["where"].value_counts().reindex(["a", "b", "both"], fill_value=0)
    union = max(int(counts.sum()), 1)
    return (
        f"The sheaves of {names[0]} and {names[1]} in one drawing: {counts['both']:,} edges are in "
        f"both ({counts['both'] / union:.1%} of the union), {counts['a']:,} only in {names[0]}, "
        f"{counts['b']:,} only in {names[1]}. Half discs: shares of kept weights, "
        f"{names[0]} on the left in blue, {names[1]} on the right in red."
    )


@drawn_if_run
def head_heatmaps(table: pd.DataFrame, *, tasks: Sequence[str] = (), columns: int = 4) -> Figure:
    """Which heads and MLPs keep weights, one small map per task.

    Takes `grid.node_shares`. `tasks` get a map each, an empty one if not run; by default those
    of the table.
    """
    rows = table[table["kind"].isin(["head", "mlp"])]
    tasks = list(tasks) or in_order(table["task"])
    n_heads, n_layers = int(rows["head"].max()) + 1, int(rows["layer"].max()) + 1
    lines = -(-len(tasks) // columns)
    columns = -(-len(tasks) // lines)  # no line nearly empty
    cell = min(max((PAGE - 1.0) / columns / n_layers, 0.085), 0.13)
    height = lines * (cell * (n_heads + 1) + 0.3) + 0.45
    named = {0: "h0", n_heads - 1: f"h{n_heads - 1}", n_heads: "MLP"}
    if cell < 0.12:
        del named[n_heads - 1]  # no room beside the MLPs
    with house_style():
        figure, grid_axes = plt.subplots(
            lines, columns, figsize=(PAGE, height), sharex=True, sharey=True, squeeze=False
        )
        for axes, task in zip(grid_axes.flat, tasks, strict=False):
            one = rows[rows["task"] == task]
            if one.empty:
                axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="0.4")
            image = np.full((n_heads + 1, n_layers), np.nan)
            image[one["head"].where(one["head"] >= 0, n_heads), one["layer"]] = one["share"]
            drawn = axes.imshow(
                100 * image, vmin=0, vmax=100 * rows["share"].max(), cmap="cividis", aspect="auto"
            )
            axes.axhline(n_heads - 0.5, color="white", linewidth=1.2)
            axes.set_title(task, pad=2)
            axes.set_yticks(list(named), list(named.values()))
            axes.set_xticks(_ticks(n_layers))
            axes.tick_params(length=2)
        for axes in grid_axes.flat[len(tasks) :]:
            axes.set_axis_off()
        for axes in grid_axes.flat[max(len(tasks) - columns, 0) : len(tasks)]:
            axes.tick_params(labelbottom=True)
        figure.supxlabel("layer", fontsize=8)
        label = "weights kept (% of the node's)"
        figure.colorbar(drawn, ax=grid_axes, label=label, pad=0.015, aspect=40)
        plt.close(figure)
    return figure


@told_if_run
def caption_heatmaps(table: pd.DataFrame) -> str:
    """What the maps show, and how unequal MLPs and heads are."""
    shares = table.groupby("kind")["share"].mean()
    return (
        f"Share of each node's weights that the sheaf keeps, for {table['task'].nunique()} tasks; "
        "heads from top to bottom, MLPs in the last row, layers from left to right. On average a "
        f"head keeps {shares['head']:.2%} of its weights and an MLP {shares['mlp']:.2%}."
    )


def _ticks(n_layers: int) -> list[int]:
    step = 1 if n_layers <= 6 else 5
    return list(range(0, n_layers, step))


def _canvas(nodes: pd.DataFrame) -> tuple[Figure, Axes]:
    """The empty grid: rings where nodes can be, and their names."""
    bottom = int(nodes["y"].max()) + grid.BOTTOM
    figure, axes = plt.subplots(figsize=(PAGE, PAGE * bottom / grid.WIDTH + 0.2))
    axes.set(xlim=(0, grid.WIDTH), ylim=(bottom, 0), aspect="equal")
    axes.set_axis_off()
    heads = nodes[nodes["kind"] == "head"]
    first_row, mlps = heads[heads["head"] == 0], nodes[nodes["kind"] == "mlp"]
    step = 1 if len(mlps) <= 24 else 5
    left = float(nodes["x"].min())
    texts: list[tuple[float, float, str]] = [(left, grid.TOP - grid.ROW, "layer")]
    texts += [(x, grid.TOP - grid.ROW, str(n)) for n, x in enumerate(first_row["x"])][::step]
    first_column = heads[heads["layer"] == 0]
    texts += [(left, y, f"h{n}") for n, y in enumerate(first_column["y"])]
    under = float(nodes["y"].max()) + grid.BOW + 6
    texts += [(x, under, str(name)) for x, name in zip(mlps["x"], mlps["node"], strict=True)][
        ::step
    ]
    ends = nodes[nodes["kind"].isin(["input", "logits"])]
    texts += [(x, under, str(name)) for x, name in zip(ends["x"], ends["node"], strict=True)]
    for x, y, text in texts:
        axes.text(x, y, text, ha="center", va="center", fontsize=6)
    ring = pd.Series(float(nodes["radius"].max()) or grid.RADIUS, index=nodes.index)
    _discs(axes, nodes, ring, facecolor="white", edgecolor="0.8", linewidth=0.5, zorder=1)
    return figure, axes


def _discs(axes: Axes, nodes: pd.DataFrame, radii: pd.Series, **look: object) -> None:
    widths = 2 * radii.to_numpy()
    discs = EllipseCollection(
        widths,
        widths,
        np.zeros(len(nodes)),
        units="xy",
        offsets=nodes[["x", "y"]].to_numpy(),
        transOffset=axes.transData,
        **look,
    )
    axes.add_collection(discs)


def _opacity(n_edges: int, most: float) -> float:
    """Many edges are drawn faint, so that one still sees where they are many."""
    return min(most, max(0.12, 150 / max(n_edges, 1)))


def _curves(
    axes: Axes, edges: pd.DataFrame, colour: str, alpha: float, width: float, zorder: int
) -> None:
    if edges.empty:
        return
    points = edges[[f"{axis}{n}" for n in range(4) for axis in "xy"]].to_numpy(float)
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    paths = [Path(row.reshape(4, 2), codes) for row in points]
    axes.add_collection(
        PathCollection(
            paths,
            facecolors="none",
            edgecolors=[colour],
            linewidths=[width],
            alpha=alpha,
            zorder=zorder,
        )
    )
