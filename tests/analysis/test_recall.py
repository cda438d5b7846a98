"""The factual-recall counts, against the names of edges and parameters."""

import numpy as np
import pytest
from scipy import stats

from discogp_lib.analysis import recall
from discogp_lib.layout import Layout


def layer(name: str) -> int:
    return int(name.lstrip("am").split(".")[0])


def test_counts_are_those_of_the_names(layout: Layout, random_sheaf):
    sheaf = random_sheaf(layout, 4)
    table = recall.layer_counts(sheaf).set_index(["panel", "series", "layer"])
    for l in range(layout.n_layers):  # noqa: E741
        into_heads = [e for e in sheaf.edges if "<" in e and layer(e.split("->")[1]) == l]
        into_mlp = [e for e in sheaf.edges if e.endswith(f"->m{l}")]
        found = table["kept"]
        assert found["edges", "MLP to attention", l] == sum(e[0] == "m" for e in into_heads)
        assert found["edges", "attention to MLP", l] == sum(e[0] == "a" for e in into_mlp)
        masks = {n: m for n, m in sheaf.weight_masks.items() if f".{l}." in n}
        mlp = sum(int(m.sum()) for n, m in masks.items() if ".mlp." in n)
        assert found["weights", "MLP", l] == mlp
        assert found["weights", "attention", l] == sum(int(m.sum()) for m in masks.values()) - mlp


def test_what_is_available_follows_the_formulas(layout: Layout, gpt2_graph: Layout, random_sheaf):
    for shape in (layout, gpt2_graph):
        table = recall.layer_counts(random_sheaf(shape, 0)).set_index(["series", "layer"])
        into_heads = shape.n_heads + 2 * shape.n_kv_heads
        for l in range(shape.n_layers):  # noqa: E741
            assert table["available"]["MLP to attention", l] == into_heads * l
            assert table["available"]["attention to MLP", l] == shape.n_heads * (l + 1)
    assert table["available"]["MLP to attention", 11] == 396
    assert table["available"]["attention to MLP", 11] == 144
    assert np.isnan(table["share"]["MLP to attention", 0])


def test_the_random_band_holds_what_random_masks_keep(layout: Layout, random_sheaf):
    one = recall.layer_counts(random_sheaf(layout, 0))
    drawn = [recall.layer_counts(random_sheaf(layout, seed))["kept"] for seed in range(1, 60)]
    # Random masks here have the density in expectation only: a little wider than fixed sizes.
    mean, spread = np.mean(drawn, axis=0), np.std(drawn, axis=0)
    density = np.where(
        one["panel"] == "edges",
        random_sheaf(layout, 0).edge_density,
        random_sheaf(layout, 0).weight_density,
    )
    assert one["random"].to_numpy() == pytest.approx(density * one["available"].to_numpy())
    assert mean == pytest.approx(0.3 * one["available"].to_numpy(), abs=0.5 * spread.max())
    assert one["random_spread"].to_numpy() == pytest.approx(spread, rel=0.5, abs=1e-9)


def test_relations_count_once_whatever_their_seeds(layout: Layout, random_sheaf):
    sheaves = {
        "P36": {0: random_sheaf(layout, 0), 1: random_sheaf(layout, 1)},
        "P30": {0: random_sheaf(layout, 2)},
        "P103": {1: random_sheaf(layout, 3)},
    }
    table = recall.recall_table(sheaves)
    means = recall.over_relations(table)
    one = means[(means["series"] == "MLP") & (means["layer"] == 1)].set_index("measure")
    rows = table[(table["series"] == "MLP") & (table["layer"] == 1)]
    values = [rows[rows["relation"] == r]["kept"].mean() for r in sheaves]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / 3**0.5
    assert one["mean"]["kept"] == pytest.approx(np.mean(values))
    assert one["high"]["kept"] == pytest.approx(np.mean(values) + half)
    available = rows["available"].iloc[0]
    assert one["mean"]["share"] == pytest.approx(np.mean(values) / available)
    assert one["random_low"]["share"] < one["random"]["share"] < one["random_high"]["share"]
    assert (means["n_relations"] == 3).all()


def test_one_relation_has_no_interval(layout: Layout, random_sheaf):
    means = recall.over_relations(recall.recall_table({"P36": {0: random_sheaf(layout, 0)}}))
    assert means["low"].isna().all()
    assert (
        means["mean"].notna().sum() == len(means) - 1
    )  # no MLP sends into the first layer's heads


def test_depth_compares_what_is_kept_with_what_there_is(layout: Layout, random_sheaf):
    found = {"P36": {0: random_sheaf(layout, 0), 1: random_sheaf(layout, 1)}}
    found["P30"] = {0: random_sheaf(layout, 2)}
    table = recall.recall_table(found)
    depth = recall.by_depth(table).set_index(["panel", "layers"])
    assert len(depth) == 6
    middle = layout.n_layers / 2
    rows = table[(table["panel"] == "edges") & (table["layer"] >= middle)]
    sums = rows.groupby(["relation", "seed", "series"])["kept"].sum()
    kept = sums.groupby(["series", "relation"]).mean()
    first, second = kept["MLP to attention"], kept["attention to MLP"]
    one = depth.loc[("edges", "upper")]
    assert one["raw"] == pytest.approx(first.mean() / second.mean())
    upper = range(int(np.ceil(middle)), layout.n_layers)
    heads, kv = layout.n_heads, layout.n_kv_heads
    into_heads = sum((heads + 2 * kv) * layer for layer in upper)
    into_mlps = sum(heads * (layer + 1) for layer in upper)
    assert one["available"] == pytest.approx(into_heads / into_mlps)
    assert one["normalised"] == pytest.approx(one["raw"] / one["available"])
    shares = first / into_heads > second / into_mlps
    assert one["above"] == shares.sum()
    assert one["n_relations"] == 2


def test_no_relations_give_empty_tables():
    table = recall.recall_table({})
    means = recall.over_relations(table)
    assert table.empty
    assert means.empty
    assert recall.by_depth(table).empty
    assert recall.outside_band(means).empty


def test_layers_outside_the_band_are_counted(layout: Layout, random_sheaf):
    means = recall.over_relations(recall.recall_table({"P36": {0: random_sheaf(layout, 0)}}))
    first = (means["layer"] == 0) & (means["series"] == "MLP")
    high = means.assign(mean=means["mean"].where(~first, 2.0))
    counts = recall.outside_band(high).set_index("series")
    assert (counts[["above", "inside", "below"]].sum(axis=1) == counts["n_layers"]).all()
    assert counts.loc["MLP", "above"] >= 1
    assert counts.loc["MLP to attention", "n_layers"] == layout.n_layers - 1
