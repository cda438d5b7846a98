"""Sentences say the numbers they were made from, and nothing where there are none."""

import numpy as np
import pandas as pd
import pytest

from discogp_lib.analysis import findings, likeness, overlap, recall
from discogp_lib.layout import Layout


def unions(seeds: int, joined: float, random: float) -> pd.DataFrame:
    """As `composition_table` gives them: two tasks, each joined with the other."""
    rows = []
    for seed in range(seeds):
        for task, other in (("AGA", "DNA"), ("DNA", "AGA")):
            rows.append((seed, task, "", 1, "original", 1.0))
            rows.append((seed, task, other, 2, "composed", joined - 0.01 * seed))
            rows += [(seed, task, other, 2, kind, random) for kind in ("random", "matched")]
    table = pd.DataFrame(rows, columns=["seed", "task", "joined", "size", "kind", "accuracy"])
    table["edges"] = table["weights"] = 10 * table["size"]
    live = table["size"].map({1: 10, 2: 18}).where(table["kind"] != "random", 10)
    return table.assign(live_edges=live, live_weights=live)


def test_unions_are_told_with_their_control():
    first, second, third = findings.composition_findings(unions(3, joined=0.91, random=0.99))
    assert "2 ordered pairs" in first
    assert "\N{MINUS SIGN}10.0 points on average (95 % interval over 3 seeds" in first
    assert "0 of 2 unions stay within 5 points" in first
    assert "random edges and weights change by \N{MINUS SIGN}1.0 points" in second
    assert "worse than random masks in 2 of 2 pairs, better in 0" in second
    assert "80% of the edges (random 0%, matched 80%)" in third
    one_seed = findings.composition_findings(unions(1, joined=1.0, random=1.0))[0]
    assert "0.0 points on average (one seed, no interval)" in one_seed
    assert "2 of 2 unions stay within 5 points" in one_seed


def test_intervals_are_over_seeds():
    rows = pd.DataFrame({"seed": [0, 0, 1, 1], "x": [0.1, 0.3, 0.2, 0.4]})
    half = 12.7062 * 0.1 / 2**0.5 / 2**0.5  # Student's t, one degree of freedom
    low, high = 25 - 100 * half, 25 + 100 * half
    text = findings.points(rows, "x").replace("\N{MINUS SIGN}", "-")
    assert text.endswith(f"(95 % interval over 2 seeds: {low:+.1f} to {high:+.1f})")


def test_seeds_with_fewer_tasks_give_no_interval():
    rows = pd.DataFrame({"seed": [0, 0, 1], "x": [0.1, 0.3, 0.5]})
    assert findings.points(rows, "x").endswith("(2 seeds with unlike tasks, no interval)")


def test_overlap_is_told_for_whatever_was_run(layout: Layout, random_sheaf):
    found = {
        name: {seed: random_sheaf(layout, 10 * i + seed) for seed in range(2)}
        for i, name in enumerate(["AGA", "ANA", "IOI"])
    }
    for sheaves in (found, {task: {0: seeds[0]} for task, seeds in found.items()}):
        pairs = overlap.seed_overlap(sheaves)
        means = overlap.over_seeds(pairs)
        tests = likeness.similarity_tests(means, {"all": list(sheaves)})
        texts = " ".join(findings.overlap_findings(pairs, means, tests))
        assert "nan" not in texts
        assert ("yardstick of what the same looks like" in texts) == (sheaves is not found)
        assert ("at different seeds" in texts) == (sheaves is found)
        assert "p cannot be below 0.33" in texts
    alone = overlap.seed_overlap({"AGA": found["AGA"]})
    nothing = findings.overlap_findings(alone, overlap.over_seeds(alone), tests)
    assert nothing == ["There are no sheaves of two tasks, so nothing could be compared."]


def test_recall_is_told_with_the_tasks_that_recall_nothing(layout: Layout, random_sheaf):
    found = {name: {0: random_sheaf(layout, i)} for i, name in enumerate(["P36", "P30", "P103"])}
    table = recall.recall_table(found)
    depth, bands = recall.by_depth(table), recall.outside_band(recall.over_relations(table))
    texts = findings.recall_findings(depth, depth, bands)
    edges = depth.set_index(["panel", "layers"]).loc[("edges", "upper")]
    assert f"so for what there is the ratio is {edges['normalised']:.2f}" in texts[1]
    assert "In the 3 tasks that recall no facts" in texts[1]
    empty = recall.by_depth(recall.recall_table({}))
    assert "recall no facts" not in " ".join(findings.recall_findings(depth, empty, bands))
    assert len(findings.recall_findings(empty, depth, bands)) == 1


@pytest.mark.parametrize(("share", "text"), [(-0.0001, "0.0"), (0.012, "+1.2"), (np.nan, "+nan")])
def test_signs_are_shown_but_not_of_zero(share, text):
    assert findings._signed(share) == text
