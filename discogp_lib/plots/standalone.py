"""Figures of what a sheaf is and does outside the model it was cut from."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from discogp_lib.plots.style import (
    METHOD_COLOURS,
    METHOD_MARKERS,
    PAGE,
    house_style,
    in_order,
    label_panels,
    method_name,
)

SHARES = {
    "multiply_adds_share": ("multiply-adds of live nodes", "#0072B2", "o"),
    "file_share": ("bytes", "#D55E00", "s"),
    "weight_share": ("weights", "#009E73", "D"),
}
"""What of the full model the file takes: column, name, colour and marker."""


def standalone_shares(table: pd.DataFrame) -> Figure:
    """What each exported sheaf takes of the full model, and what it gets right alone.

    Columns: `task`, `accuracy`, `full_accuracy`, and the shares named in `SHARES`.
    """
    tasks = in_order(table["task"])
    places = np.arange(len(tasks))
    with house_style():
        figure, (shares, accuracies) = plt.subplots(
            1, 2, figsize=(PAGE, 0.9 + 0.19 * len(tasks)), sharey=True, width_ratios=(3, 2)
        )
        for column, (name, colour, marker) in SHARES.items():
            values = 100 * table[column]
            shares.plot(values, places, marker, color=colour, label=name, linestyle="none")
        shares.set_xscale("log")
        shares.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        shares.axvline(100, color="0.6", linewidth=0.8)
        shares.set_xlabel("of the full model (%)")
        shares.set_yticks(places, tasks)
        shares.set_ylim(len(tasks) - 0.5, -0.5)
        accuracies.plot(
            table["full_accuracy"], places, "|", color="black", markersize=10, label="full model"
        )
        accuracies.plot(table["accuracy"], places, "o", color="0.35", label="the file alone")
        accuracies.set_xlim(0, 1.03)
        accuracies.set_xlabel("accuracy")
        for axes in (shares, accuracies):
            axes.set_title("")
            axes.tick_params(axis="y", length=0)
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1)
        plt.close(figure)
    return figure


def caption_shares(table: pd.DataFrame) -> str:
    """The middle task in words, and how many lose nothing."""
    middle = table[[*SHARES, "accuracy"]].median()
    kept = int((table["accuracy"] >= table["full_accuracy"]).sum())
    return (
        f"Exported sheaves of {len(table)} tasks, each run alone. The median file takes "
        f"{middle['file_share']:.1%} of the checkpoint's bytes, keeps {middle['weight_share']:.1%} "
        f"of the weights, makes {middle['multiply_adds_share']:.0%} of the full model's "
        f"multiply-adds (zeros inside live nodes are multiplied too) and answers "
        f"{middle['accuracy']:.1%} of the test prompts right; {kept} of {len(table)} are as "
        "accurate as the full model or more."
    )


def faithfulness_curves(curves: pd.DataFrame, points: pd.DataFrame) -> Figure:
    """Faithfulness against the share of edges, a panel for each ablation.

    Columns of both: `ablation`, `method`, `share`, `faithfulness`; points are single sheaves.
    """
    ablations = in_order(curves["ablation"])
    with house_style():
        figure, panels = plt.subplots(
            1, len(ablations), figsize=(PAGE * 0.8, 2.6), sharey=True, squeeze=False
        )
        for axes, ablation in zip(panels.flat, ablations, strict=True):
            for table, line in ((curves, "-"), (points, "none")):
                rows = table[table["ablation"] == ablation]
                for method in in_order(rows["method"]):
                    one = rows[rows["method"] == method].sort_values("share")
                    axes.plot(
                        100 * one["share"],
                        one["faithfulness"],
                        linestyle=line,
                        color=METHOD_COLOURS.get(method, "0.3"),
                        marker=METHOD_MARKERS.get(method, "o"),
                        markerfacecolor=None if line == "-" else "white",
                        label=method_name(method) + ("" if line == "-" else " (sheaf)"),
                    )
            for level in (0.0, 1.0):
                axes.axhline(level, color="0.75", linewidth=0.8, zorder=0)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_xlabel("edges kept (%)")
            axes.set_title(f"{ablation} ablation", loc="left")
        panels[0, 0].set_ylabel("faithfulness")
        label_panels(panels.flat)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=5, columnspacing=1)
        plt.close(figure)
    return figure


def caption_faithfulness(areas: pd.DataFrame) -> str:
    """The areas in words. Columns: `ablation`, `method`, `cpr`, `cmd`."""
    told = []
    for ablation in in_order(areas["ablation"]):
        rows = areas[areas["ablation"] == ablation].sort_values("cmd")
        each = (
            f"{method_name(str(r.method))} {r.cpr:.2f} / {r.cmd:.2f}" for r in rows.itertuples()
        )
        told.append(f"{ablation} ablation: {', '.join(each)}")
    return (
        "Faithfulness of the edges of largest score at the ten sizes of the MIB track; hollow: "
        f"sheaves at their own size, weights cut too. CPR / CMD under {'; under '.join(told)}."
    )
