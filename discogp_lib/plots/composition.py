"""Figures of joined sheaves."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from discogp_lib.analysis.composition import COMPARISONS
from discogp_lib.plots.gaps import drawn_if_run, told_if_run
from discogp_lib.plots.style import (
    CHANCE,
    COLUMN,
    METHOD_COLOURS,
    PAGE,
    house_style,
    in_order,
    label_panels,
)

KIND_LOOKS = {
    "composed": (METHOD_COLOURS["discogp"], "o", "with other sheaves"),
    "random": (METHOD_COLOURS["random"], "X", "with random masks"),
    "matched": ("#E69F00", "s", "random, matched by part"),
}


@drawn_if_run
def composition_heatmaps(table: pd.DataFrame, *, tasks: Sequence[str] = ()) -> Figure:
    """What joining two sheaves changes, in points of accuracy; white is no change.

    Against the sheaf alone, and against the sheaf joined with random masks of the same size, in
    all or in every part. Takes `composition.over_seeds`; only pairs are shown. `tasks` are the
    rows and columns, grey where they were not run; by default those of the table.
    """
    pairs = table[table["size"] == 2]
    names = list(tasks) or in_order(pairs["task"])
    limit = max(100 * float(pairs[list(COMPARISONS)].abs().max().max()), 1.0)
    norm = TwoSlopeNorm(0, -limit, limit)
    with house_style():
        figure, panels = plt.subplots(1, 3, figsize=(PAGE, 3.35), sharey=True)
        for axes, (value, title) in zip(panels, COMPARISONS.items(), strict=True):
            wide = 100 * pairs.pivot(index="joined", columns="task", values=value)
            image = wide.reindex(index=names, columns=names).to_numpy(float)
            _heatmap(axes, image, norm, names)
            axes.set_title(title.replace("minus", "\N{MINUS SIGN}"), loc="left")
            axes.set_xlabel("evaluated on")
        panels[0].set_ylabel("joined with")
        figure.colorbar(
            ScalarMappable(norm, "PuOr"),
            ax=panels,
            orientation="horizontal",
            aspect=60,
            shrink=0.6,
            label="difference in accuracy (points)",
        )
        label_panels(panels)
        plt.close(figure)
    return figure


def _heatmap(
    axes: Axes, image: Float[np.ndarray, "joined task"], norm: TwoSlopeNorm, names: list[str]
) -> None:
    """One panel: numbers in cells, a grey diagonal, a dash where nothing was run."""
    n, limit = len(names), float(norm.vmax or 1)
    size = 6.5 if n <= 4 else 5 if n <= 7 else 4
    axes.imshow(image, norm=norm, cmap="PuOr")
    for y, x in np.ndindex(n, n):
        value = image[y, x]
        if x == y:
            continue
        shown = f"{value:+.1f}".replace("-", "\N{MINUS SIGN}") if value.round(1) else "0"
        text = shown if np.isfinite(value) else "\N{EN DASH}"
        colour = "white" if abs(value) > 0.6 * limit else "black"
        axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour)
    axes.set_facecolor("0.85")
    axes.set_xticks(range(n), names, rotation=0 if n <= 4 else 90)
    axes.set_yticks(range(n), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


@told_if_run
def caption_composition(table: pd.DataFrame) -> str:
    """How often and how much joining costs, and whether random masks cost the same."""
    pairs = table[table["size"] == 2]
    change, over, matched = (100 * pairs[value] for value in COMPARISONS)
    worst = pairs.loc[[pairs["change"].idxmin()]].iloc[0]
    seeds = int(pairs["n_seeds"].max())
    return (
        "Accuracy of the union of two sheaves on the column's task, minus (a) that of the column's "
        "sheaf alone, (b) that of the column's sheaf joined with as many random edges and weights, "
        "(c) the same with as many in every part of the model; means over "
        f"{seeds} {'seed' if seeds == 1 else 'seeds'}, {len(pairs)} ordered pairs. "
        f"The mean change is {change.mean():+.1f} points (from {change.min():+.1f}, "
        f"{worst['task']} joined with {worst['joined']}, to {change.max():+.1f}); "
        f"against random masks {over.mean():+.1f} points, matched {matched.mean():+.1f}."
    )


@drawn_if_run
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


@told_if_run
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
