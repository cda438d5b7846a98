"""Several edge masks that differ at one layer: compute only what is downstream of it.

ACDC cuts edges from the logits back. While it is at a layer, everything before that layer is the
full model, whatever it decides; later receivers have decided and read the same earlier senders in
every mask; and nodes without a path to the logits need not be computed at all. `SuffixStream` is
a stream for the model's own layers that takes advantage of all three.

Values are kept sender by sender, (sender, ..., token, d_model), so that mixing senders into
receivers is one matrix product.
"""

from __future__ import annotations

from copy import copy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from discogp_lib.graph import Graph, Group
from discogp_lib.norm import Norm


class Upstream:
    """What all masks of a block share: the senders before its layer, and sums over them."""

    def __init__(
        self,
        graph: Graph,
        block: Group,
        edge_mask: Bool[Tensor, " edge"],
        outputs: Float[Tensor, "sender token d_model"],
        reference: Float[Tensor, "sender token d_model"] | None,
    ) -> None:
        """edge_mask: before the block decides; its masks will only cut further edges.

        outputs: what each sender of the full model writes, minus the reference if there is one.
        """
        self.graph, self.block = graph, block
        self.layer = min(block.layer, graph.n_layers - 1)
        self.n_known = graph.first_sender(self.layer)
        self.known, self.reference = outputs[: self.n_known], reference
        self._sums: dict[tuple[int, int], Tensor] = {}
        self._narrowed: Upstream | None = None
        senders = graph.live_senders(edge_mask)
        self.live_senders = senders
        self.live_receivers = {g.start: graph.live_receivers(g, senders) for g in graph.groups}

    def narrow(self, tokens: Int[Tensor, " kept"]) -> Upstream:
        """The same at some tokens; made once, since all masks ask for the same ones."""
        if self._narrowed is None:
            part = copy(self)
            part.known = self.known[:, tokens]
            part.reference = None if self.reference is None else self.reference[:, tokens]
            part._sums = {}
            self._narrowed = part
        return self._narrowed

    def live(self, group: Group) -> Int[Tensor, " live"]:
        """Receivers of a group, or of part of one, that have a path to the logits."""
        whole = self.graph.group(group.kind, group.layer)
        first = (group.start - whole.start) // group.n_senders
        live = self.live_receivers[whole.start][first : first + len(group.receivers)]
        return live.nonzero().flatten().to(self.known.device)

    def sums(
        self, group: Group, rows: Float[Tensor, "row sender"]
    ) -> Float[Tensor, "row token d_model"]:
        """Each row's sum over the known senders; with a reference, also what cut edges carry."""
        mixed = (rows[:, : self.n_known] @ self.known.flatten(1)).unflatten(1, self.known.shape[1:])
        if self.reference is None:
            return mixed
        return mixed + self.reference[: group.n_senders].sum(0)

    def settled_sums(
        self, group: Group, rows: Float[Tensor, "row sender"]
    ) -> Float[Tensor, "row token d_model"]:
        """The same for the live receivers of a group that has decided: remembered."""
        key = (group.start, len(group.receivers))
        if key not in self._sums:
            self._sums[key] = self.sums(group, rows)
        return self._sums[key]

    def decides(self, group: Group) -> bool:
        """Whether receivers of this group are in the block."""
        return (group.kind, group.layer) == (self.block.kind, self.block.layer)


class SuffixStream:
    """A stream that begins at the layer of a block of receivers, for several edge masks."""

    def __init__(self, upstream: Upstream, edge_masks: Float[Tensor, "mask edge"]) -> None:
        self.upstream, self.edge_masks = upstream, edge_masks
        graph, known = upstream.graph, upstream.known
        n_fresh = graph.n_senders - upstream.n_known
        self.fresh = known.new_zeros(n_fresh, len(edge_masks), *known.shape[1:])

    def read(
        self,
        group: Group,
        norm: Norm,
        weight: Float[Tensor, "receiver d_model out"],
        bias: Float[Tensor, "receiver out"] | None,
    ) -> Float[Tensor, "receiver token out"]:
        """The live receivers' inputs, normed and projected; zero for the others."""
        n_masks, n_tokens = self.fresh.shape[1:3]
        live = self.upstream.live(group)
        out = weight.new_zeros(len(weight), n_masks, n_tokens, weight.shape[2])
        for chosen, sums in self._sums(group, live):
            projected = torch.bmm(norm(sums).flatten(1, 2), _at(weight, chosen))
            if bias is not None:
                projected += bias[chosen].unsqueeze(1)
            out[chosen] = projected.unflatten(1, (-1, n_tokens))
        return out.flatten(1, 2)

    def total(self, group: Group) -> Float[Tensor, "token d_model"]:
        """The sum that the logits see."""
        ((_, sums),) = self._sums(group, self.upstream.live(group))
        n_masks, n_tokens, d_model = self.fresh.shape[1:]
        return sums[0].expand(n_masks, n_tokens, d_model).flatten(0, 1)

    def _sums(
        self, group: Group, live: Int[Tensor, " live"]
    ) -> list[tuple[Tensor, Float[Tensor, "receiver mask token d_model"]]]:
        """Live receivers with their sums; a mask axis of 1 where all masks give the same."""
        if not len(live):
            return []
        upstream = self.upstream
        rows = group.matrix(self.edge_masks)[:, live]
        fresh_rows = rows[:, :, upstream.n_known :]
        if not upstream.decides(group):
            sums = upstream.settled_sums(group, rows[0]).unsqueeze(1)
            return [(live, self._with_fresh(sums, fresh_rows))]
        parts = []
        differ = (rows != rows[:1]).any(0).any(-1)
        if not differ.all():
            same = ~differ
            sums = upstream.sums(group, rows[0, same]).unsqueeze(1)
            parts.append((live[same], self._with_fresh(sums, fresh_rows[:, same])))
        if differ.any():
            each = upstream.sums(group, rows[:, differ].flatten(0, 1))
            sums = each.unflatten(0, (len(rows), -1)).transpose(0, 1)
            parts.append((live[differ], self._with_fresh(sums, fresh_rows[:, differ])))
        return parts

    def _with_fresh(
        self,
        sums: Float[Tensor, "receiver _ token d_model"],
        rows: Float[Tensor, "mask receiver fresh"],
    ) -> Float[Tensor, "receiver _ token d_model"]:
        """Add what the senders from the block's layer on write, in each mask."""
        read = rows.any(0).any(0).nonzero().flatten()
        if not len(read):
            return sums
        fresh = self.fresh[read].transpose(0, 1).flatten(2)
        mixed = torch.bmm(rows[:, :, read], fresh).unflatten(2, sums.shape[2:])
        return mixed.transpose(0, 1) + sums

    def write(
        self,
        first: int,
        x: Float[Tensor, "sender token inner"],
        weight: Float[Tensor, "sender inner d_model"],
        bias: Float[Tensor, " d_model"] | None,
    ) -> None:
        """Keep what the live senders write."""
        stop, n_known = first + len(x), self.upstream.n_known
        live = self.upstream.live_senders[first:stop].nonzero().flatten().to(x.device)
        if not len(live):
            return
        out = torch.bmm(_at(x, live), _at(weight, live))
        if bias is not None:
            out += bias / len(x)
        out = out.unflatten(1, self.fresh.shape[1:3])
        if self.upstream.reference is not None:
            out -= self.upstream.reference[first + live].unsqueeze(1)
        self.fresh[first - n_known + live] = out

    def narrow(self, tokens: Int[Tensor, " kept"]) -> SuffixStream:
        """The same at some tokens, which are the same in each mask's part of the batch."""
        n_masks = self.fresh.shape[1]
        kept = tokens[: len(tokens) // n_masks]
        part = copy(self)
        part.upstream = self.upstream.narrow(kept)
        part.fresh = self.fresh[:, :, kept]
        return part


def _at(values: Float[Tensor, "n ..."], chosen: Int[Tensor, " k"]) -> Float[Tensor, "k ..."]:
    """Some of the values, in their order; if it is all of them, without the time of a copy."""
    return values if len(chosen) == len(values) else values[chosen]


def blocks(graph: Graph) -> list[Group]:
    """Receivers in the order in which ACDC decides: logits, then MLP, values, keys, queries.

    Within a block no decision changes which receivers have a path to the logits.
    """
    found = []
    for group in reversed(graph.groups):
        if group.kind != "heads":
            found.append(group)
            continue
        queries, kv = graph.n_heads, graph.n_kv_heads
        found.append(group.part(queries + kv, queries + 2 * kv))
        found.append(group.part(queries, queries + kv))
        found.append(group.part(0, queries))
    return found


def dead_receivers(
    graph: Graph, block: Group, edge_mask: Bool[Tensor, " edge"], zero: bool
) -> Bool[Tensor, " receiver"]:
    """Receivers of a block whose edges cannot change the logits.

    Those of nodes without a path to the logits; and, under zero ablation, queries and keys of
    heads whose value edges are all cut: such a head takes the same from wherever it looks.
    """
    whole = graph.group(block.kind, block.layer)
    live = graph.live_receivers(whole, graph.live_senders(edge_mask))
    if zero and block.kind == "heads":
        values = whole.matrix(edge_mask)[-graph.n_kv_heads :].any(1)
        heads = values.repeat_interleave(graph.n_heads // graph.n_kv_heads)
        live &= torch.cat([heads, values, torch.ones_like(values)])
    first = (block.start - whole.start) // block.n_senders
    return ~live[first : first + len(block.receivers)]
