"""Panels of the figures that compare methods."""

import pandas as pd
import pytest

from discogp_lib import plots


def points(**more: list[str]) -> pd.DataFrame:
    rows = [
        {"method": m, "edge_density": d, "weight_density": d / 2, "accuracy": a, "kl": 1 - a}
        for m, a in (("discogp", 1.0), ("random_matched", 0.5))
        for d in (0.01, 0.04)
    ]
    return pd.DataFrame(rows).assign(**more)


def test_a_line_per_method_in_a_panel_per_task_and_value():
    both = pd.concat([points(panel=["DNA"] * 4), points(panel=["IOI"] * 4)])
    figure = plots.pareto(both, y=("accuracy", "kl"), chance={"DNA": 0.5}, mark={"IOI": 0.02})
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "(a) DNA",
        "(b) IOI",
        "(c) DNA",
        "(d) IOI",
    ]
    dna, ioi = figure.axes[:2]
    assert [list(line.get_ydata()) for line in dna.lines] == [[1, 1], [0.5, 0.5], [0.5, 0.5]]
    assert list(ioi.lines[-1].get_xdata()) == [2, 2]  # the marked density, in per cent
    assert len(ioi.lines) == 3  # no chance there


def test_tasks_are_small_points_with_their_mean():
    one = points(task=["A", "B", "A", "B"], panel=["pairs"] * 4)
    figure = plots.pareto(one, x=("edge_density", "weight_density"), chance=0.5)
    edges, weights = figure.axes
    small, large = edges.lines[:2]
    assert list(small.get_xdata()) == [1, 4]
    assert float(large.get_xdata()[0]) == pytest.approx(2)  # geometric
    assert float(weights.lines[1].get_xdata()[0]) == pytest.approx(1)
    caption = plots.caption_pareto(one)
    assert "DiscoGP 100.0% at 2.00%" in caption
    assert "random, matched 50.0% at 2.00%" in caption


def test_the_papers_points_go_to_their_panels():
    both = pd.concat([points(panel=["DNA"] * 4), points(panel=["IOI"] * 4)])
    paper = points(panel=["IOI"] * 4).head(1)
    figure = plots.pareto(both, paper=paper)
    hollow = [
        [
            line
            for line in axes.lines
            if line.get_markerfacecolor() == "white" and line.get_zorder() == 4
        ]
        for axes in figure.axes
    ]
    assert [len(lines) for lines in hollow] == [0, 1]


def test_controls_have_names_and_looks_of_their_own():
    table = pd.DataFrame(
        [
            {"task": "A", "method": m, "mean": 0.5, "low": 0.4, "high": 0.6}
            for m in ("discogp", "random_matched", "discogp@shuffled", "discogp@untrained")
        ]
    )
    figure = plots.method_intervals(table)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == [
        "DiscoGP",
        "random, matched",
        "shuffled labels",
        "untrained model",
    ]
