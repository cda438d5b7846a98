"""Overlap, against sets of names and against every assignment of tasks to classes."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib.analysis import likeness, overlap
from discogp_lib.analysis.chance import random_subset_by_part
from discogp_lib.analysis.parts import parts_of
from discogp_lib.errors import ConfigError, SheafError
from discogp_lib.layout import Layout, unflatten
from discogp_lib.sheaf import Sheaf

SIX = ["AGA", "ANA", "DNA", "DNA i", "DNA a", "DNA ia"]


def test_edges_and_weights_are_counted_as_sets(layout: Layout, random_sheaf):
    a, b = random_sheaf(layout, 0), random_sheaf(layout, 1, edges=0.5, weights=0.1)
    table = overlap.overlap_table({"A": a, "B": b}).set_index("kind")
    names = [f"{n}[{i}]" for n, m in a.weight_masks.items() for i in range(m.numel())]

    def weights(sheaf: Sheaf) -> set[str]:
        return {names[i] for i in sheaf.flat_weight_mask.nonzero().flatten().tolist()}

    for kind, first, second in (
        ("edges", set(a.edges), set(b.edges)),
        ("weights", weights(a), weights(b)),
    ):
        row = table.loc[kind]
        assert row["shared"] == len(first & second)
        assert row["union"] == len(first | second)
        assert row["iou"] == pytest.approx(getattr(a.iou(b), kind))
        assert (row["size_a"], row["size_b"]) == (len(first), len(second))
        assert row["expected"] == pytest.approx(len(first) * len(second) / row["total"])
        assert row["ratio"] == pytest.approx(row["shared"] / row["expected"])
        assert row["z"] == pytest.approx((row["shared"] - row["expected"]) / row["spread"])


def test_a_sheaf_with_itself_shares_all_and_with_its_complement_nothing(layout, random_sheaf):
    a = random_sheaf(layout, 0)
    table = overlap.overlap_table({"A": a, "same": a, "rest": ~a}).set_index(["a", "b", "kind"])
    for kind in ("edges", "weights"):
        assert table.loc[("A", "same", kind), "iou"] == 1
        assert table.loc[("A", "same", kind), "p"] < 1e-6
        assert table.loc[("A", "rest", kind), "shared"] == 0
        assert table.loc[("A", "rest", kind), "p"] == pytest.approx(1)


def test_matched_chance_is_the_mean_over_masks_drawn_part_by_part(layout: Layout, random_sheaf):
    a, b = random_sheaf(layout, 0), random_sheaf(layout, 1)
    table = overlap.overlap_table({"A": a, "B": b}).set_index("kind")
    rng = np.random.default_rng(0)
    for kind, mask_a, mask_b in (
        ("edges", a.edge_mask, b.edge_mask),
        ("weights", a.flat_weight_mask, b.flat_weight_mask),
    ):
        parts = parts_of(layout, kind)
        everything = torch.ones_like(mask_b)
        draws = [
            int((mask_a & random_subset_by_part(everything, parts.count(mask_b), parts, rng)).sum())
            for _ in range(200)
        ]
        mean, row = np.mean(draws), table.loc[kind]
        assert mean == pytest.approx(row["expected_matched"], abs=4 * np.std(draws) / 200**0.5)
        spread = (row["shared"] - row["expected_matched"]) / row["z_matched"]
        assert np.std(draws) == pytest.approx(spread, rel=0.25)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1))
def test_union_intersection_and_complement_obey_the_laws_of_sets(seed_a, seed_b, p, q):
    layout = Layout("gpt2", 1, 2, 2, 4, 2, 4, attention_bias=True, mlp_bias=True)

    def make(seed: int, density: float) -> Sheaf:
        noise = torch.Generator().manual_seed(seed)
        edges = torch.rand(layout.graph.n_edges, generator=noise) < density
        weights = torch.rand(layout.n_weights, generator=noise) < density
        return Sheaf(layout, "tiny", "0", edges, unflatten(weights, layout))

    a, b = make(seed_a, p), make(seed_b, q)
    both, either = a & b, a | b
    assert both.kept_edges + either.kept_edges == a.kept_edges + b.kept_edges
    assert both.kept_weights + either.kept_weights == a.kept_weights + b.kept_weights
    assert ~either == ~a & ~b
    assert ~both == ~a | ~b
    assert a - b == a & ~b
    assert ~~a == a
    assert either == a | (b - a)
    assert a.iou(b) == b.iou(a)
    assert (a & a, a | a, a | (a & b), a & (a | b)) == (a, a, a, a)


def test_the_papers_six_pairs_come_first_and_in_its_words(gpt2_graph: Layout, random_sheaf):
    sheaves = {name: random_sheaf(gpt2_graph, i, 0.03) for i, name in enumerate(["IOI", *SIX])}
    table = overlap.overlap_table(sheaves)
    assert len(table) == 2 * 21
    pairs = list(dict.fromkeys(zip(table["a"], table["b"], strict=True)))
    assert tuple(pairs[:6]) == overlap.PAPER_PAIRS
    assert len({frozenset(pair) for pair in pairs}) == 21
    rows = overlap.paper_rows(table)
    assert rows["sheaf 2"].tolist() == ["DNA", "DNA", "AGA", "DNA i", "DNA a", "DNA ia"]
    first = table.iloc[0]
    assert rows["edge overlap"][0] == f"{first['iou']:.2%} ({first['shared']:,})"


def test_seeds_of_one_task_are_the_yardstick(layout: Layout, random_sheaf):
    sheaves = {
        name: {seed: random_sheaf(layout, 10 * i + seed) for seed in range(2)}
        for i, name in enumerate(["AGA", "ANA", "IOI"])
    }
    table = overlap.seed_overlap(sheaves)
    assert len(table) == 2 * 15
    counts = table[table["kind"] == "edges"]["tasks"].value_counts().to_dict()
    assert counts == {"same": 3, "similar": 4, "different": 8}
    means = overlap.over_seeds(table)
    one = means[(means["a"] == "AGA") & (means["b"] == "ANA") & (means["kind"] == "edges")]
    ious = [a.iou(b).edges for a in sheaves["AGA"].values() for b in sheaves["ANA"].values()]
    assert one["iou"].item() == pytest.approx(np.mean(ious))
    assert one["n_pairs"].item() == 4
    summary = likeness.by_likeness(means, "iou")
    assert summary["tasks"].tolist() == ["same", "similar", "different"] * 2
    assert summary["n"].tolist() == [3, 1, 2] * 2


def test_every_edge_is_counted_in_just_the_sheaves_it_is_in(layout: Layout, random_sheaf):
    sheaves = {name: random_sheaf(layout, i) for i, name in enumerate("ABC")}
    table = overlap.memberships(sheaves).set_index(list("ABC"))
    edges = {name: set(sheaf.edges) for name, sheaf in sheaves.items()}
    only_a_and_c = (edges["A"] & edges["C"]) - edges["B"]
    assert table.loc[(True, False, True), "count"] == len(only_a_and_c)
    assert table["count"].sum() == len(edges["A"] | edges["B"] | edges["C"])
    assert table["count"].is_monotonic_decreasing
    a, b, c = (sheaf.edge_density for sheaf in sheaves.values())
    expected = a * (1 - b) * c * layout.graph.n_edges
    assert table.loc[(True, False, True), "expected"] == pytest.approx(expected)


def pairs_table(names: list[str], value) -> pd.DataFrame:
    rows = [
        {"a": a, "b": b, "kind": "edges", "ratio": value(a, b)}
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    return pd.DataFrame(rows)


def test_the_exact_test_is_that_of_all_orders_of_the_tasks():
    rng = np.random.default_rng(3)
    table = pairs_table(SIX, lambda a, b: rng.random() + (a[:3] == b[:3]))
    result = likeness.similarity_test(table, kind="edges")
    labels = [likeness.SIMILARITY[name] for name in SIX]

    def difference(order: tuple[str, ...]) -> float:
        of = dict(zip(SIX, order, strict=True))
        same = np.array([of[a] == of[b] for a, b in zip(table["a"], table["b"], strict=True)])
        return table["ratio"][same].mean() - table["ratio"][~same].mean()

    everything = [difference(order) for order in permutations(labels)]
    assert result.exact
    assert result.n_assignments == 15
    assert result.difference == pytest.approx(difference(tuple(labels)))
    assert result.p == pytest.approx(np.mean(np.array(everything) >= result.difference - 1e-12))


def test_drawn_assignments_find_a_planted_likeness_and_no_other():
    names = list(likeness.SIMILARITY)
    classes = likeness.SIMILARITY
    rng = np.random.default_rng(0)
    alike = pairs_table(names, lambda a, b: rng.random() + 2 * (classes[a] == classes[b]))
    noise = pairs_table(names, lambda a, b: rng.random())
    found = likeness.similarity_test(alike, kind="edges", n_permutations=2000)
    assert not found.exact
    assert found.p < 0.01
    assert likeness.similarity_test(noise, kind="edges", n_permutations=2000).p > 0.05
    again = likeness.similarity_test(alike, kind="edges", n_permutations=2000)
    assert found == again


def test_mistakes_are_told(layout: Layout, random_sheaf):
    table = pairs_table(["AGA", "ANA"], lambda a, b: 1.0)
    with pytest.raises(ConfigError, match="AGA, ANA"):
        likeness.similarity_test(table, kind="edges")
    other = Layout("gpt2", 1, 2, 2, 4, 2, 4, attention_bias=True, mlp_bias=True)
    with pytest.raises(SheafError, match="load the model"):
        overlap.overlap_table({"A": random_sheaf(layout, 0), "B": random_sheaf(other, 0)})


def test_excess_is_none_at_chance_and_whole_where_one_lies_in_the_other(layout, random_sheaf):
    a = random_sheaf(layout, 0)
    table = overlap.overlap_table({"A": a, "more": a | random_sheaf(layout, 1)}).set_index("kind")
    assert table["excess"].to_numpy() == pytest.approx(1)
    assert table["excess_matched"].to_numpy() == pytest.approx(1)
    many = [
        overlap.overlap_table({"A": a, "B": random_sheaf(layout, seed)}) for seed in range(2, 40)
    ]
    assert pd.concat(many)["excess"].mean() == pytest.approx(0, abs=0.05)


def test_pairs_of_the_paper_that_were_not_run_are_marked(gpt2_graph: Layout, random_sheaf):
    found = {"AGA": {0: random_sheaf(gpt2_graph, 0)}, "ANA": {0: random_sheaf(gpt2_graph, 1)}}
    rows = overlap.paper_rows(overlap.over_seeds(overlap.seed_overlap(found)))
    assert len(rows) == 6
    run = rows["edge overlap"] != "not run"
    assert rows[run][["sheaf 1", "sheaf 2"]].values.tolist() == [["ANA", "AGA"]]
    assert rows["weight ratio, matched"].notna().tolist() == run.tolist()


def test_equal_and_different_seeds_are_told_apart(layout: Layout, random_sheaf):
    found = {
        name: {seed: random_sheaf(layout, 10 * i + seed) for seed in range(2)}
        for i, name in enumerate(["AGA", "IOI"])
    }
    pairs = overlap.seed_overlap(found)
    table = overlap.by_seed(pairs).set_index(["kind", "seeds"])
    assert table["n"].tolist() == [2] * 4
    same = [found["AGA"][s].iou(found["IOI"][s]).edges for s in range(2)]
    assert table.loc[("edges", "same seed"), "iou"] == pytest.approx(np.mean(same))


def test_tests_of_groups_say_what_cannot_be_tested():
    table = pairs_table(SIX, lambda a, b: 1 + (likeness.SIMILARITY[a] == likeness.SIMILARITY[b]))
    table = pd.concat([table, table.assign(kind="weights")])
    groups = {"six": SIX, "one class": ["DNA", "DNA i"], "none": []}
    tests = likeness.similarity_tests(table, groups, values=["ratio"]).set_index(["tasks", "kind"])
    assert tests.loc[("six", "edges"), "p"] == pytest.approx(1 / 15)
    assert tests.loc[("six", "edges"), "least_p"] == pytest.approx(1 / 15)
    assert tests.loc["one class"]["p"].isna().all()
    assert tests.loc["none"]["p"].isna().all()


def test_nothing_run_gives_empty_tables():
    assert overlap.memberships({}).empty
    pairs = overlap.seed_overlap({})
    assert pairs.empty
    assert overlap.over_seeds(pairs).empty
    assert overlap.by_seed(pairs).empty
    assert (overlap.paper_rows(overlap.over_seeds(pairs))["edge overlap"] == "not run").all()
