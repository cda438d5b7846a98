"""Figures about the tasks themselves."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from discogp_lib.plots.style import COLUMN, house_style


def label_priors(table: pd.DataFrame) -> Figure:
    """What guessing scores on each task, against the level the paper calls random.

    Columns: `task`, `chance` (1/K), `majority` (one fixed answer), `paper_random`.
    """
    with house_style():
        figure, axes = plt.subplots(figsize=(COLUMN, 0.9 + 0.17 * len(table)))
        rows = range(len(table))
        axes.hlines(rows, table["chance"], table["majority"], color="0.75", linewidth=1, zorder=1)
        axes.scatter(
            table["majority"], rows, s=14, color="C1", label="one fixed answer", clip_on=False
        )
        axes.scatter(
            table["chance"], rows, s=36, facecolor="none", edgecolor="C0", label="guess, 1/K"
        )
        axes.scatter(
            table["paper_random"], rows, marker="|", s=70, color="black", label="paper's random"
        )
        axes.set_yticks(rows, table["task"])
        axes.set_ylim(len(table) - 0.5, -0.5)
        axes.set_xlim(-0.03, 1)
        axes.set_xlabel("accuracy without reading the prompt")
        axes.grid(axis="x")
        figure.legend(loc="outside upper center", ncols=3, handletextpad=0, columnspacing=0.8)
        plt.close(figure)
    return figure
