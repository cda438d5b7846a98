"""Logits under any sheaf, against Hugging Face, a slow transformer, and work by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from discogp_lib.architecture import ACTIVATIONS
from discogp_lib.errors import CheckpointError, ConfigError, SheafError, TaskError
from discogp_lib.model import load_model
from discogp_lib.sheaf import Sheaf
from tests.reference import (
    VOCABULARY,
    kept_edges,
    masked,
    random_gpt2,
    random_llama,
    random_sheaf,
    random_tokens,
    slow_logits,
    slow_outputs,
)

FULL = {
    "gpt2, 3 heads": lambda: random_gpt2(layers=2, heads=3, d_head=4),
    "gpt2, 1 layer": lambda: random_gpt2(layers=1, heads=4, d_head=2),
    "gpt2, 12 layers": lambda: random_gpt2(layers=12, heads=5, d_head=2),
    "gpt2, 1 head": lambda: random_gpt2(layers=2, heads=1, d_head=6),
    "gpt2, relu, narrow": lambda: random_gpt2(activation_function="relu", n_inner=7),
    "gpt2, untied": lambda: random_gpt2(tie_word_embeddings=False),
    "llama": lambda: random_llama(heads=3, kv_heads=3),
    "llama, grouped": lambda: random_llama(heads=4, kv_heads=2),
    "llama, one key/value head": lambda: random_llama(heads=3, kv_heads=1, layers=3),
    "llama, biases": lambda: random_llama(attention_bias=True, mlp_bias=True),
    "llama, tied, wide heads": lambda: random_llama(
        heads=2, kv_heads=1, d_head=10, tie_word_embeddings=True
    ),
    "llama, 12 layers": lambda: random_llama(layers=12, heads=2, kv_heads=1),
}
SLOW = {
    "gpt2": lambda: random_gpt2(layers=2, heads=3, d_head=2),
    "gpt2, 1 layer": lambda: random_gpt2(layers=1, heads=2, d_head=3),
    "llama": lambda: random_llama(layers=2, heads=2, kv_heads=2),
    "llama, grouped, biases": lambda: random_llama(
        heads=4, kv_heads=2, attention_bias=True, mlp_bias=True
    ),
}


def all_models(models: dict):
    return pytest.mark.parametrize("make", models.values(), ids=models)


@torch.no_grad()
def unrolled_logits(model, tokens: Tensor, **more) -> Tensor:
    """The unrolled path is taken for float edge masks, even for ones."""
    ones = torch.ones(model.graph.n_edges)
    return model.hidden(tokens, edge_mask=ones, **more) @ model.fixed.unembedding.T


def by_sender(model, reference: Tensor) -> dict[str, Tensor]:
    return {sender: reference[:, :, i] for i, sender in enumerate(model.graph.senders)}


# -- the full model -----------------------------------------------------------------------------


@all_models(FULL)
def test_full_sheaf_is_hugging_face(make):
    hf = make()
    model, tokens = masked(hf), random_tokens(3, 7)
    with torch.no_grad():
        expected = hf(tokens).logits
    assert expected.std() > 0.3  # a model that says something
    for logits in (
        model.logits(tokens),
        model.logits(tokens, Sheaf.full(model)),
        unrolled_logits(model, tokens),
    ):
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_tokens_that_a_model_cannot_read_are_told():
    model = masked(random_gpt2())
    positions, words = len(model.fixed.positions), model.vocabulary_size
    with pytest.raises(TaskError, match=f"{positions + 1} tokens long, and .* {positions} at most"):
        model.logits(torch.zeros(1, positions + 1, dtype=torch.int64))
    with pytest.raises(TaskError, match=f"none of number {words}; make the task with this model"):
        model.logits(torch.tensor([[0, words]]))


@all_models(FULL)
def test_padding_never_changes_a_prompt(make):
    hf = make()
    model, tokens = masked(hf), random_tokens(3, 7)
    lengths = torch.tensor([7, 4, 1])
    sheaf = random_sheaf(model, 0.7, 0.8)
    for padding in (0, 5):
        padded = torch.where(torch.arange(7) < lengths[:, None], tokens, padding)
        full, under_sheaf = model.logits(padded), model.logits(padded, sheaf)
        last = torch.stack([row[n - 1] for row, n in zip(under_sheaf, lengths, strict=True)])
        at_last = model.hidden(
            padded,
            weights=model.masked_weights(sheaf),
            edge_mask=sheaf.edge_mask,
            last=lengths - 1,
        )
        torch.testing.assert_close(at_last @ model.fixed.unembedding.T, last, atol=1e-5, rtol=0)
        for i, n in enumerate(lengths.tolist()):
            alone = tokens[i : i + 1, :n]
            with torch.no_grad():
                expected = hf(alone).logits[0]
            torch.testing.assert_close(full[i, :n], expected, atol=1e-4, rtol=0)
            expected = model.logits(alone, sheaf)[0]
            torch.testing.assert_close(under_sheaf[i, :n], expected, atol=1e-5, rtol=0)


def test_mini_model_is_hugging_face():
    from discogp_lib.checkpoints import load_checkpoint

    tokens = random_tokens(2, 9)
    with torch.no_grad():
        expected = load_checkpoint("mini").model(tokens).logits
    torch.testing.assert_close(load_model("mini").logits(tokens), expected, atol=1e-4, rtol=0)


def test_attention_scaling_that_is_not_supported_is_refused():
    with pytest.raises(CheckpointError, match="scale_attn_weights"):
        masked(random_gpt2(scale_attn_by_inverse_layer_idx=True))


def test_activation_that_is_not_supported_is_refused():
    with pytest.raises(CheckpointError, match="'tanh' is not supported"):
        masked(random_gpt2(activation_function="tanh"))


def test_model_does_not_share_memory_with_its_checkpoint():
    hf = random_gpt2()
    model, tokens = masked(hf), random_tokens(2, 4)
    before = model.logits(tokens)
    with torch.no_grad():
        for parameter in hf.parameters():
            parameter.zero_()
    assert torch.equal(model.logits(tokens), before)


# -- any sheaf ----------------------------------------------------------------------------------


@all_models(SLOW)
@pytest.mark.parametrize(
    ("edge_density", "weight_density"), [(0.5, 0.5), (0.9, 0.95), (0.15, 0.3), (1.0, 0.4), (0.5, 1)]
)
def test_any_sheaf_is_the_slow_transformer(make, edge_density, weight_density):
    hf = make()
    model, tokens = masked(hf), random_tokens(2, 4)
    sheaf = random_sheaf(model, edge_density, weight_density, seed=int(100 * edge_density))
    for cut in (sheaf, ~sheaf, sheaf.complement()):
        weights = {n: w * cut.weight_masks[n] for n, w in model.weights.items()}
        expected = slow_logits(hf, tokens, kept_edges(model, cut.edge_mask), weights)
        logits = model.logits(tokens, cut)
        torch.testing.assert_close(logits.double(), expected, atol=1e-4, rtol=0)


@all_models(SLOW)
def test_empty_sheaf_is_what_the_final_norm_makes_of_nothing(make):
    hf = make()
    model = masked(hf)
    bias = model.fixed.final_norm.bias
    expected = torch.zeros(VOCABULARY) if bias is None else model.fixed.unembedding @ bias
    logits = model.logits(random_tokens(2, 3), Sheaf.empty(model))
    torch.testing.assert_close(logits, expected.expand(2, 3, -1), atol=1e-5, rtol=0)


@all_models(SLOW)
def test_cut_edges_carry_their_reference(make):
    """Mean and interchange ablation: a value of its own for each sender, prompt and position."""
    hf = make()
    model, tokens = masked(hf), random_tokens(2, 4)
    sheaf = random_sheaf(model, 0.5, 0.6, seed=3)
    weights = model.masked_weights(sheaf)
    shape = (2, 4, model.graph.n_senders, model.layout.d_model)
    references = {
        "interchange": model.sender_outputs(random_tokens(2, 4, seed=1)),
        "anything": torch.randn(shape, generator=torch.Generator().manual_seed(2)),
    }
    for reference in references.values():
        expected = slow_logits(
            hf, tokens, kept_edges(model, sheaf.edge_mask), weights, by_sender(model, reference)
        )
        hidden = model.hidden(
            tokens, weights=weights, edge_mask=sheaf.edge_mask, reference=reference
        )
        logits = hidden.detach() @ model.fixed.unembedding.T
        torch.testing.assert_close(logits.double(), expected, atol=2e-4, rtol=0)
        at_last = model.hidden(
            tokens,
            weights=weights,
            edge_mask=sheaf.edge_mask,
            reference=reference,
            last=torch.tensor([3, 1]),
        )
        chosen = hidden[torch.arange(2), torch.tensor([3, 1])]
        torch.testing.assert_close(at_last, chosen, atol=1e-4, rtol=0)


@all_models(SLOW)
def test_references_of_the_same_prompt_change_nothing(make):
    """With every weight kept, putting a sender's own value back on a cut edge is no cut."""
    model, tokens = masked(make()), random_tokens(2, 5)
    mask = random_sheaf(model, 0.3, 1.0).edge_mask
    hidden = model.hidden(tokens, edge_mask=mask, reference=model.sender_outputs(tokens))
    torch.testing.assert_close(
        hidden @ model.fixed.unembedding.T, model.logits(tokens), atol=1e-4, rtol=0
    )


@all_models(SLOW)
def test_sender_outputs_are_those_of_the_slow_transformer(make):
    hf = make()
    model, tokens = masked(hf), random_tokens(2, 4)
    outputs = by_sender(model, model.sender_outputs(tokens))
    for sender, expected in slow_outputs(hf, tokens).items():
        torch.testing.assert_close(outputs[sender].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_each_head_writes_its_share_of_the_output_bias(heads):
    model = masked(random_gpt2(layers=1, heads=heads, d_head=4))
    bias = model.weights["transformer.h.0.attn.c_proj.bias"]
    model.weights["transformer.h.0.attn.c_proj.weight"].zero_()
    outputs = model.sender_outputs(random_tokens(2, 3))
    for head in range(heads):
        share = outputs[:, :, model.graph.head(0, head)]
        torch.testing.assert_close(share, (bias / heads).expand(2, 3, -1))


@all_models(SLOW)
@pytest.mark.parametrize("last", [None, torch.tensor([4, 2])])
def test_several_edge_masks_at_once_are_one_at_a_time(make, last):
    model, tokens = masked(make()), random_tokens(2, 5)
    masks = torch.stack([random_sheaf(model, 0.6, 1.0, seed=s).edge_mask for s in range(3)])
    reference = model.sender_outputs(random_tokens(2, 5, seed=4))
    for ref in (None, reference):
        together = model.hidden(
            tokens.repeat(3, 1),
            edge_mask=masks,
            reference=None if ref is None else ref.repeat(3, 1, 1, 1),
            last=None if last is None else last.repeat(3),
        )
        apart = [model.hidden(tokens, edge_mask=mask, reference=ref, last=last) for mask in masks]
        torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=0)
        assert not torch.allclose(apart[0], apart[1], atol=1e-2)


@all_models(FULL)
def test_last_is_a_slice_of_the_whole(make):
    model, tokens, last = masked(make()), random_tokens(3, 6), torch.tensor([5, 0, 3])
    for mask in (None, torch.ones(model.graph.n_edges), random_sheaf(model, 0.5, 1.0).edge_mask):
        whole = model.hidden(tokens, edge_mask=mask)[torch.arange(3), last]
        part = model.hidden(tokens, edge_mask=mask, last=last)
        torch.testing.assert_close(part, whole, atol=1e-5, rtol=0)


# -- by hand ------------------------------------------------------------------------------------


def blank_model(**shape: Any):
    """Two dimensions and no weights: token 0 is (1, 0), token 1 is (0, 1), positions are zero.

    The norms inside have weight 1 and bias 0, so that a LayerNorm of (a, b) is (s, -s) with
    s = sign(a - b): the normed input is (1, -1) for token 0 and (-1, 1) for token 1. The final
    norm has so large an epsilon that it only centres and divides by 1,000, and the unembedding
    is tied: the logits of tokens 0 and 1 are (a - b) / 2,000 and its negative.
    """
    model = masked(random_gpt2(layers=1, n_inner=1, activation_function="relu", **shape))
    for norm in (*model.fixed.norms[0], model.fixed.final_norm):
        norm.weight.fill_(1)
        norm.bias.fill_(0)
    model.fixed.positions.zero_()
    model.fixed.embedding.zero_()
    model.fixed.embedding[:2] = torch.eye(2)
    final_norm = replace(model.fixed.final_norm, eps=1e6)
    model.fixed = replace(model.fixed, final_norm=final_norm)
    model.flat_weights.zero_()
    weights = {name.removeprefix("transformer.h.0."): w for name, w in model.weights.items()}
    return model, weights


def difference(model, cut_edges: Sequence[str] = (), **cut_weights: Any) -> Any:
    """a - b of what reaches the logits at each position of the prompt "token 0, token 1"."""
    sheaf = Sheaf.full(model)
    for edge in cut_edges:
        sheaf.edge_mask[model.graph.edge_index[edge]] = False
    for name, index in cut_weights.items():
        sheaf.weight_masks[f"transformer.h.0.{name.replace('__', '.')}"][index] = False
    logits = model.logits(torch.tensor([[0, 1]]), sheaf)[0]
    torch.testing.assert_close(logits[:, 0], -logits[:, 1])
    return pytest.approx((2000 * logits[:, 0]).tolist(), abs=2e-3)


def test_micro_model_by_hand():
    """One layer, one head, one neuron; every number below is on paper."""
    model, weights = blank_model(heads=1, d_head=2)
    weights["attn.c_attn.weight"][:, 4:] = torch.eye(2)  # the value is the normed input
    weights["attn.c_proj.weight"].copy_(2 * torch.eye(2))  # the head writes twice what it takes
    weights["attn.c_proj.bias"].copy_(torch.tensor([0.5, 0.0]))
    weights["mlp.c_fc.weight"].copy_(torch.tensor([[1.0], [0.0]]))  # the neuron: 1st coordinate
    weights["mlp.c_proj.weight"].copy_(torch.tensor([[0.0, 7.0]]))  # writes it sevenfold
    # Queries and keys are zero, so attention is even. Position 0: head = 2 (1, -1) + (0.5, 0)
    # = (2.5, -2). Position 1 takes half of each value: (0, 0), and writes its bias (0.5, 0).
    # MLP: position 0 sees (1, 0) + (2.5, -2) = (3.5, -2), normed (1, -1): neuron 1, writes (0, 7).
    # Position 1 sees (0, 1) + (0.5, 0) = (0.5, 1), normed (-1, 1): relu gives 0.
    outputs = model.sender_outputs(torch.tensor([[0, 1]]))[0]
    expected = [
        [[1.0, 0.0], [2.5, -2.0], [0.0, 7.0]],
        [[0.0, 1.0], [0.5, 0.0], [0.0, 0.0]],
    ]
    torch.testing.assert_close(outputs, torch.tensor(expected), atol=1e-3, rtol=0)
    # Logits: (1, 0) + (2.5, -2) + (0, 7) = (3.5, 5); and (0, 1) + (0.5, 0) = (0.5, 1).
    assert difference(model) == [-1.5, -0.5]
    # Without one sender at the logits: (3.5, -2); (1, 7) and (0, 1); (2.5, 5) and (0.5, 0).
    assert difference(model, ["m0->logits"]) == [5.5, -0.5]
    assert difference(model, ["a0.h0->logits"]) == [-6, -1]
    assert difference(model, ["input->logits"]) == [-2.5, 0.5]
    # The MLP does not see the head: (1, 0) -> neuron 1 as before; (0, 1) -> 0 as before.
    assert difference(model, ["a0.h0->m0"]) == [-1.5, -0.5]
    # The MLP does not see the embedding: (2.5, -2) -> 1; position 1: (0.5, 0), normed (1, -1)
    # -> 1, so it writes (0, 7) there too: (0.5, 1) + (0, 7).
    assert difference(model, ["input->m0"]) == [-1.5, -7.5]
    # The value input is cut: the norm of nothing is 0, the head writes its bias alone. Position
    # 0: (1, 0) + (0.5, 0), neuron 1: (1.5, 7). Position 1 as before.
    assert difference(model, ["input->a0.h0<v>"]) == [-5.5, -0.5]
    # Cut weights. No output bias: heads (2, -2) and (0, 0); logits (3, 5) and (0, 1).
    assert difference(model, attn__c_proj__bias=slice(None)) == [-2, -1]
    # The head's second output column: heads (2.5, 0) and (0.5, 0); (3.5, 7) and (0.5, 1).
    assert difference(model, attn__c_proj__weight=(slice(None), 1)) == [-3.5, -0.5]
    # The neuron's input weight: no MLP, (3.5, -2) and (0.5, 1).
    assert difference(model, mlp__c_fc__weight=(0, 0)) == [5.5, -0.5]
    # Everything into the logits cut: nothing.
    assert difference(model, ["input->logits", "a0.h0->logits", "m0->logits"]) == [0, 0]


def test_where_a_head_looks_by_hand():
    """Two heads of one dimension; only the second does anything."""
    model, weights = blank_model(heads=2, d_head=1)
    # Columns of c_attn: q of head 0 and 1, k of both, v of both. Head 1: q is the second
    # coordinate of the normed input, k three times the first, v five times the first.
    weights["attn.c_attn.weight"][1, 1] = 1.0
    weights["attn.c_attn.weight"][0, 3] = 3.0
    weights["attn.c_attn.weight"][0, 5] = 5.0
    weights["attn.c_proj.weight"][1] = torch.tensor([1.0, 0.0])
    # Position 0 sees itself alone: 5, so (1, 0) + (5, 0). At position 1 the query is 1, keys are
    # 3 and -3, values 5 and -5: it looks at them as e^3 : e^-3.
    looks = math.exp(3) / (math.exp(3) + math.exp(-3))
    takes = 5 * looks - 5 * (1 - looks)
    assert [6, takes - 1] == difference(model)
    for x in "qk":  # no query or no key: an even look at 5 and -5
        assert difference(model, [f"input->a0.h1<{x}>"]) == [6, -1]
    assert difference(model, attn__c_attn__weight=(1, 1)) == [6, -1]
    assert difference(model, attn__c_attn__weight=(0, 3)) == [6, -1]
    assert difference(model, ["input->a0.h1<v>"]) == [1, -1]
    for x in "qkv":  # the other head's inputs are not this one's
        assert [6, takes - 1] == difference(model, [f"input->a0.h0<{x}>"])


# -- gradients ----------------------------------------------------------------------------------


def gradients_of(loss: Tensor, weights: dict[str, Tensor], mask: Tensor | None) -> dict:
    leaves = {**weights, **({} if mask is None else {"edges": mask})}
    found = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


@all_models(SLOW)
@pytest.mark.parametrize(
    "case",
    ["residual", "unrolled", "unrolled, last", "residual, last", "reference", "reference, last"],
)
def test_gradients_are_those_of_the_slow_transformer(make, case, monkeypatch):
    if "last" in case:  # small pieces: several runs of tokens, and products added in place
        monkeypatch.setattr("discogp_lib.unrolled.CACHE_FLOATS", 100)
        monkeypatch.setattr("discogp_lib.unrolled.LARGE_PRODUCT", 1)
    hf = make()
    model, tokens = masked(hf), random_tokens(2, 4)
    noise = torch.Generator().manual_seed(5)
    sheaf = random_sheaf(model, 0.6, 0.7, seed=1)
    weights = {n: w.clone().requires_grad_() for n, w in model.masked_weights(sheaf).items()}
    mask = reference = None
    if "residual" not in case:  # masks between zero and one have a gradient of their own
        mask = torch.rand(model.graph.n_edges, generator=noise).requires_grad_()
    if "reference" in case:
        reference = model.sender_outputs(random_tokens(2, 4, seed=1))
    probe = torch.randn(2, 4, VOCABULARY, generator=noise)
    last = torch.tensor([3, 2]) if "last" in case else None

    def loss(logits: Tensor) -> Tensor:
        if last is None:
            return (logits * probe).sum()
        return (logits * probe[:, 0]).sum()

    hidden = model.hidden(tokens, weights=weights, edge_mask=mask, reference=reference, last=last)
    actual = gradients_of(loss(hidden @ model.fixed.unembedding.T), weights, mask)

    exact = {n: w.detach().double().requires_grad_() for n, w in weights.items()}
    exact_mask = None if mask is None else mask.detach().double().requires_grad_()
    logits = slow_logits(
        hf,
        tokens,
        None if exact_mask is None else kept_edges(model, exact_mask),
        exact,
        None if reference is None else by_sender(model, reference),
    )
    if last is not None:
        logits = logits[torch.arange(2), last]
    expected = gradients_of(loss(logits), exact, exact_mask)
    for name, gradient in expected.items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(
            actual[name].double(), gradient, atol=1e-4 * max(scale, 0.1), rtol=1e-3, msg=name
        )


@pytest.mark.parametrize("make", [SLOW["gpt2"], SLOW["llama"]], ids=["gpt2", "llama"])
def test_gradients_are_finite_differences(make):
    """The one check that does not trust autograd at all."""
    hf = make()
    model, tokens = masked(hf), random_tokens(1, 3)
    noise = torch.Generator().manual_seed(6)
    mask = torch.rand(model.graph.n_edges, generator=noise).requires_grad_()
    weights = {n: w.clone().requires_grad_() for n, w in model.weights.items()}
    probe = torch.randn(1, 3, VOCABULARY, generator=noise)
    logits = model.hidden(tokens, weights=weights, edge_mask=mask) @ model.fixed.unembedding.T
    (logits * probe).sum().backward()

    def value(mask: Tensor, weights: dict[str, Tensor]) -> float:
        return float((slow_logits(hf, tokens, kept_edges(model, mask), weights) * probe).sum())

    exact = {n: w.detach().double() for n, w in weights.items()}
    h = 1e-5
    for i in torch.randperm(model.graph.n_edges, generator=noise)[:8].tolist():
        up, down = mask.detach().double(), mask.detach().double()
        up[i] += h
        down[i] -= h
        difference = (value(up, exact) - value(down, exact)) / (2 * h)
        assert mask.grad[i].item() == pytest.approx(difference, abs=2e-3, rel=2e-3)
    for name in weights:
        i = int(torch.randint(weights[name].numel(), (1,), generator=noise))
        up, down = ({**exact, name: exact[name].clone()} for _ in range(2))
        up[name].view(-1)[i] += h
        down[name].view(-1)[i] -= h
        edges = mask.detach().double()
        difference = (value(edges, up) - value(edges, down)) / (2 * h)
        assert weights[name].grad.view(-1)[i].item() == pytest.approx(
            difference, abs=2e-3, rel=2e-3
        )


def test_edge_gradient_without_weight_gradient_and_the_reverse():
    model, tokens = masked(random_gpt2()), random_tokens(2, 4)
    mask = torch.full((model.graph.n_edges,), 0.5)
    weights = {n: w.clone() for n, w in model.weights.items()}

    def run(with_edges: bool, with_weights: bool) -> tuple:
        edges = mask.clone().requires_grad_(with_edges)
        leaves = {n: w.clone().requires_grad_(with_weights) for n, w in weights.items()}
        model.hidden(tokens, weights=leaves, edge_mask=edges).pow(2).sum().backward()
        return edges.grad, [leaf.grad for leaf in leaves.values()]

    both, edges_only, weights_only = run(True, True), run(True, False), run(False, True)
    torch.testing.assert_close(edges_only[0], both[0])
    assert all(g is None for g in edges_only[1])
    assert weights_only[0] is None
    for a, b in zip(weights_only[1], both[1], strict=True):
        torch.testing.assert_close(a, b)


# -- no mode ------------------------------------------------------------------------------------


@all_models(SLOW)
def test_nothing_is_left_switched_on_or_off(make):
    model, tokens = masked(make()), random_tokens(2, 5)
    sheaf = random_sheaf(model, 0.5, 0.5)
    kept = model.flat_weights.clone()
    full, under = model.logits(tokens), model.logits(tokens, sheaf)
    mask = torch.rand(model.graph.n_edges).requires_grad_()
    model.hidden(tokens, edge_mask=mask).sum().backward()
    model.hidden(tokens, edge_mask=mask.detach(), reference=model.sender_outputs(tokens))
    assert torch.equal(model.logits(tokens), full)
    assert torch.equal(model.logits(tokens, sheaf), under)
    assert torch.equal(model.flat_weights, kept)
    assert not any(w.requires_grad for w in model.weights.values())


def test_evaluating_between_forward_and_backward_does_not_change_gradients():
    model, tokens = masked(random_gpt2()), random_tokens(2, 5)
    sheaf = random_sheaf(model, 0.5, 0.5)

    def gradient(evaluate: bool) -> Tensor:
        mask = torch.full((model.graph.n_edges,), 0.5, requires_grad=True)
        hidden = model.hidden(tokens, edge_mask=mask, last=torch.tensor([4, 2]))
        if evaluate:
            model.logits(tokens, sheaf)
            model.sender_outputs(tokens)
        hidden.sum().backward()
        return mask.grad

    assert torch.equal(gradient(False), gradient(True))


@pytest.mark.parametrize("last", [None, torch.tensor([4, 2])])
def test_second_backward_through_one_graph_is_the_first_again(last):
    model, tokens = masked(random_gpt2()), random_tokens(2, 5)
    mask = torch.full((model.graph.n_edges,), 0.5, requires_grad=True)
    hidden = model.hidden(tokens, edge_mask=mask, last=last)
    loss = hidden.pow(2).sum()
    first = torch.autograd.grad(loss, mask, retain_graph=True)[0]
    second = torch.autograd.grad(loss, mask, retain_graph=True)[0]
    assert torch.equal(first, second)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("edge_density", [0.5, 1.0])
@pytest.mark.parametrize("weight_density", [0.5, 1.0])
def test_sheaf_of_another_model_is_refused(edge_density, weight_density):
    """Whatever of it is whole: also one that cuts only edges, or nothing."""
    model, tokens = masked(random_gpt2()), random_tokens(1, 3)
    other_weights = masked(random_gpt2(seed=1), sha256="1" * 64)
    other_shape = masked(random_gpt2(layers=1))
    for other in (other_weights, other_shape):
        sheaf = random_sheaf(other, edge_density, weight_density)
        with pytest.raises(SheafError, match="belongs to the model"):
            model.logits(tokens, sheaf)
        with pytest.raises(SheafError, match="belongs to the model"):
            model.masked_weights(sheaf)


def test_masked_weights_are_weights_or_zero():
    model = masked(random_llama())
    sheaf = random_sheaf(model, 0.5, 0.5)
    for name, weight in model.masked_weights(sheaf).items():
        mask = sheaf.weight_masks[name]
        assert torch.equal(weight[mask], model.weights[name][mask])
        assert not weight[~mask].any()
    assert model.vocabulary_size == VOCABULARY


def test_supported_activations_are_zero_at_zero():
    """Post-hoc pruning counts on it."""
    for activation in ACTIVATIONS.values():
        assert float(activation(torch.zeros(()))) == 0


@pytest.mark.parametrize("device", ["foo", "", "cuda:99", "meta", "mtia"])
def test_a_device_that_is_not_there_is_told(device: str):
    with pytest.raises(ConfigError, match=f"The device '{device}' cannot be used here") as error:
        load_model("mini", device)
    assert "\n" not in str(error.value)
