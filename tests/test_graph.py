"""Nodes, edges and reachability against closed formulas and brute force."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib.graph import Graph

SHAPES = [
    (layers, heads, kv)
    for layers, heads in itertools.product((1, 2, 3, 5), (1, 2, 3, 4, 6))
    for kv in range(1, heads + 1)
    if heads % kv == 0
]


@pytest.mark.parametrize(("layers", "heads", "kv"), SHAPES)
def test_counts_follow_the_closed_formula(layers: int, heads: int, kv: int):
    graph = Graph(layers, heads, kv)
    before = [1 + layer * (heads + 1) for layer in range(layers + 1)]
    into_heads = sum((heads + 2 * kv) * n for n in before[:-1])
    into_mlps = sum(n + heads for n in before[:-1])
    assert graph.n_edges == len(graph.edges) == into_heads + into_mlps + before[-1]
    assert graph.n_senders == len(graph.senders) == before[-1]
    assert len(graph.nodes) == before[-1] + 1
    assert len(set(graph.edges)) == graph.n_edges
    assert len(set(graph.nodes)) == len(graph.nodes)


def test_counts_of_known_models():
    gpt2 = Graph(12, 12, 12)
    assert (len(gpt2.nodes), gpt2.n_edges) == (158, 32_491)
    assert Graph(30, 9, 3).n_edges == 70_651  # SmolLM2-135M


def test_all_names_of_a_small_graph():
    assert Graph(1, 2, 2).edges == (
        "input->a0.h0<q>",
        "input->a0.h1<q>",
        "input->a0.h0<k>",
        "input->a0.h1<k>",
        "input->a0.h0<v>",
        "input->a0.h1<v>",
        "input->m0",
        "a0.h0->m0",
        "a0.h1->m0",
        "input->logits",
        "a0.h0->logits",
        "a0.h1->logits",
        "m0->logits",
    )
    assert Graph(1, 2, 2).nodes == ("input", "a0.h0", "a0.h1", "m0", "logits")


def test_shared_keys_and_values_are_named_after_their_own_head():
    receivers = [edge.split("->")[1] for edge in Graph(1, 4, 2).edges]
    assert list(dict.fromkeys(receivers)) == [
        *(f"a0.h{i}<q>" for i in range(4)),
        "a0.kv0<k>",
        "a0.kv1<k>",
        "a0.kv0<v>",
        "a0.kv1<v>",
        "m0",
        "logits",
    ]


@pytest.mark.parametrize(("layers", "heads", "kv"), [(3, 2, 2), (2, 4, 2), (2, 6, 1)])
def test_edges_exist_exactly_where_a_sender_comes_before_its_receiver(layers, heads, kv):
    """Time of a node: 2 x layer for heads, 2 x layer + 1 for MLPs; parallel heads see nothing."""

    def time(node: str) -> int:
        if node in ("input", "logits"):
            return -1 if node == "input" else 2 * layers
        layer = int(node.lstrip("am").split(".")[0])
        return 2 * layer + node.startswith("m")

    graph = Graph(layers, heads, kv)
    receivers = list(dict.fromkeys(edge.split("->")[1] for edge in graph.edges))
    expected = [
        f"{sender}->{receiver}"
        for receiver in receivers
        for sender in graph.senders
        if time(sender) < time(receiver)
    ]
    assert list(graph.edges) == expected


def test_matrix_of_a_group_holds_its_edges():
    graph = Graph(2, 4, 2)
    names = {i: name for name, i in graph.edge_index.items()}
    positions = torch.arange(graph.n_edges)
    seen = 0
    for group in graph.groups:
        matrix = group.matrix(positions)
        assert matrix.shape == group.shape
        for r, s in itertools.product(range(group.shape[0]), range(group.shape[1])):
            assert names[int(matrix[r, s])] == f"{graph.senders[s]}->{group.receivers[r]}"
        middle = group.part(1, 3)
        assert torch.equal(middle.matrix(positions), matrix[1:3])
        assert middle.receivers == group.receivers[1:3]
        seen += matrix.numel()
        assert group is graph.group(group.kind, group.layer)
    assert seen == graph.n_edges


def test_sender_indices_are_places_in_the_list_of_senders():
    graph = Graph(3, 4, 2)
    assert graph.layer_of_sender(0) == -1
    for layer in range(3):
        assert graph.senders[graph.mlp(layer)] == f"m{layer}"
        assert graph.layer_of_sender(graph.mlp(layer)) == layer
        for head in range(4):
            assert graph.senders[graph.head(layer, head)] == f"a{layer}.h{head}"
            assert graph.layer_of_sender(graph.head(layer, head)) == layer


def fed_by(graph: Graph, receiver: str) -> set[str]:
    """The senders, or the logits, that read through a receiver."""
    node, _, _ = receiver.partition("<")
    layer, _, kv = node.partition(".kv")
    if not kv:
        return {node}
    size = graph.n_heads // graph.n_kv_heads
    return {f"{layer}.h{head}" for head in range(int(kv) * size, (int(kv) + 1) * size)}


def search_backwards(graph: Graph, kept: set[str]) -> set[str]:
    """Senders with a path to the logits, by following names."""
    live, before = {"logits"}, 0
    while before != len(live):
        before = len(live)
        for edge in kept:
            sender, receiver = edge.split("->")
            if fed_by(graph, receiver) & live:
                live.add(sender)
    return live - {"logits"}


@given(
    shape=st.sampled_from([(2, 2, 2), (3, 3, 3), (2, 4, 2), (2, 6, 2), (3, 2, 1)]),
    density=st.sampled_from([0.02, 0.05, 0.1, 0.3]),
    seed=st.integers(0, 10_000),
)
def test_live_senders_are_those_a_backward_search_finds(shape, density, seed):
    graph = Graph(*shape)
    noise = torch.Generator().manual_seed(seed)
    mask = torch.rand(graph.n_edges, generator=noise) < density
    kept = {name for name, on in zip(graph.edges, mask.tolist(), strict=True) if on}
    live = graph.live_senders(mask)
    found = {name for name, on in zip(graph.senders, live.tolist(), strict=True) if on}
    assert found == search_backwards(graph, kept)


def test_nothing_is_live_without_edges_and_all_with_all():
    graph = Graph(2, 2, 1)
    assert not graph.live_senders(torch.zeros(graph.n_edges, dtype=torch.bool)).any()
    assert graph.live_senders(torch.ones(graph.n_edges, dtype=torch.bool)).all()
