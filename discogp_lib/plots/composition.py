"""Figures of joined sheaves."""

from __future__ import annotations

from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from discogp_lib.plots.style import CHANCE, COLUMN, METHOD_COLOURS, PAGE, house_style, in_order

Control = Literal["random", "matched"]
CONTROL_NAMES = {"random": "random", "matched": "random, matched by part"}
KIND_LOOKS = {
    "composed": (METHOD_COLOURS["discogp"], "o", "with other sheaves"),
    "random": (METHOD_COLOURS["random"], "X", "with random masks"),
    "matched": ("#E69F00", "s", "random, matched by part"),
}


def composition_heatmaps(table: pd.DataFrame, *, control: Control = "random") -> Figure:
    """What joining two sheaves changes, in points of accuracy; white is no change.

    Against the sheaf alone, and against the sheaf joined with random masks of the same size.
    Takes `composition.over_seeds`; only pairs are shown.
    """
    comparisons = {
        "change": "joined \N{MINUS SIGN} alone",
        f"over_{control}": f"joined \N{MINUS SIGN} {CONTROL_NAMES[control]}",
    }
    pairs = table[table["size"] == 2]
    tasks = in_order(pairs["task"])
    n = len(tasks)
    limit = max(100 * float(pairs[list(comparisons)].abs().max().max()), 1.0)
    norm = TwoSlopeNorm(0, -limit, limit)
    with house_style():
        figure, panels = plt.subplots(
            1, 2, figsize=(PAGE, PAGE / 2 * 0.86), sharey=True, squeeze=False
        )
        for axes, (value, title) in zip(panels.flat, comparisons.items(), strict=True):
            wide = 100 * pairs.pivot(index="joined", columns="task", values=value)
            image = wide.reindex(index=tasks, columns=tasks).to_numpy(float)
            drawn = axes.imshow(image, norm=norm, cmap="PuOr")
            for y, x in zip(*np.nonzero(np.isfinite(image)), strict=True):
                shown = image[y, x].round(1)
                text = f"{shown:+.1f}".replace("-", "\N{MINUS SIGN}") if shown else "0"
                colour = "white" if abs(image[y, x]) > 0.6 * limit else "black"
                size = 6.5 if n <= 6 else 5.5
                axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour)
            axes.set_facecolor("0.92")
            axes.set_xticks(range(n), tasks, rotation=0 if n <= 6 else 45)
            axes.set_yticks(range(n), tasks)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(title, loc="left")
            axes.set_xlabel("evaluated on")
        panels[0, 0].set_ylabel("joined with")
        figure.colorbar(drawn, ax=panels, shrink=0.8, label="accuracy, points", pad=0.015)
        plt.close(figure)
    return figure


def caption_composition(table: pd.DataFrame, *, control: Control = "random") -> str:
    """How often and how much joining costs, and whether random masks cost the same."""
    pairs = table[table["size"] == 2]
    change, over = 100 * pairs["change"], 100 * pairs[f"over_{control}"]
    worst = pairs.loc[[pairs["change"].idxmin()]].iloc[0]
    seeds = int(pairs["n_seeds"].max())
    how = " in every part of the model" if control == "matched" else ""
    return (
        "Accuracy of the union of two sheaves on the column's task, minus that of the column's "
        "sheaf alone (left) and minus that of the column's sheaf joined with as many random edges "
        f"and weights{how} (right); means over {seeds} {'seed' if seeds == 1 else 'seeds'}. "
        f"The mean change is {change.mean():+.1f} points (from {change.min():+.1f}, "
        f"{worst['task']} joined with {worst['joined']}, to {change.max():+.1f}); "
        f"against random masks {over.mean():+.1f} points."
    )


def composition_by_size(table: pd.DataFrame, *, chance: float | None = None) -> Figure:
    """Accuracy as more sheaves are joined, beside random masks of the same sizes.

    Takes `composition.composition_table`; every point is a mean over tasks, unions and seeds.
    """
    alone = float(table[table["kind"] == "original"]["accuracy"].mean())
    sizes = sorted({int(size) for size in table["size"] if size > 1})
    with house_style():
        figure, axes = plt.subplots(figsize=(COLUMN, 2.3))
        for kind, (colour, marker, label) in KIND_LOOKS.items():
            rows = table[table["kind"] == kind].groupby("size")["accuracy"]
            low, high = rows.quantile(0.05), rows.quantile(0.95)
            x, mean = [1, *sizes], [alone, *rows.mean()]
            axes.plot(x, mean, color=colour, marker=marker, label=label, zorder=3)
            axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
        full = table[table["kind"] == "full model"]["accuracy"].mean()
        axes.axhline(full, color="black", linewidth=0.8)
        axes.text(max(sizes), full, "full model ", ha="right", va="bottom", fontsize=6)
        if chance is not None:
            axes.axhline(chance, **CHANCE)
            axes.text(max(sizes), chance, "chance ", ha="right", va="bottom", fontsize=6)
        axes.set_xticks([1, *sizes], ["alone", *map(str, sizes)])
        axes.set_ylim(0 if chance is None else min(chance, table["accuracy"].min()) - 0.03, 1.03)
        axes.set(xlabel="sheaves joined", ylabel="accuracy")
        figure.legend(loc="outside upper center", ncols=2, columnspacing=1)
        plt.close(figure)
    return figure


def caption_by_size(table: pd.DataFrame) -> str:
    """Accuracy alone and with all joined."""
    largest = table["size"].max()
    last = table[table["size"] == largest].groupby("kind")["accuracy"].mean()
    alone = table[table["kind"] == "original"]["accuracy"].mean()
    return (
        f"Accuracy of a task's sheaf when others are joined to it: {alone:.1%} alone, "
        f"{last['composed']:.1%} with {largest} sheaves joined; with random masks of the same size "
        f"{last['random']:.1%}, matched by part {last['matched']:.1%}. Bands: from the 5th to the "
        "95th percentile over tasks, unions and seeds."
    )
