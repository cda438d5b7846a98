"""The dots are the accuracies, the large ones their means."""

import pandas as pd
import pytest

from discogp_lib.plots.ablation import ablation_dots, caption_ablation

TABLE = pd.DataFrame(
    [
        {"panel": p, "name": n, "ablation": a, "task": t, "accuracy": 0.5 + i / 10}
        for p in ("two answers", "relations")
        for n in ("DiscoGP", "no edges")
        for a in ("zero", "mean", "interchange")
        for i, t in enumerate(("A", "B"))
    ]
)


def test_every_method_in_every_panel():
    figure = ablation_dots(TABLE, chance={"two answers": 0.5})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "(a) two answers",
        "(b) relations",
    ]
    pairs, relations = figure.axes
    assert [label.get_text() for label in pairs.get_yticklabels()] == ["DiscoGP", "no edges"]
    small = [points.get_offsets()[:, 0].tolist() for points in pairs.collections]
    assert small == [pytest.approx([0.5, 0.6, 0.5, 0.6])] * 3
    means = [list(line.get_xdata()) for line in pairs.lines if line.get_linestyle() == "None"]
    assert means == [pytest.approx([0.55, 0.55])] * 3
    dashed = [line for line in relations.lines if line.get_linestyle() == "--"]
    assert not dashed  # no chance was given there


def test_the_caption_has_every_mean():
    caption = caption_ablation(TABLE)
    assert "Means over 2 task(s). DiscoGP: zero 55.0%, mean 55.0%" in caption
