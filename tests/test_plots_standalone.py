"""Figures of standalone sheaves and of faithfulness show the numbers they are given."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from discogp_lib import plots

TABLE = pd.DataFrame(
    {
        "task": ["AGA", "IOI", "P36"],
        "accuracy": [1.0, 0.9, 0.8],
        "full_accuracy": [1.0, 1.0, 0.8],
        "multiply_adds_share": [0.5, 0.6, 0.7],
        "file_share": [0.1, 0.05, 0.2],
        "weight_share": [0.02, 0.03, 0.01],
    }
)
CURVES = pd.DataFrame(
    [
        (ablation, method, share, share * slope)
        for ablation in ("zero", "interchange")
        for method, slope in (("eap", 1.0), ("random", 0.5))
        for share in (0.1, 1.0)
    ],
    columns=["ablation", "method", "share", "faithfulness"],
)
POINTS = pd.DataFrame(
    [("zero", "discogp", 0.05, 0.9), ("interchange", "discogp", 0.05, 0.2)], columns=CURVES.columns
)
AREAS = pd.DataFrame(
    [("zero", "eap", 0.4, 0.6), ("zero", "random", 0.1, 0.9), ("interchange", "eap", 0.9, 0.1)],
    columns=["ablation", "method", "cpr", "cmd"],
)


def lines(figure: Figure, panel: int) -> dict[str, tuple[list[float], list[float]]]:
    """What is drawn, by its name in the legend."""
    named = [line for line in figure.axes[panel].lines if not str(line.get_label()).startswith("_")]
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in named
    }


def test_shares_and_accuracies_by_task() -> None:
    figure = plots.standalone_shares(TABLE)
    shares, accuracies = lines(figure, 0), lines(figure, 1)
    assert shares["bytes"] == (pytest.approx([10, 5, 20]), [0, 1, 2])
    assert shares["weights"][0] == pytest.approx([2, 3, 1])
    assert shares["multiply-adds of live nodes"][0] == pytest.approx([50, 60, 70])
    assert accuracies["the file alone"][0] == [1.0, 0.9, 0.8]
    assert accuracies["full model"][0] == [1.0, 1.0, 0.8]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["AGA", "IOI", "P36"]
    caption = plots.caption_shares(TABLE)
    assert "10.0% of the checkpoint's bytes" in caption
    assert "2 of 3 are as accurate" in caption


def test_faithfulness_has_a_panel_for_each_ablation() -> None:
    figure = plots.faithfulness_curves(CURVES, POINTS)
    assert len(figure.axes) == 2
    assert lines(figure, 0)["EAP"] == (pytest.approx([10, 100]), pytest.approx([0.1, 1.0]))
    assert lines(figure, 1)["DiscoGP (sheaf)"] == ([5.0], [0.2])
    caption = plots.caption_faithfulness(AREAS)
    assert "under zero ablation: EAP 0.40 / 0.60, random 0.10 / 0.90; under interchange" in caption
