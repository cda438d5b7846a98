"""The same sheaves under zero, mean and interchange ablation."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from discogp_lib.plots.style import CHANCE, PAGE, house_style, in_order, label_panels

ABLATION_LOOKS = {
    "zero": ("#0072B2", "o"),
    "mean": ("#E69F00", "s"),
    "interchange": ("#CC79A7", "D"),
}
"""Colour and marker of each ablation."""


def ablation_dots(table: pd.DataFrame, *, chance: Mapping[str, float]) -> Figure:
    """Accuracy of each method's sheaves under each ablation, a panel per kind of task.

    Columns: `panel`, `name` (of the method, for readers), `ablation`, `task`, `accuracy`. A small
    point is a task, a large one the mean over tasks. chance: by panel.
    """
    names, panels = in_order(table["name"]), in_order(table["panel"])
    step = 0.22
    with house_style():
        figure, axes = plt.subplots(
            1,
            len(panels),
            figsize=(PAGE if len(panels) > 1 else PAGE * 0.6, 0.75 + 0.34 * len(names)),
            sharey=True,
            squeeze=False,
        )
        for place, panel in zip(axes.flat, panels, strict=True):
            shown = table[table["panel"] == panel]
            for number, (ablation, (colour, marker)) in enumerate(ABLATION_LOOKS.items()):
                rows = shown[shown["ablation"] == ablation]
                y = rows["name"].map(names.index).to_numpy(float) + (number - 1) * step
                place.scatter(
                    rows["accuracy"], y, s=9, color=colour, marker=marker, alpha=0.35, linewidth=0
                )
                mean = rows.groupby("name")["accuracy"].mean()
                at = np.array([names.index(name) for name in mean.index]) + (number - 1) * step
                place.plot(
                    mean,
                    at,
                    linestyle="none",
                    marker=marker,
                    markersize=5,
                    color=colour,
                    markeredgecolor="white",
                    markeredgewidth=0.5,
                    clip_on=False,
                )
            for line in range(1, len(names)):
                place.axhline(line - 0.5, color="0.9", linewidth=0.5, zorder=0)
            if panel in chance:
                place.axvline(chance[panel], zorder=0, **CHANCE)
            place.set(xlim=(0, 1.02), ylim=(len(names) - 0.5, -0.5), xlabel="accuracy")
            place.set_title(panel, loc="left")
            place.set_yticks(range(len(names)), names)
            place.tick_params(axis="y", length=0)
        if len(panels) > 1:
            label_panels(axes.flat)
        handles = [
            Line2D([], [], label=name, color=colour, marker=marker, linestyle="none")
            for name, (colour, marker) in ABLATION_LOOKS.items()
        ]
        handles.append(Line2D([], [], label="chance", **CHANCE))
        figure.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1.5)
        plt.close(figure)
    return figure


def caption_ablation(table: pd.DataFrame) -> str:
    """Means over tasks, method by method."""
    parts = []
    for name in in_order(table["name"]):
        means = table[table["name"] == name].groupby("ablation", sort=False)["accuracy"].mean()
        told = ", ".join(f"{ablation} {value:.1%}" for ablation, value in means.items())
        parts.append(f"{name}: {told}")
    return (
        "Accuracy of the same sheaves when a cut edge carries nothing, an average, or the value of "
        f"the corrupted prompt. Means over {table['task'].nunique()} task(s). {'; '.join(parts)}."
    )
