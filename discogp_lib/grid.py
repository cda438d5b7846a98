"""What a drawing of a sheaf shows, and where: the same place for the same node in every figure.

Layers run from left to right and heads from top to bottom; a layer's MLP lies in a row of its
own below the heads, half a column to the right, because it reads from them. The `input` is at
the left end of that row and the `logits` at its right end. Coordinates are those of a picture
`WIDTH` units wide with y downwards; the viewer takes them as pixels, the figures scale them.
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

WIDTH, ROW = 1000, 34
TOP, SIDE, BOTTOM = 52, 34, 56
"""Space around the nodes, for labels."""
MLP_GAP = 0.9
"""Rows between the last head and the MLPs, beyond one."""
RADIUS = 13.0
"""Of the node that keeps the largest share of its weights, where columns are wide enough."""
BOW = 40
"""How far an edge within a row may bow, so as not to run through the nodes between."""


def column_width(layout: Layout) -> float:
    """Distance between two layers."""
    return (WIDTH - 2 * SIDE) / (layout.n_layers + 1.5)


def height(layout: Layout) -> int:
    """Height of the picture."""
    return round(TOP + (layout.n_heads + MLP_GAP) * ROW + BOTTOM)


def places(layout: Layout) -> dict[str, tuple[int, int]]:
    """x and y of every node."""
    bottom = layout.n_heads + MLP_GAP
    cells = {"input": (-1.0, bottom), "logits": (layout.n_layers + 0.5, bottom)}
    for layer in range(layout.n_layers):
        cells |= {f"a{layer}.h{h}": (float(layer), float(h)) for h in range(layout.n_heads)}
        cells[f"m{layer}"] = (layer + 0.5, bottom)
    column = column_width(layout)
    return {
        name: (round(SIDE + (x + 1) * column), round(TOP + y * ROW))
        for name, (x, y) in cells.items()
    }


def labels(layout: Layout) -> list[tuple[int, int, str]]:
    """Names of rows and columns, and where they stand; every fifth where layers are many."""
    at, step = places(layout), 1 if column_width(layout) >= 36 else 5
    (left, bottom), top = at["input"], TOP - ROW
    texts = [(left, top, "layer")]
    texts += [(at[f"a{n}.h0"][0], top, str(n)) for n in range(0, layout.n_layers, step)]
    texts += [(left, at[f"a0.h{h}"][1], f"h{h}") for h in range(layout.n_heads)]
    under = [f"m{n}" for n in range(0, layout.n_layers, step)]
    texts += [(at[node][0], bottom + BOW + 6, node) for node in ("input", *under, "logits")]
    return texts


def nodes(sheaf: Sheaf) -> pd.DataFrame:
    """Every node: where it is drawn, what it keeps, and how many kept edges it has.

    Columns: `node`, `kind` (input, head, mlp, logits), `layer`, `head`, `x`, `y`, `radius` (the
    area grows with the share of weights kept, the largest in the sheaf is `largest_radius`),
    `kept` and
    `available` (weights; a head's are its queries and outputs and the keys and values it uses;
    the output bias, which a layer's heads share, is left out), `share`, `edges_in`, `edges_out`.
    """
    layout = sheaf.layout
    counts = _weights_of_nodes(sheaf)
    edges = edge_rows(sheaf)
    incoming, outgoing = edges["receiver"].value_counts(), edges["sender"].value_counts()
    layers = {"input": -1, "logits": layout.n_layers}
    rows = []
    for name, (x, y) in places(layout).items():
        kind = {"i": "input", "l": "logits", "a": "head", "m": "mlp"}[name[0]]
        kept, available = counts.get(name, (0, 0))
        rows.append(
            {
                "node": name,
                "kind": kind,
                "layer": layers[name] if name in layers else int(name[1:].split(".")[0]),
                "head": int(name.split("h")[1]) if kind == "head" else -1,
                "x": x,
                "y": y,
                "kept": kept,
                "available": available,
                "share": kept / available if available else np.nan,
                "edges_in": int(incoming.get(name, 0)),
                "edges_out": int(outgoing.get(name, 0)),
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(radius=_radii(table, largest_radius(layout)))


def largest_radius(layout: Layout) -> float:
    """Radius of the largest node and of the ring that every node has."""
    return min(RADIUS, 0.42 * column_width(layout))


def _radii(table: pd.DataFrame, largest: float) -> pd.Series:
    """Area by share of kept weights; input and logits have none and show if they have edges."""
    by_share = largest * (table["share"] / (table["share"].max() or 1.0)) ** 0.5
    linked = (table["edges_in"] + table["edges_out"]) > 0
    return by_share.fillna(0.5 * largest * linked)


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

    `x0`, `y0` to `x3`, `y3` are the four points of its Bezier curve. Where heads share keys and
    values, an edge into a key/value head is drawn to its first head.
    """
    names = pd.Series(sheaf.edges, dtype=object)
    edges = kept_edges(sheaf)
    shared = edges["receiver"].str.contains("kv")
    if shared.any():
        per_group = sheaf.layout.n_heads // sheaf.layout.n_kv_heads
        parts = edges["receiver"][shared].str.split(".kv", expand=True, regex=False)
        first = (parts[1].astype(int) * per_group).astype(str)
        edges.loc[shared, "receiver"] = parts[0] + ".h" + first
    return _with_curves(edges.assign(edge=names), places(sheaf.layout))


def _with_curves(edges: pd.DataFrame, at: dict[str, tuple[int, int]]) -> pd.DataFrame:
    """The points of each edge's curve: level at both ends, and bowed within a row."""
    start = np.array([at[name] for name in edges["sender"]], dtype=float).reshape(-1, 2)
    end = np.array([at[name] for name in edges["receiver"]], dtype=float).reshape(-1, 2)
    end[:, 1] += np.array([{"q": -5.0, "v": 5.0}.get(name, 0.0) for name in edges["input"]])
    across, down = (end - start).T
    below = edges["sender_kind"].ne("head").to_numpy()
    bow = np.minimum(BOW, 0.22 * across) * np.where(below, 1, -1) * (np.abs(down) <= 10)
    return edges.assign(
        x0=start[:, 0],
        y0=start[:, 1],
        x1=(start[:, 0] + 0.4 * across).round(),
        y1=(start[:, 1] + bow).round(),
        x2=(start[:, 0] + 0.6 * across).round(),
        y2=(end[:, 1] + bow).round(),
        x3=end[:, 0],
        y3=end[:, 1],
    )


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
            name: values[table["sender"]].to_numpy() * values[table["receiver"]].to_numpy()
            for name, values in (("share", share), ("degree", degree))
        }
    ).sort_values(["share", "degree"], ascending=False, kind="stable")
    return table.assign(strong=table.index.isin(rank.index[:strong]))


def node_shares(sheaves: Mapping[str, Mapping[int, Sheaf]]) -> pd.DataFrame:
    """What every node keeps, mean over seeds, for many tasks.

    sheaves: by task and seed. Columns: `task`, `node`, `kind`, `layer`, `head`, `share`, `edges`
    (kept edges that begin or end there).
    """
    columns = ["task", "node", "kind", "layer", "head"]
    tables = [nodes(s).assign(task=task) for task, found in sheaves.items() for s in found.values()]
    if not tables:
        return pd.DataFrame(columns=[*columns, "share", "edges"])
    table = pd.concat(tables)
    table["edges"] = table["edges_in"] + table["edges_out"]
    return table.groupby(columns, sort=False)[["share", "edges"]].mean().reset_index()


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
