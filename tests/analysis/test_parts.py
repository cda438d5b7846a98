"""Parts are told apart as the names of edges and parameters tell them."""

import pandas as pd
import torch

from discogp_lib.analysis.parts import (
    edge_parts,
    edge_table,
    kept_edges,
    kept_weights,
    weight_parts,
)
from discogp_lib.layout import Layout


def test_the_edge_table_says_what_the_names_of_edges_say(layout: Layout):
    table = edge_table(layout.graph)
    heads = table["input"].isin(["q", "k", "v"])
    receivers = table["receiver"].where(~heads, table["receiver"] + "<" + table["input"] + ">")
    assert tuple(table["sender"] + "->" + receivers) == layout.graph.edges
    for row in table.itertuples():
        assert row.sender_kind == {"i": "input", "a": "head", "m": "mlp"}[row.sender[0]]
        expected = -1 if row.sender == "input" else int(row.sender[1:].split(".")[0])
        assert row.sender_layer == expected
        last = layout.n_layers
        layer = last if row.receiver == "logits" else int(row.receiver[1:].split(".")[0])
        assert row.layer == layer


def test_every_weight_is_in_one_part_of_its_own_parameter(layout: Layout):
    parts = weight_parts(layout)
    assert parts.table["available"].sum() == layout.n_weights
    counts = torch.bincount(parts.index, minlength=len(parts.table))
    assert counts.tolist() == parts.table["available"].tolist()
    # Fill each parameter's mask in turn: only its layer and its kind of node may be counted.
    start = 0
    for name, shape in layout.weight_shapes.items():
        mask = torch.zeros(layout.n_weights, dtype=torch.bool)
        size = int(torch.tensor(shape).prod())
        mask[start : start + size] = True
        start += size
        hit = parts.table[parts.count(mask).numpy() > 0]
        assert set(hit["layer"]) == {int(next(p for p in name.split(".") if p.isdigit()))}
        assert set(hit["kind"]) == {"mlp" if ".mlp." in name else "attention"}
        assert hit["available"].sum() == size


def test_gpt2_key_weights_of_a_head_are_its_columns_of_c_attn(tiny_gpt2: Layout):
    layout = tiny_gpt2
    masks = {n: torch.zeros(s, dtype=torch.bool) for n, s in layout.weight_shapes.items()}
    d, h = layout.d_model, layout.d_head
    masks["transformer.h.1.attn.c_attn.weight"][:, d + h : d + 2 * h] = True  # keys of head 1
    parts = weight_parts(layout)
    counts = parts.count(torch.cat([m.flatten() for m in masks.values()]))
    hit = parts.table[counts.numpy() > 0]
    assert hit[["layer", "parameter", "head"]].values.tolist() == [[1, "w_k", 1]]


def test_edge_parts_never_leave_an_edge_of_many_alone(layout: Layout):
    parts = edge_parts(layout.graph)
    assert parts.table["available"].sum() == layout.graph.n_edges
    alone = parts.table[parts.table["available"] == 1]
    # Alone is only the embedding's edge into an MLP or into the logits.
    assert set(alone["sender"]) == {"layer -1"}
    edges = edge_table(layout.graph).assign(part=parts.index.numpy())
    for _, group in edges.groupby("part"):
        assert group["layer"].nunique() == group["sender_layer"].nunique() == 1
        if group["input"].isin(["q", "k", "v"]).all():
            assert group["sender"].nunique() == 1
        else:
            assert group["receiver"].nunique() == 1


def test_kept_counts_add_up_to_the_sheaf(layout: Layout, random_sheaf):
    sheaf = random_sheaf(layout, 1)
    assert kept_weights(sheaf)["kept"].sum() == sheaf.kept_weights
    kept = kept_edges(sheaf)
    assert len(kept) == sheaf.kept_edges
    assert isinstance(kept, pd.DataFrame)
