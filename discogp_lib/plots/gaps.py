"""What stands in the place of a figure whose runs are not in the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from discogp_lib.plots.style import COLUMN, house_style

P = ParamSpec("P")
NOT_RUN = "Not run: nothing that this figure shows is in the store."


def drawn_if_run(
    draw: Callable[Concatenate[pd.DataFrame, P], Figure],
) -> Callable[Concatenate[pd.DataFrame, P], Figure]:
    """A figure of an empty table says that nothing was run; nothing is filled in."""

    @wraps(draw)
    def either(table: pd.DataFrame, *args: P.args, **options: P.kwargs) -> Figure:
        return _blank() if table.empty else draw(table, *args, **options)

    return either


def told_if_run(
    tell: Callable[Concatenate[pd.DataFrame, P], str],
) -> Callable[Concatenate[pd.DataFrame, P], str]:
    """The same for captions."""

    @wraps(tell)
    def either(table: pd.DataFrame, *args: P.args, **options: P.kwargs) -> str:
        return NOT_RUN if table.empty else tell(table, *args, **options)

    return either


def _blank() -> Figure:
    with house_style():
        figure, axes = plt.subplots(figsize=(COLUMN, 0.6))
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": "0.4"}
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, **look)
        axes.set_axis_off()
        plt.close(figure)
    return figure
