"""What a drawing of a sheaf shows, and where: the same place for the same node in every figure.

Layers run from left to right and heads from top to bottom; a layer's MLP lies in a row of its
own below the heads, half a column to the right, because it reads from them. The `input` is at
the left end of that row and the `logits` at its right end. Coordinates are in columns and rows;
the viewer and the figures scale them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from discogp_lib.analysis.parts import SHARED_BY_GROUP, kept_edges, kept_weights
from discogp_lib.layout import Layout
from discogp_lib.sheaf import Sheaf

INPUT_COLOURS = {
    "q": "#0072B2",
    "k": "#E69F00",
    "v": "#009E73",
    "mlp": "#D55E00",
    "logits": "#CC79A7",
}
"""The colour of an edge by the input it ends in (Okabe and Ito)."""

INPUT_NAMES = {"q": "query", "k": "key", "v": "value", "mlp": "MLP", "logits": "logits"}

STRONG = 100
"""So many of the edges are drawn opaque, those between the nodes that keep most; the rest faint."""

MLP_GAP = 0.9
"""Rows between the last head and the MLPs, beyond one."""


def places(layout: Layout) -> dict[str, tuple[float, float]]:
    """Column and row of every node."""
    bottom = layout.n_heads + MLP_GAP
    found = {"input": (-1.0, bottom), "logits": (layout.n_layers + 0.5, bottom)}
    for layer in range(layout.n_layers):
        found |= {f"a{layer}.h{h}": (float(layer), float(h)) for h in range(layout.n_heads)}
        found[f"m{layer}"] = (layer + 0.5, bottom)
    return found


def nodes(sheaf: Sheaf) -> pd.DataFrame:
    """Every node: where it is drawn, what it keeps, and how many kept edges it has.

    Columns: `node`, `kind` (input, head, mlp, logits), `layer`, `head`, `x`, `y`, `kept` and
    `available` (weights; a head's are its queries and outputs and the keys and values it uses;
    the output bias, which a layer's heads share, is left out), `share`, `edges_in`, `edges_out`.
    """
    layout = sheaf.layout
    counts = _weights_of_nodes(sheaf)
    edges = edge_rows(sheaf)
    incoming, outgoing = edges["receiver"].value_counts(), edges["sender"].value_counts()
    rows = []
    for name, (x, y) in places(layout).items():
        kind = {"i": "input", "l": "logits", "a": "head", "m": "mlp"}[name[0]]
        kept, available = counts.get(name, (0, 0))
        rows.append(
            {
                "node": name,
                "kind": kind,
                "layer": {"input": -1, "logits": layout.n_layers}.get(name, int(x)),
                "head": int(y) if kind == "head" else -1,
                "x": x,
                "y": y,
                "kept": int(kept),
                "available": int(available),
                "share": kept / available if available else np.nan,
                "edges_in": int(incoming.get(name, 0)),
                "edges_out": int(outgoing.get(name, 0)),
            }
        )
    return pd.DataFrame(rows)


def _weights_of_nodes(sheaf: Sheaf) -> dict[str, tuple[int, int]]:
    """Kept and available weights of every head and MLP."""
    layout, table = sheaf.layout, kept_weights(sheaf)
    sums: dict[tuple[str, int, int], np.ndarray] = {}
    rows = zip(table["parameter"], table["layer"], table["head"], strict=True)
    for (parameter, layer, head), pair in zip(
        rows, table[["kept", "available"]].to_numpy(), strict=True
    ):
        group = "kv" if parameter in SHARED_BY_GROUP else "b_o" if parameter == "b_o" else "own"
        key = (group, layer, head)
        sums[key] = sums.get(key, 0) + pair
    counts = {f"m{layer}": sums["own", layer, -1] for layer in range(layout.n_layers)}
    for layer in range(layout.n_layers):
        for head in range(layout.n_heads):
            shared = sums["kv", layer, head * layout.n_kv_heads // layout.n_heads]
            counts[f"a{layer}.h{head}"] = sums["own", layer, head] + shared
    return {node: (int(kept), int(available)) for node, (kept, available) in counts.items()}


def edge_rows(sheaf: Sheaf) -> pd.DataFrame:
    """The kept edges (columns of `parts.edge_table`), with the name of each as `edge`.

    Where heads share keys and values, an edge into a key/value head is drawn to its first head.
    """
    names = pd.Series(sheaf.edges, dtype=object)
    edges = kept_edges(sheaf)
    shared = edges["receiver"].str.contains("kv")
    if shared.any():
        per_group = sheaf.layout.n_heads // sheaf.layout.n_kv_heads
        parts = edges["receiver"][shared].str.split(".kv", expand=True, regex=False)
        first = (parts[1].astype(int) * per_group).astype(str)
        edges.loc[shared, "receiver"] = parts[0] + ".h" + first
    return edges.assign(edge=names)


def edges(sheaf: Sheaf, strong: int = STRONG) -> pd.DataFrame:
    """The kept edges with `strong`: whether an edge is drawn opaque.

    A mask does not say how much an edge matters. The opaque ones are those between the nodes
    that keep the largest shares of their weights and, where these are equal, the most edges.
    """
    table, drawn = edge_rows(sheaf), nodes(sheaf).set_index("node")
    share = drawn["share"].fillna(drawn["share"].max())
    degree = drawn["edges_in"] + drawn["edges_out"]
    rank = pd.DataFrame(
        {
            name: table["sender"].map(values) * table["receiver"].map(values)
            for name, values in (("share", share), ("degree", degree))
        }
    ).sort_values(["share", "degree"], ascending=False, kind="stable")
    return table.assign(strong=table.index.isin(rank.index[:strong]))


def compare(sheaves: Mapping[str, Sheaf]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes and edges of two sheaves together, for a drawing that tells them apart.

    The nodes carry `share_a` and `share_b`; every edge of either says in `where` whether it is
    in the first only ("a"), in the second only ("b") or in "both".
    """
    a, b = sheaves.values()
    edge_tables = []
    for where, part in (("a", a - b), ("b", b - a), ("both", a & b)):
        edge_tables.append(edge_rows(part).assign(where=where))
    share_a, share_b = nodes(a)["share"], nodes(b)["share"]
    table = nodes(a | b).assign(share_a=share_a, share_b=share_b)
    return table, pd.concat(edge_tables, ignore_index=True)
