"""What all figures share: widths, the colour of every method, and how a figure is saved."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from discogp_lib.paths import FIGURES, PACKAGE, atomic_path

STYLE = PACKAGE / "discogp.mplstyle"
COLUMN, PAGE = 3.3, 6.9
"""Widths in inches of a column and of a page."""

METHOD_COLOURS = {
    "discogp": "#0072B2",
    "weight_pruning": "#009E73",
    "edge_pruning": "#E69F00",
    "acdc": "#D55E00",
    "eap": "#CC79A7",
    "eap_ig": "#56B4E9",
    "random": "#8C8C8C",
    "magnitude": "#000000",
}
"""One colour per method in every figure (Okabe and Ito, and a grey)."""

METHOD_NAMES = {
    "discogp": "DiscoGP",
    "weight_pruning": "weight pruning",
    "edge_pruning": "edge pruning",
    "acdc": "ACDC",
    "eap": "EAP",
    "eap_ig": "EAP-IG",
    "random": "random",
    "magnitude": "magnitude",
}

METHOD_MARKERS = {
    "discogp": "o",
    "weight_pruning": "s",
    "edge_pruning": "D",
    "acdc": "^",
    "eap": "v",
    "eap_ig": "<",
    "random": "X",
    "magnitude": "P",
}
"""One marker per method, for print without colour."""

SERIES_COLOURS = {
    "MLP": "#D55E00",
    "attention": "#0072B2",
    "MLP to attention": "#D55E00",
    "attention to MLP": "#0072B2",
}
"""By where something is or comes from: MLPs and attention heads."""

DENSITY_LABELS = {
    "edge_density": "edges kept (%)",
    "weight_density": "weights kept (%)",
}

CHANCE: dict[str, Any] = {"color": "0.35", "linewidth": 0.8, "linestyle": (0, (4, 2))}
"""How chance is drawn, everywhere."""


def house_style() -> AbstractContextManager[None]:
    """Everything drawn inside looks like the other figures."""
    return plt.style.context(STYLE)


def save_figure(
    figure: Figure, data: pd.DataFrame, profile: str, name: str, *, figures: Path = FIGURES
) -> Path:
    """Write `name`.png, .svg and the .csv behind them; returns the path of the PNG."""
    folder = figures / profile
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        with atomic_path(folder / f"{name}.{suffix}") as temporary, house_style():
            figure.savefig(temporary, format=suffix, metadata=metadata)
    with atomic_path(folder / f"{name}.csv") as temporary:
        data.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    return folder / f"{name}.png"


def method_name(method: str) -> str:
    """A method's name for readers; one we do not know keeps its own."""
    return METHOD_NAMES.get(method, method)


def in_order(values: Iterable[object]) -> list[str]:
    """Each value once, in the order of the table."""
    return list(dict.fromkeys(map(str, values)))


def label_panels(axes: Iterable[Axes]) -> None:
    """(a), (b), ... before the titles."""
    for letter, one in zip("abcdefghijklmnopqrstuvwxyz", axes, strict=False):
        one.set_title(f"({letter}) {one.get_title(loc='left')}", loc="left")


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 3, 10, 30 and so on, without powers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())
