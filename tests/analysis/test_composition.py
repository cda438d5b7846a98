"""Unions and their controls, on a tiny model whose answers are looked up one by one."""

import numpy as np
import pandas as pd
import pytest
import torch

import discogp_lib as dgp
from discogp_lib.analysis import composition
from discogp_lib.analysis.chance import by_part, uniform
from discogp_lib.analysis.parts import parts_of
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import evaluate
from discogp_lib.layout import unflatten
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split

TASKS = ("AGA", "ANA", "DNA")


@pytest.fixture(scope="module")
def model(tiny_gpt2_dir):
    return dgp.load_model(tiny_gpt2_dir)


def random_split(seed: int) -> Split:
    noise = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, 18, (20, 5), generator=noise)
    return Split(
        prompts=tuple(f"prompt {i}" for i in range(20)),
        tokens=tokens,
        corrupted=tokens,
        lengths=torch.full((20,), 5),
        labels=torch.tensor([[3, 4]]).repeat(20, 1),
        targets=torch.randint(0, 2, (20,), generator=noise),
        groups=torch.zeros(20, dtype=torch.int64),
    )


def make_sheaf(model, seed: int) -> Sheaf:
    noise = torch.Generator().manual_seed(seed)
    full = Sheaf.full(model)
    return Sheaf(
        full.layout,
        full.model_name,
        full.checkpoint_sha256,
        torch.rand(full.n_edges, generator=noise) < 0.3,
        unflatten(torch.rand(full.n_weights, generator=noise) < 0.3, full.layout),
    )


@pytest.fixture(scope="module")
def sheaves(model):
    return {t: {s: make_sheaf(model, 10 * i + s) for s in range(2)} for i, t in enumerate(TASKS)}


@pytest.fixture(scope="module")
def splits():
    return {t: {s: random_split(10 * i + s) for s in range(2)} for i, t in enumerate(TASKS)}


@pytest.fixture(scope="module")
def table(model, sheaves, splits):
    return composition.composition_table(model, sheaves, splits, sizes=(2, 3), draws=2)


def test_every_union_is_evaluated_on_the_columns_task(model, sheaves, splits, table):
    composed = table[table["kind"] == "composed"]
    assert len(composed) == 2 * 3 * (2 + 1)
    for row in composed.itertuples():
        union = sheaves[row.task][row.seed]
        for name in row.joined.split(" + "):
            union = union | sheaves[name][row.seed]
        expected = evaluate(model, union, splits[row.task][row.seed])
        assert row.accuracy == pytest.approx(expected.accuracy)
        assert (row.low, row.high) == pytest.approx((expected.accuracy_low, expected.accuracy_high))
        assert (row.edges, row.weights) == (union.kept_edges, union.kept_weights)
        assert row.live_edges == union.pruned().kept_edges
    for kind, which in (("original", lambda s: s), ("full model", lambda s: Sheaf.full(model))):
        for row in table[table["kind"] == kind].itertuples():
            expected = evaluate(
                model, which(sheaves[row.task][row.seed]), splits[row.task][row.seed]
            )
            assert row.accuracy == pytest.approx(expected.accuracy)


def test_controls_have_the_size_of_the_union(table):
    keys = ["seed", "task", "joined"]
    sizes = table[table["size"] > 1].groupby(keys)[["edges", "weights"]].nunique()
    assert (sizes == 1).all().all()
    counts = table["kind"].value_counts()
    assert counts["random"] == counts["matched"] == 2 * counts["composed"]


def test_controls_add_to_the_sheaf_what_it_lacks(sheaves):
    alone, added = sheaves["AGA"][0], sheaves["ANA"][0] - sheaves["AGA"][0]
    for draw in (uniform(np.random.default_rng(0)), by_part(np.random.default_rng(0))):
        joined = composition.join_random(alone, added, draw)
        assert alone - joined == alone & ~alone
        assert joined.kept_edges == alone.kept_edges + added.kept_edges
        assert joined.kept_weights == alone.kept_weights + added.kept_weights
    new = joined - alone  # of the draw part by part
    for kind in ("edges", "weights"):
        parts = parts_of(alone.layout, kind)
        masks = [s.edge_mask if kind == "edges" else s.flat_weight_mask for s in (new, added)]
        assert torch.equal(*[parts.count(mask) for mask in masks])


def test_differences_are_paired_and_averaged_over_seeds(table):
    changes = composition.differences(table)
    assert len(changes) == 2 * 3 * 3
    row = changes[(changes["task"] == "DNA") & (changes["joined"] == "AGA")]
    for one in row.itertuples():
        mine = table[(table["seed"] == one.seed) & (table["task"] == "DNA")]
        original = mine[mine["kind"] == "original"]["accuracy"].item()
        pair = mine[mine["joined"] == "AGA"].groupby("kind")["accuracy"].mean()
        assert one.change == pytest.approx(pair["composed"] - original)
        assert one.over_random == pytest.approx(pair["composed"] - pair["random"])
        assert one.over_matched == pytest.approx(pair["composed"] - pair["matched"])
    means = composition.over_seeds(changes)
    mean = means[(means["task"] == "DNA") & (means["joined"] == "AGA")].iloc[0]
    assert mean["change"] == pytest.approx(row["change"].mean())
    half = 12.706205 * row["change"].std() / 2**0.5  # Student's t with one degree of freedom
    assert mean["change_high"] - mean["change"] == pytest.approx(half, rel=1e-4)
    assert mean["n_seeds"] == 2


def test_the_papers_table_has_the_sheaf_alone_in_its_last_row(table):
    rows = composition.paper_rows(table).set_index("joined with")
    assert rows.index.tolist() == [*TASKS, "original"]
    assert rows.columns.tolist() == list(TASKS)
    assert all(np.isnan(rows.loc[task, task]) for task in TASKS)
    alone = table[(table["kind"] == "original") & (table["task"] == "ANA")]["accuracy"].mean()
    assert rows.loc["original", "ANA"] == pytest.approx(100 * alone)


def test_intervals_are_written_out_for_readers(table):
    means = composition.over_seeds(composition.differences(table))
    shown = composition.with_intervals(means)
    one = means.iloc[0]
    interval = f"[{100 * one['change_low']:+.1f}, {100 * one['change_high']:+.1f}]"
    assert shown["joined minus alone"][0] == f"{100 * one['change']:+.1f} {interval}"
    alone = composition.over_seeds(composition.differences(table[table["seed"] == 0]))
    assert "[" not in composition.with_intervals(alone)["joined minus alone"][0]


def test_means_by_size_are_over_everything_else(table):
    means = composition.by_size(table)
    kinds = ["full model", "original", *["composed", "random", "matched"] * 2]
    assert means["kind"].tolist() == kinds
    assert means["size"].tolist() == [0, 1, 2, 2, 2, 3, 3, 3]
    random = table[(table["size"] == 2) & (table["kind"] == "random")]
    assert means["accuracy"][3] == pytest.approx(random["accuracy"].mean())
    assert means["n"][3] == len(random)


def test_the_same_seed_draws_the_same_controls(model, sheaves, splits, table):
    again = composition.composition_table(model, sheaves, splits, sizes=(2, 3), draws=2)
    assert again.equals(table)


def test_one_task_can_be_judged_alone(model, sheaves, splits, table):
    alone = composition.composition_table(model, sheaves, splits, on=["AGA"], sizes=(2, 3), draws=2)
    assert alone.equals(table[table["task"] == "AGA"].reset_index(drop=True))
    assert set(alone["task"]) == {"AGA"}


def test_some_of_the_larger_unions_can_be_drawn(model, sheaves, splits, table):
    four = {task: {0: found[0]} for task, found in sheaves.items()} | {"IOI": sheaves["AGA"]}
    prompts = splits | {"IOI": splits["AGA"]}
    some = composition.composition_table(model, four, prompts, sizes=(2, 3), unions=1)
    composed = some[(some["kind"] == "composed") & (some["seed"] == 0)]
    assert composed["size"].value_counts().to_dict() == {2: 4 * 3, 3: 4 * 1}
    keys = ["seed", "task", "joined", "accuracy"]
    known = composed[composed["size"].eq(2) & ~composed["joined"].eq("IOI")]
    known = known[known["task"] != "IOI"]
    assert len(known[keys].merge(table[table["kind"] == "composed"][keys])) == len(known) == 6


def test_gaps_stay_gaps(model, sheaves, splits, table):
    """A task without a seed is not joined there; what remains is what it was."""
    fewer = sheaves | {"ANA": {0: sheaves["ANA"][0]}}
    some = composition.composition_table(model, fewer, splits, sizes=(2, 3), draws=2)
    at_one = some[some["seed"] == 1]
    assert set(at_one["task"]) == {"AGA", "DNA"}
    assert set(at_one["joined"]) == {"", "AGA", "DNA"}
    assert len(some.merge(table)) == len(some)
    rows = composition.paper_rows(some, tasks=["AGA", "DNA", "IOI"]).set_index("joined with")
    assert rows["IOI"].isna().all()
    assert rows.loc["IOI"].isna().all()
    assert rows.loc["AGA", "DNA"] > 0


def test_nothing_joined_is_an_empty_table(model):
    table = composition.composition_table(model, {}, {})
    means = composition.over_seeds(composition.differences(table))
    assert table.empty
    assert means.empty
    assert "change_low" in means


def test_an_empty_table_can_be_put_under_another(model, table):
    both = pd.concat([table, composition.composition_table(model, {}, {})], ignore_index=True)
    pd.testing.assert_frame_equal(both, table)


def test_a_memory_spares_evaluations_until_a_sheaf_changes(
    model, sheaves, splits, table, tmp_path, monkeypatch
):
    path = tmp_path / "memory.jsonl"
    options = {"sizes": (2, 3), "draws": 2, "memory": path}
    assert composition.composition_table(model, sheaves, splits, **options).equals(table)
    path.write_text(path.read_text() + '{"key": "unfinish')
    counted = []
    real = composition.label_logits
    monkeypatch.setattr(composition, "label_logits", lambda *a: counted.append(a) or real(*a))
    assert composition.composition_table(model, sheaves, splits, **options).equals(table)
    assert counted == []
    changed = sheaves | {"DNA": sheaves["DNA"] | {0: make_sheaf(model, 99)}}
    composition.composition_table(model, changed, splits, **options)
    # Seed 0: all of DNA's own (2 + 2 x 5 + 5), and with DNA joined AGA's and ANA's (2 x 5 each).
    assert len(counted) == 17 + 2 * 10


def test_mistakes_are_told(model, sheaves, splits):
    with pytest.raises(ConfigError, match="no prompts for DNA seed 0, DNA seed 1"):
        composition.composition_table(model, sheaves, {t: splits[t] for t in TASKS[:2]})
    with pytest.raises(ConfigError, match="Two sheaves or more"):
        composition.composition_table(model, sheaves, splits, sizes=(1,))
