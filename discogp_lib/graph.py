"""The vocabulary: nodes, edges, their names and counts, and which of them can reach the logits.

A transformer is unrolled into a graph. **Senders** write into the residual stream: the embedding
(`input`), every attention head (`a3.h0`) and every MLP (`m3`). **Receivers** read from it: the
query, key and value input of every head (`a3.h0<q>`), every MLP (`m3`) and the `logits`. An
**edge** such as `a0.h1->a5.h2<q>` carries one sender's output into one receiver's sum.

Where several query heads share a key/value head (grouped-query attention), edges into keys and
values are counted once per *key/value head* and named after it: `m2->a5.kv1<k>`. With as many
key/value heads as query heads they carry the head's own name.

With S(l) = 1 + l(H+1) senders before layer l there are

    sum over layers of (H + 2 KV) S(l) + S(l) + H   edges into heads and MLPs, and
    S(L)                                            edges into the logits:

32,491 for GPT-2 small (L = H = KV = 12) and 70,651 for SmolLM2-135M (L = 30, H = 9, KV = 3).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

Kind = Literal["heads", "mlp", "logits"]


@dataclass(frozen=True)
class Group:
    """Receivers that read at the same point of the network, from the same senders.

    Their edges lie in one block of the edge mask, `mask[start:stop]`, which viewed as
    (receivers, senders) is the matrix that mixes senders into receivers.
    """

    kind: Kind
    layer: int
    """Layer of the receivers; `n_layers` for the logits."""
    receivers: tuple[str, ...]
    n_senders: int
    """The first `n_senders` senders of the graph can be read here."""
    start: int
    followed: bool = False
    """Whether the edges of the same layer's MLP lie right behind these."""

    @property
    def stop(self) -> int:
        """One past the group's last edge."""
        return self.start + len(self.receivers) * self.n_senders

    @property
    def shape(self) -> tuple[int, int]:
        """(receivers, senders)."""
        return len(self.receivers), self.n_senders

    def matrix(self, values: Tensor) -> Tensor:
        """The group's part of a vector over edges (..., edges), as (..., receivers, senders)."""
        return values[..., self.start : self.stop].unflatten(-1, self.shape)

    def matrix_ahead(self, values: Tensor) -> Tensor:
        """The same with one row more: what the MLP that follows reads of the same senders.

        (..., receivers + 1, senders), still a view: the MLP's first edges are from these senders.
        """
        n_receivers, n_senders = self.shape
        stop = self.stop + n_senders
        return values[..., self.start : stop].unflatten(-1, (n_receivers + 1, n_senders))

    def part(self, first: int, stop: int) -> "Group":
        """Some of the group's receivers, still one block of the edge mask."""
        start = self.start + first * self.n_senders
        receivers = self.receivers[first:stop]
        return replace(self, receivers=receivers, start=start, followed=False)


@dataclass(frozen=True)
class Graph:
    """The computation graph of a transformer with split query, key and value inputs."""

    n_layers: int
    n_heads: int
    n_kv_heads: int

    def first_sender(self, layer: int) -> int:
        """Index of the first sender of a layer, which is also the number of senders before it."""
        return 1 + layer * (self.n_heads + 1)

    def head(self, layer: int, head: int) -> int:
        """Sender index of an attention head."""
        return self.first_sender(layer) + head

    def mlp(self, layer: int) -> int:
        """Sender index of an MLP."""
        return self.first_sender(layer) + self.n_heads

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """Names of all senders, in the order in which they write."""
        names = ["input"]
        for layer in range(self.n_layers):
            names += [f"a{layer}.h{head}" for head in range(self.n_heads)] + [f"m{layer}"]
        return tuple(names)

    @property
    def n_senders(self) -> int:
        """1 + L (H + 1)."""
        return self.first_sender(self.n_layers)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every sender, and the logits: 158 for GPT-2 small."""
        return (*self.senders, "logits")

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All receivers, group by group, in the order in which they read."""
        groups: list[Group] = []
        start = 0
        shared = self.n_kv_heads != self.n_heads
        for layer in range(self.n_layers + 1):
            before = self.first_sender(layer)
            if layer == self.n_layers:
                reads: list[tuple[Kind, list[str], int]] = [("logits", ["logits"], before)]
            else:
                kv = "kv" if shared else "h"
                heads = [f"a{layer}.h{i}<q>" for i in range(self.n_heads)] + [
                    f"a{layer}.{kv}{i}<{x}>" for x in "kv" for i in range(self.n_kv_heads)
                ]
                reads = [
                    ("heads", heads, before),
                    ("mlp", [f"m{layer}"], before + self.n_heads),
                ]
            for kind, names, n_senders in reads:
                group = Group(kind, layer, tuple(names), n_senders, start, kind == "heads")
                groups.append(group)
                start = groups[-1].stop
        return tuple(groups)

    def group(self, kind: Kind, layer: int) -> Group:
        """The receivers of one kind in one layer (for the logits the layer is `n_layers`)."""
        return self.groups[2 * layer + (kind == "mlp")]

    @property
    def n_edges(self) -> int:
        """Number of edges, the denominator of every edge density."""
        return self.groups[-1].stop

    @cached_property
    def edges(self) -> tuple[str, ...]:
        """Names of all edges, in the order of every edge mask."""
        return tuple(
            f"{sender}->{receiver}"
            for group in self.groups
            for receiver in group.receivers
            for sender in self.senders[: group.n_senders]
        )

    @cached_property
    def edge_index(self) -> dict[str, int]:
        """Position of each edge name in an edge mask."""
        return {name: i for i, name in enumerate(self.edges)}

    def live_senders(self, edge_mask: Bool[Tensor, " edge"]) -> Bool[Tensor, " sender"]:
        """Senders with a path of kept edges to the logits (the paper's reverse search)."""
        live = torch.zeros(self.n_senders, dtype=torch.bool)
        for group in reversed(self.groups):
            readers = self.live_receivers(group, live)
            live[: group.n_senders] |= group.matrix(edge_mask.cpu())[readers].any(0)
        return live

    def live_receivers(
        self, group: Group, live: Bool[Tensor, " sender"]
    ) -> Bool[Tensor, " receiver"]:
        """Which receivers of a group feed a live sender.

        A query input feeds its head, a key or value input every head of its key/value group.
        """
        if group.kind == "logits":
            return torch.ones(1, dtype=torch.bool)
        if group.kind == "mlp":
            return live[self.mlp(group.layer)].reshape(1)
        first = self.head(group.layer, 0)
        heads = live[first : first + self.n_heads]
        return torch.cat([heads, heads.view(self.n_kv_heads, -1).any(1).repeat(2)])

    def layer_of_sender(self, sender: int) -> int:
        """The layer a sender lies in; -1 for the embedding."""
        return (sender - 1) // (self.n_heads + 1) if sender else -1
