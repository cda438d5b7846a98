"""Norms against torch's own, and that no pass keeps memory or sees another's."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

from discogp_lib import scratch, unrolled
from discogp_lib.graph import Graph
from discogp_lib.norm import Norm
from discogp_lib.scratch import SCRATCH
from discogp_lib.stream import ResidualStream, Stream
from discogp_lib.unrolled import UnrolledStream
from tests.reference import masked, random_gpt2, random_llama, random_sheaf, random_tokens

D = 6


def norm_of(kind: str, seed: int = 0) -> Norm:
    noise = torch.Generator().manual_seed(seed)
    weight = 1 + 0.3 * torch.randn(D, generator=noise)
    bias = 0.3 * torch.randn(D, generator=noise) if kind == "layer" else None
    return Norm(weight, bias, 1e-5)


def written_out(norm: Norm, x: Tensor) -> Tensor:
    if norm.bias is not None:
        x = x - x.mean(-1, keepdim=True)
    standard = x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt()
    return standard * norm.weight + (0 if norm.bias is None else norm.bias)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norm_is_its_definition(kind):
    norm, x = norm_of(kind), torch.randn(3, 4, D)
    torch.testing.assert_close(norm(x), written_out(norm, x))
    standard, scale = norm.standardise(x)
    centred = x - x.mean(-1, keepdim=True) if norm.centred else x
    torch.testing.assert_close(standard, centred * scale)
    torch.testing.assert_close(
        standard * norm.weight + (0 if norm.bias is None else norm.bias), norm(x)
    )


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_gradient_through_standardise(kind):
    norm = norm_of(kind)
    x, upstream = torch.randn(5, D, dtype=torch.float64, requires_grad=True), torch.randn(5, D)
    exact = Norm(torch.ones(D).double(), torch.zeros(D).double() if norm.centred else None, 1e-12)
    (expected,) = torch.autograd.grad(written_out(exact, x), x, upstream.double())
    standard, scale = Norm(norm.weight, norm.bias, 1e-12).standardise(x.detach().float())
    actual = norm.unstandardise(upstream, standard) * scale
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_folding_a_norm_into_a_linear_map(kind, has_bias):
    norm, x = norm_of(kind), torch.randn(3, 7, D)
    weight = torch.randn(3, D, 2, requires_grad=True)
    bias = torch.randn(3, 2, requires_grad=True) if has_bias else None
    expected = torch.bmm(norm(x), weight) + (0 if bias is None else bias.unsqueeze(1))
    folded, shift = norm.fold(weight, bias)
    standard, _ = norm.standardise(x)
    actual = torch.bmm(standard, folded) + (0 if shift is None else shift.unsqueeze(1))
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    upstream = torch.randn(3, 7, 2)
    (to_weight,) = torch.autograd.grad(expected, weight, upstream)
    to_folded = torch.bmm(standard.transpose(1, 2), upstream)
    torch.testing.assert_close(
        norm.unfold(to_folded, upstream.sum(1)), to_weight, atol=1e-4, rtol=1e-4
    )


def test_both_streams_do_what_a_stream_does():
    start = torch.randn(4, D)
    graph = Graph(1, 2, 2)
    streams = [
        ResidualStream(start),
        UnrolledStream(start, torch.ones(1, graph.n_edges), graph.n_senders),
    ]
    x, weight, bias = torch.randn(2, 4, 3), torch.randn(2, 3, D), torch.randn(D)
    w_in, b_in = torch.randn(1, D, 5), torch.randn(1, 5)
    results = []
    for s in streams:
        assert isinstance(s, Stream)
        s.write(graph.head(0, 0), x, weight, bias)
        read = s.read(graph.group("mlp", 0), norm_of("layer"), w_in, b_in)
        s.write(graph.mlp(0), read, torch.eye(5, D).unsqueeze(0), None)
        narrowed = s.narrow(torch.tensor([2, 0]))
        total = s.total(graph.group("logits", 1))
        torch.testing.assert_close(narrowed.total(graph.group("logits", 1)), total[[2, 0]])
        results.append((read, total))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_silent_receiver_has_the_gradient_of_one_that_hears_everybody(kind):
    """... but for what rescaling cancels: a silent receiver's sum has no direction."""
    start, norm, graph = torch.randn(3, D), norm_of(kind), Graph(1, 2, 2)
    x, weight = torch.randn(2, 3, 4), torch.randn(2, 4, D)
    w_in, upstream = torch.randn(1, D, 5), torch.randn(1, 3, 5)
    mlp = graph.group("mlp", 0)
    for kept in (0.0, 1.0):
        edges = torch.full((1, graph.n_edges), kept, requires_grad=True)
        unrolled = UnrolledStream(start, edges, graph.n_senders)
        unrolled.write(graph.head(0, 0), x, weight, None)
        read = unrolled.read(mlp, norm, w_in, None)
        unrolled.write(graph.mlp(0), read, torch.eye(5, D).unsqueeze(0), None)
        (unrolled.total(graph.group("logits", 1)) * 0).sum().backward(retain_graph=True)
        (actual,) = torch.autograd.grad(read, edges, upstream)
        outputs = torch.cat([start.unsqueeze(0), x @ weight])  # (sender, token, d_model)
        heard = (outputs.sum(0) * kept).requires_grad_()
        if kept:
            (to_sum,) = torch.autograd.grad(norm(heard) @ w_in[0], heard, upstream[0])
        else:
            everybody = norm.standardise(outputs.sum(0))[1]
            to_sum = upstream[0] @ w_in[0].T * norm.weight * everybody
            to_sum = to_sum - to_sum.mean(-1, keepdim=True) if norm.centred else to_sum
        expected = torch.einsum("std,td->s", outputs, to_sum)
        into_mlp = mlp.matrix(torch.arange(graph.n_edges).unsqueeze(0).float()).flatten().long()
        torch.testing.assert_close(actual[0, into_mlp], expected, atol=1e-4, rtol=1e-4)


# -- memory -------------------------------------------------------------------------------------


@pytest.fixture
def loans(monkeypatch: pytest.MonkeyPatch):
    """Every loan made during a test, by weak reference; all blocks count as large.

    Blocks that come back are filled with NaN: whoever still reads them will show it.
    """
    monkeypatch.setattr(scratch, "SMALL", 0)
    monkeypatch.setattr(SCRATCH, "_free", [])
    made: list[weakref.ref] = []
    lend, take_back = SCRATCH.lend, SCRATCH.take_back

    def watched(shape, like):
        loan = lend(shape, like)
        made.append(weakref.ref(loan))
        return loan

    def spoiled(tensor: Tensor) -> None:
        tensor.fill_(torch.nan)
        take_back(tensor)

    monkeypatch.setattr(SCRATCH, "lend", watched)
    monkeypatch.setattr(SCRATCH, "take_back", spoiled)
    gc.disable()
    yield made
    gc.enable()


def passes(model, tokens: Tensor, last: Tensor | None, with_reference: bool) -> list[Tensor]:
    """A differentiated pass and one without gradients; what they give."""
    mask = random_sheaf(model, 0.6, 1.0).edge_mask.float().requires_grad_()
    weights = {n: w.clone().requires_grad_() for n, w in model.weights.items()}
    reference = model.sender_outputs(tokens.flip(1)) if with_reference else None
    hidden = model.hidden(tokens, weights=weights, edge_mask=mask, reference=reference, last=last)
    hidden.pow(2).sum().backward()
    with torch.no_grad():
        plain = model.hidden(tokens, edge_mask=mask, reference=reference, last=last)
    return [hidden.detach(), mask.grad, *(w.grad for w in weights.values()), plain]


@pytest.mark.parametrize("make", [random_gpt2, random_llama])
@pytest.mark.parametrize("last", [None, torch.tensor([5, 2, 3])])
@pytest.mark.parametrize("with_reference", [False, True])
def test_memory_goes_back_without_a_garbage_collection(make, last, with_reference, loans):
    model, tokens = masked(make()), random_tokens(3, 6)
    first = passes(model, tokens, last, with_reference)
    assert loans
    assert not [loan for loan in loans if loan() is not None]
    free = len(SCRATCH._free)
    second = passes(model, tokens, last, with_reference)
    assert not [loan for loan in loans if loan() is not None]
    assert len(SCRATCH._free) <= free  # the second pass lived on the first one's memory
    for a, b in zip(first, second, strict=True):
        assert torch.isfinite(a).all()
        assert torch.equal(a, b)


def test_pass_that_is_dropped_before_its_backward_gives_its_memory_back(loans):
    model, tokens = masked(random_gpt2()), random_tokens(3, 6)
    mask = torch.ones(model.graph.n_edges, requires_grad=True)
    hidden = model.hidden(tokens, edge_mask=mask)
    assert [loan for loan in loans if loan() is not None]
    del hidden
    assert not [loan for loan in loans if loan() is not None]


def test_two_passes_at_once_do_not_share_memory(loans):
    model, tokens = masked(random_gpt2()), random_tokens(3, 6)
    mask = torch.full((model.graph.n_edges,), 0.5, requires_grad=True)
    expected = []
    for prompts in (tokens, tokens.flip(0)):
        loss = model.hidden(prompts, edge_mask=mask, last=torch.tensor([5, 2, 3])).pow(2).sum()
        expected.append(torch.autograd.grad(loss, mask)[0])
    losses = [
        model.hidden(prompts, edge_mask=mask, last=torch.tensor([5, 2, 3])).pow(2).sum()
        for prompts in (tokens, tokens.flip(0))
    ]
    for loss, gradient in zip(losses, expected, strict=True):
        assert torch.equal(torch.autograd.grad(loss, mask)[0], gradient)


@pytest.mark.parametrize("cache", [1, 50, 1 << 19])
@pytest.mark.parametrize("large", [1, 1 << 40])
def test_size_of_pieces_does_not_change_results(cache, large, monkeypatch):
    model, tokens = masked(random_gpt2()), random_tokens(3, 6)
    expected = passes(model, tokens, torch.tensor([5, 2, 3]), True)
    monkeypatch.setattr(unrolled, "CACHE_FLOATS", cache)
    monkeypatch.setattr(unrolled, "LARGE_PRODUCT", large)
    for a, b in zip(expected, passes(model, tokens, torch.tensor([5, 2, 3]), True), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
