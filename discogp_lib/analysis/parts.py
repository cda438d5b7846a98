"""The parts of a model that edges and weights belong to, and how much of each a sheaf keeps.

Three analyses and the drawings count the same things: by layer, by node, by kind of input. The
counting is done once, here. A **part** of the weights is one parameter of one head (or of one
MLP); a part of the edges is what one sender sends to the heads of one layer, or what one layer
sends to one MLP or to the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from discogp_lib.graph import Graph
from discogp_lib.layout import Block, Layout, unflatten
from discogp_lib.sheaf import Sheaf

Kind = Literal["edges", "weights"]
KINDS: tuple[Kind, Kind] = ("edges", "weights")

Found = Mapping[str, Mapping[int, Sheaf]]
"""Sheaves by task and seed; a task may lack seeds that others have."""

PER_HEAD = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v")
"""Parameters of which every head, or every key/value head, has its own."""
KIND_OF = {"a": "head", "m": "mlp"}
"""What the first letter of a sender's name says."""

SHARED_BY_GROUP = ("w_k", "w_v", "b_k", "b_v")
"""Those of which every key/value head has its own."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A partition of all edges or of all weights."""

    table: pd.DataFrame
    """One row per part, with the column `available`: how many edges or weights it has."""
    index: Shaped[Tensor, " entry"]
    """The part (row of `table`) that each edge or weight belongs to."""

    @cached_property
    def order(self) -> Int[Tensor, " entry"]:
        """All entries, part by part; kept, because sorting all weights takes long."""
        return torch.sort(self.index, stable=True).indices.int()

    def count(self, mask: Bool[Tensor, " entry"]) -> Int[Tensor, " part"]:
        """How many entries of a mask are on in each part."""
        return torch.bincount(self.index[mask], minlength=len(self.table))


@lru_cache(maxsize=4)
def weight_parts(layout: Layout) -> Parts:
    """Every parameter of every head and MLP; the output bias of a layer's heads is one part.

    Columns: `layer`, `kind` (attention or mlp), `parameter` (a field of `layout.Block`), `head`
    (-1 where there is none; of keys and values, the key/value head), `available`.
    """
    index = torch.empty(layout.n_weights, dtype=torch.int16)
    views = unflatten(index, layout)
    rows: list[tuple[int, str, str, int, int]] = []
    for layer in range(layout.n_layers):
        block = layout.block(views, layer)
        for name in (field.name for field in fields(Block)):
            view = getattr(block, name)
            if view is None:
                continue
            kind = "attention" if name in (*PER_HEAD, "b_o") else "mlp"
            for head, part in enumerate(view) if name in PER_HEAD else [(-1, view)]:
                part.fill_(len(rows))
                rows.append((layer, kind, name, head, part.numel()))
    columns = ["layer", "kind", "parameter", "head", "available"]
    return Parts(pd.DataFrame(rows, columns=columns), index)


@lru_cache(maxsize=4)
def edge_table(graph: Graph) -> pd.DataFrame:
    """Every edge with its two ends, in the order of `graph.edges`.

    Columns: `sender`, `sender_kind` (input, head or mlp), `sender_layer` (-1 for the input),
    `receiver` (the node without the kind of input: `a5.h2`, `a5.kv1`, `m3`, `logits`),
    `input` (q, k, v, mlp or logits), `layer` (the receiver's).
    """
    senders = np.array(graph.senders)
    layers = np.array([graph.layer_of_sender(i) for i in range(graph.n_senders)])
    kinds = np.array(["input" if name == "input" else KIND_OF[name[0]] for name in graph.senders])
    parts = []
    for group in graph.groups:
        names = [name.split("<")[0] for name in group.receivers]
        inputs = [n.split("<")[1][0] if "<" in n else group.kind for n in group.receivers]
        n = group.n_senders
        parts.append(
            pd.DataFrame(
                {
                    "sender": np.tile(senders[:n], len(names)),
                    "sender_kind": np.tile(kinds[:n], len(names)),
                    "sender_layer": np.tile(layers[:n], len(names)),
                    "receiver": np.repeat(names, n),
                    "input": np.repeat(inputs, n),
                    "layer": group.layer,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


@lru_cache(maxsize=4)
def edge_parts(graph: Graph) -> Parts:
    """Edges from one sender into the heads of one layer, or from one layer into an MLP or logits.

    A single edge would be a part in which nothing is left to chance; so receivers that are alone
    in their layer are matched by the sender's layer and not by the sender. Columns: `layer`,
    `input` (heads, mlp or logits), `sender`, `available`.
    """
    edges = edge_table(graph)
    into_heads = edges["input"].isin(["q", "k", "v"])
    keys = pd.DataFrame(
        {
            "layer": edges["layer"],
            "input": edges["input"].where(~into_heads, "heads"),
            "sender": edges["sender"].where(
                into_heads, "layer " + edges["sender_layer"].astype(str)
            ),
        }
    )
    groups = keys.groupby(list(keys.columns), sort=False)
    table = groups.size().rename("available").reset_index()
    return Parts(table, torch.tensor(groups.ngroup().to_numpy()))


def parts_of(layout: Layout, kind: Kind) -> Parts:
    """The partition of the edges or of the weights of a model."""
    return edge_parts(layout.graph) if kind == "edges" else weight_parts(layout)


def flat_mask(sheaf: Sheaf, kind: Kind) -> Bool[Tensor, " entry"]:
    """The edge mask, or all weight masks as one vector."""
    return sheaf.edge_mask if kind == "edges" else sheaf.flat_weight_mask


def kept_weights(sheaf: Sheaf) -> pd.DataFrame:
    """The table of `weight_parts` with a column `kept`."""
    parts = weight_parts(sheaf.layout)
    return parts.table.assign(kept=parts.count(sheaf.flat_weight_mask).numpy())


def kept_edges(sheaf: Sheaf) -> pd.DataFrame:
    """The rows of `edge_table` that a sheaf keeps."""
    return edge_table(sheaf.layout.graph)[sheaf.edge_mask.numpy()].reset_index(drop=True)
