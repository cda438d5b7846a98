"""Post-hoc pruning: drop what cannot change the logits, and nothing else.

The paper names two rules: (1) a node whose weights are all gone leaves the graph, (2) edges
without a path to the logits go. Both are applied here only where the node's output really is
zero, biases included; and they are carried on to single neurons, whose weights are dead when
nothing comes in or nothing goes out. Under zero ablation the logits stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool
from torch import Tensor

from discogp_lib.graph import Graph
from discogp_lib.layout import Block, Layout

Masks = tuple[Tensor, dict[str, Tensor]]


def prune(
    layout: Layout, edge_mask: Bool[Tensor, " edge"], weight_masks: Mapping[str, Tensor]
) -> Masks:
    """Both masks without dead edges and weights; the inputs are left alone."""
    edges = edge_mask.clone()
    weights = {name: mask.clone() for name, mask in weight_masks.items()}
    blocks = [layout.block(weights, layer) for layer in range(layout.n_layers)]
    size = None
    while size != (size := _size(edges, weights)):
        for layer, block in enumerate(blocks):
            _prune_mlp(layout, layer, block, edges)
            _prune_heads(layout, layer, block, edges)
        _drop_edges(layout, blocks, edges)
        live = layout.graph.live_senders(edges)
        for layer, block in enumerate(blocks):
            _drop_dead_nodes(layout.graph, layer, block, live)
    return edges, weights


def _size(edges: Tensor, weights: Mapping[str, Tensor]) -> tuple[int, int]:
    return int(edges.sum()), sum(int(mask.sum()) for mask in weights.values())


def _hears(layout: Layout, edges: Tensor, kind: str, layer: int) -> Bool[Tensor, " receiver"]:
    """Whether a receiver's weights ever see anything but zero.

    A LayerNorm turns an empty sum into its bias; an RMSNorm leaves it zero.
    """
    group = layout.graph.group("mlp" if kind == "mlp" else "heads", layer)
    if layout.architecture == "gpt2":
        return torch.ones(len(group.receivers), dtype=torch.bool)
    return group.matrix(edges).any(-1)


def _keep(mask: Tensor | None, kept: Tensor) -> None:
    """Drop in place what `kept` (broadcast) does not keep."""
    if mask is not None:
        mask &= kept


def _with_bias(weights: Tensor, bias: Tensor | None) -> Tensor:
    """Which output dimensions of a linear map (..., in, out) are not always zero."""
    reached = weights.any(-2)
    return reached if bias is None else reached | bias


def _prune_mlp(layout: Layout, layer: int, block: Block, edges: Tensor) -> None:
    """A neuron lives if something comes in and something goes out.

    All supported activations are zero at zero, and a gated neuron needs both its factors.
    """
    hears = _hears(layout, edges, "mlp", layer)
    _keep(block.w_in, hears)
    _keep(block.w_gate, hears)
    kept = block.w_out.any(1) & _with_bias(block.w_in, block.b_in)
    if block.w_gate is not None:
        kept &= _with_bias(block.w_gate, block.b_gate)
    for mask in (block.w_in, block.w_gate, block.b_in, block.b_gate):
        _keep(mask, kept)
    _keep(block.w_out, kept.unsqueeze(1))


def _prune_heads(layout: Layout, layer: int, block: Block, edges: Tensor) -> None:
    """The same for a head's dimensions: values with outputs, queries with keys."""
    group_size = layout.n_heads // layout.n_kv_heads
    hears = _hears(layout, edges, "heads", layer)
    q, k, v = hears.split([layout.n_heads, layout.n_kv_heads, layout.n_kv_heads])
    for mask, heard in ((block.w_q, q), (block.w_k, k), (block.w_v, v)):
        _keep(mask, heard[:, None, None])

    def by_group(per_head: Tensor) -> Tensor:
        return per_head.unflatten(0, (layout.n_kv_heads, group_size)).any(1)

    values = _with_bias(block.w_v, block.b_v).repeat_interleave(group_size, 0)
    taken = values & block.w_o.any(2)
    _keep(block.w_o, taken.unsqueeze(2))
    _keep(block.w_v, by_group(taken).unsqueeze(1))
    _keep(block.b_v, by_group(taken))

    # Where a head looks matters only if it takes something that differs between positions.
    value_edges = layout.graph.group("heads", layer).matrix(edges)[-layout.n_kv_heads :].any(1)
    attends = taken.any(1) & value_edges.repeat_interleave(group_size)
    queries = _with_bias(block.w_q, block.b_q)
    keys = _with_bias(block.w_k, block.b_k).repeat_interleave(group_size, 0)
    if layout.architecture == "llama":  # rotary positions turn dimensions in pairs
        queries, keys = _pair(queries), _pair(keys)
    compared = queries & keys & attends.unsqueeze(1)
    _keep(block.w_q, compared.unsqueeze(1))
    _keep(block.b_q, compared)
    _keep(block.w_k, by_group(compared).unsqueeze(1))
    _keep(block.b_k, by_group(compared))


def _pair(dimensions: Bool[Tensor, "head d_head"]) -> Bool[Tensor, "head d_head"]:
    """Dimension i and i + d_head/2 live or die together."""
    first, second = dimensions.chunk(2, -1)
    return (first | second).repeat(1, 2)


def _drop_edges(layout: Layout, blocks: list[Block], edges: Tensor) -> None:
    """Cut edges from senders that write nothing, and into receivers whose input is not used."""
    graph = layout.graph
    writes = torch.ones(graph.n_senders, dtype=torch.bool)
    for layer, block in enumerate(blocks):
        first = graph.head(layer, 0)
        constant = block.b_o is not None and bool(block.b_o.any())
        writes[first : first + layout.n_heads] = block.w_o.flatten(1).any(1) | constant
        constant = block.b_out is not None and bool(block.b_out.any())
        writes[graph.mlp(layer)] = bool(block.w_out.any()) or constant
        heads = graph.group("heads", layer).matrix(edges)
        read = [w.flatten(1).any(1) for w in (block.w_q, block.w_k, block.w_v)]
        heads &= torch.cat(read).unsqueeze(1)
        mlp = graph.group("mlp", layer).matrix(edges)
        mlp &= block.w_in.any() | (block.w_gate is not None and bool(block.w_gate.any()))
    live = graph.live_senders(edges)
    for group in graph.groups:
        matrix = group.matrix(edges)
        matrix &= writes[: group.n_senders] & graph.live_receivers(group, live).unsqueeze(1)


def _drop_dead_nodes(graph: Graph, layer: int, block: Block, live: Tensor) -> None:
    """Weights of nodes that no kept path leads to the logits."""
    first = graph.head(layer, 0)
    heads = live[first : first + graph.n_heads]
    shared = heads.unflatten(0, (graph.n_kv_heads, -1)).any(1)
    for weight in (block.w_q, block.w_o):
        _keep(weight, heads[:, None, None])
    _keep(block.b_q, heads.unsqueeze(1))
    for weight in (block.w_k, block.w_v):
        _keep(weight, shared[:, None, None])
    for bias in (block.b_k, block.b_v):
        _keep(bias, shared.unsqueeze(1))
    _keep(block.b_o, heads.any())
    for mask in (block.w_in, block.w_gate, block.w_out, block.b_in, block.b_gate, block.b_out):
        _keep(mask, live[graph.mlp(layer)])
