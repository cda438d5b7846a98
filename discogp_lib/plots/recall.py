"""Figures of the factual-recall analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from discogp_lib.plots.gaps import drawn_if_run, told_if_run
from discogp_lib.plots.style import PAGE, SERIES_COLOURS, house_style, in_order, label_panels
from discogp_lib.tasks.names import RELATIONS

Measure = Literal["kept", "share"]
TITLES = {
    ("kept", "weights"): "weights",
    ("kept", "edges"): "edges that end at the layer",
    ("share", "weights"): "weights, of those available",
    ("share", "edges"): "edges, of those available",
}
LABELS = {"kept": "kept", "share": "kept (%)"}


@drawn_if_run
def recall_curves(table: pd.DataFrame) -> Figure:
    """Weights and edges by layer, raw as in the paper (above) and of what was available (below).

    Takes `recall.over_relations`.
    """
    with house_style():
        figure, panels = plt.subplots(2, 2, figsize=(PAGE, 4.0), sharex=True)
        for row, measure in zip(panels, ("kept", "share"), strict=True):
            for axes, panel in zip(row, ("weights", "edges"), strict=True):
                rows = table[(table["measure"] == measure) & (table["panel"] == panel)]
                scale = 100.0 if measure == "share" else 1.0
                for series in in_order(rows["series"]):
                    one = rows[rows["series"] == series].sort_values("layer")
                    _curve_with_bands(axes, one, series, scale)
                axes.set_ylim(0, _top(rows, scale))
                axes.set_ylabel(LABELS[measure])
                axes.set_title(TITLES[measure, panel], loc="left")
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
                axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.12g}")
        for axes in panels[1]:
            axes.set_xlabel("layer")
        pairs = zip(in_order(table["series"])[:2], in_order(table["series"])[2:], strict=True)
        keys = [_key(weights, f"{weights} / {edges}") for weights, edges in pairs]
        figure.legend(handles=[*keys, RANDOM_KEY], loc="outside upper center", ncols=3)
        label_panels(panels.flat)
        plt.close(figure)
    return figure


@told_if_run
def caption_recall(table: pd.DataFrame) -> str:
    """Where the raw counts and the normalised ones say different things at the last layer."""
    last = table[table["layer"] == table["layer"].max()].set_index(["measure", "series"])["mean"]
    n = int(table["n_relations"].max())
    return (
        f"Kept weights (left) and edges (right) by layer, mean over {n} relations; bands: 95 % "
        "interval of the mean; dashed with grey bands: random masks of the same densities. Above: "
        "counts, as in the paper; below: divided by what is available at the layer. Into the last "
        f"layer run {last['kept', 'MLP to attention']:.1f} edges from MLPs to attention and "
        f"{last['kept', 'attention to MLP']:.1f} from attention to the MLP, which is "
        f"{last['share', 'MLP to attention']:.1%} and {last['share', 'attention to MLP']:.1%} of "
        "those available."
    )


@drawn_if_run
def recall_relations(
    table: pd.DataFrame,
    *,
    panel: str = "edges",
    relations: Sequence[str] = (),
    columns: int = 4,
) -> Figure:
    """One small panel per relation, shares of what there is; seeds are averaged.

    Takes `recall.recall_table`. `relations` get a panel each, an empty one if not run; by default
    those of the table.
    """
    rows = table[table["panel"] == panel]
    relations = list(relations) or in_order(rows["relation"])
    lines = -(-len(relations) // columns)
    columns = -(-len(relations) // lines)  # no line nearly empty
    with house_style():
        figure, panels = plt.subplots(
            lines,
            columns,
            figsize=(PAGE, 0.6 + 1.15 * lines),
            sharex=True,
            sharey=True,
            squeeze=False,
        )
        for axes, relation in zip(panels.flat, relations, strict=False):
            if relation not in set(rows["relation"]):
                axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color="0.4")
            for series in in_order(rows["series"]):
                one = rows[(rows["relation"] == relation) & (rows["series"] == series)]
                means = one.groupby("layer")[["kept", "random", "available"]].mean()
                percent = 100 / means["available"].where(means["available"] > 0)
                colour = SERIES_COLOURS[series]
                axes.plot(means.index, percent * means["kept"], color=colour)
                axes.plot(means.index, percent * means["random"], **_random(colour))
            about = RELATIONS.get(relation, "")
            axes.set_title(f"{relation} {about}".strip(), pad=2, fontsize=6.5)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        for axes in panels.flat[len(relations) :]:
            axes.set_axis_off()
        for axes in panels.flat[max(len(relations) - columns, 0) : len(relations)]:
            axes.tick_params(labelbottom=True)
        panels[0, 0].set_ylim(bottom=0)
        keys = [_key(series, series) for series in in_order(rows["series"])]
        figure.supxlabel("layer", fontsize=8)
        figure.supylabel(f"{panel} {LABELS['share']}", fontsize=8)
        figure.legend(handles=[*keys, RANDOM_KEY], loc="outside upper center", ncols=3)
        plt.close(figure)
    return figure


@told_if_run
def caption_relations(table: pd.DataFrame, *, panel: str = "edges") -> str:
    """In how many relations the last layer favours which direction, by share."""
    last = table[(table["panel"] == panel) & (table["layer"] == table["layer"].max())]
    shares = last.groupby(["relation", "series"], sort=False)["share"].mean().unstack()
    first, second = in_order(last["series"])
    more = int((shares[first] > shares[second]).sum())
    return (
        f"The same per relation, as shares of what is available; dashed: random masks of the same "
        f"density. At the last layer {first} is above {second} in {more} of "
        f"{len(shares)} relations."
    )


def _curve_with_bands(axes: Axes, one: pd.DataFrame, series: str, scale: float) -> None:
    colour, x = SERIES_COLOURS[series], one["layer"]
    low, high = scale * one["random_low"], scale * one["random_high"]
    axes.fill_between(x, low, high, color="0.5", alpha=0.25, linewidth=0)
    axes.plot(x, scale * one["random"], **_random(colour))
    axes.fill_between(
        x, scale * one["low"], scale * one["high"], color=colour, alpha=0.2, linewidth=0
    )
    axes.plot(x, scale * one["mean"], color=colour, marker=_marker(series))


def _random(colour: str) -> dict[str, Any]:
    return {"color": colour, "linewidth": 0.9, "linestyle": (0, (2, 1.5))}


def _marker(series: str) -> str:
    return "s" if series.startswith("MLP") else "o"


def _top(rows: pd.DataFrame, scale: float) -> float:
    """Room for the bands, but not for those that are wide because relations are few."""
    seen = float(rows[["mean", "random_high"]].max().max())
    return scale * min(1.05 * max(seen, float(rows["high"].fillna(0).max())), 2 * seen)


def _key(series: str, label: str) -> Line2D:
    return Line2D([], [], color=SERIES_COLOURS[series], marker=_marker(series), label=label)


RANDOM_KEY = Line2D([], [], label="random mask", **_random("0.4"))
