"""Post-hoc pruning drops what cannot matter, and never what can."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discogp_lib.sheaf import Sheaf
from tests.reference import masked, random_gpt2, random_llama, random_sheaf, random_tokens

MODELS = {
    "gpt2": masked(random_gpt2(layers=2, heads=3, d_head=2)),
    "gpt2, deep": masked(random_gpt2(layers=4, heads=2, d_head=2, n_inner=5)),
    "llama": masked(random_llama(layers=2, heads=4, kv_heads=2)),
    "llama, biases": masked(random_llama(layers=2, attention_bias=True, mlp_bias=True)),
    "llama, deep": masked(random_llama(layers=3, heads=3, kv_heads=1, d_head=2)),
}
TOKENS = random_tokens(3, 5)
DENSITY = st.sampled_from([0.003, 0.01, 0.03, 0.1, 0.3, 0.7, 1.0])


def sheaf_of(model, edge_density, weight_density, biases: str, seed: int) -> Sheaf:
    sheaf = random_sheaf(model, edge_density, weight_density, seed)
    for name, mask in sheaf.weight_masks.items():
        if name.endswith("bias") and biases != "drawn":
            mask.fill_(biases == "kept")
    return sheaf


def is_within(small: Sheaf, large: Sheaf) -> bool:
    return (small & large) == small


# -- on random sheaves --------------------------------------------------------------------------


@settings(max_examples=45)
@given(
    name=st.sampled_from(sorted(MODELS)),
    edge_density=DENSITY,
    weight_density=DENSITY,
    biases=st.sampled_from(["drawn", "cut", "kept"]),
    seed=st.integers(0, 10_000),
)
def test_logits_stay_nothing_is_added_and_twice_is_once(
    name, edge_density, weight_density, biases, seed
):
    model = MODELS[name]
    sheaf = sheaf_of(model, edge_density, weight_density, biases, seed)
    pruned = sheaf.pruned()
    torch.testing.assert_close(
        model.logits(TOKENS, pruned), model.logits(TOKENS, sheaf), atol=1e-5, rtol=0
    )
    assert is_within(pruned, sheaf)
    assert pruned.pruned() == pruned


@settings(max_examples=20)
@given(
    name=st.sampled_from(sorted(MODELS)),
    seed=st.integers(0, 10_000),
    biases=st.sampled_from(["drawn", "cut"]),
)
def test_no_edge_to_a_node_without_a_path_is_left(name, seed, biases):
    model = MODELS[name]
    pruned = sheaf_of(model, 0.1, 0.1, biases, seed).pruned()
    live = model.graph.live_senders(pruned.edge_mask)
    for group in model.graph.groups:
        readers = model.graph.live_receivers(group, live)
        assert not group.matrix(pruned.edge_mask)[~readers].any()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_full_and_empty_stay(model):
    assert Sheaf.full(model).pruned() == Sheaf.full(model)
    assert Sheaf.empty(model).pruned() == Sheaf.empty(model)


def test_pruning_bites_on_sparse_sheaves():
    """The property above would also hold for a pruning that drops nothing."""
    for model in MODELS.values():
        sheaf = random_sheaf(model, 0.3, 0.03)
        pruned = sheaf.pruned()
        assert pruned.kept_edges < sheaf.kept_edges
        assert pruned.kept_weights < 0.8 * sheaf.kept_weights


def test_masks_in_any_memory_order_are_taken():
    model = MODELS["gpt2"]
    sheaf = random_sheaf(model, 0.5, 0.2)
    turned = {
        name: mask.T.contiguous().T if mask.ndim == 2 else mask
        for name, mask in sheaf.weight_masks.items()
    }
    same = Sheaf(sheaf.layout, "random", sheaf.checkpoint_sha256, sheaf.edge_mask, turned)
    assert same.pruned() == sheaf.pruned()
    torch.testing.assert_close(model.logits(TOKENS, same), model.logits(TOKENS, sheaf))


# -- rule by rule -------------------------------------------------------------------------------


def cut_edges(sheaf: Sheaf, *starts_or_ends: str) -> None:
    """Cut every edge that begins with `x->` or ends with `->x`."""
    for i, name in enumerate(sheaf.layout.graph.edges):
        if any(name.startswith(part) or name.endswith(part) for part in starts_or_ends):
            sheaf.edge_mask[i] = False


def gone(before: Sheaf, after: Sheaf) -> tuple[set[str], dict[str, int]]:
    """Edges and, by parameter, number of weights that pruning took."""
    edges = set(before.edges) - set(after.edges)
    weights = {
        name.removeprefix("transformer.").removeprefix("model."): int(
            (mask & ~after.weight_masks[name]).sum()
        )
        for name, mask in before.weight_masks.items()
    }
    return edges, {name: n for name, n in weights.items() if n}


def gpt2_sheaf(layers: int = 1) -> tuple[Sheaf, dict[str, torch.Tensor]]:
    """The full sheaf of a GPT-2 of 2 heads of 2 dimensions, 5 neurons."""
    model = masked(random_gpt2(layers=layers, heads=2, d_head=2, n_inner=5))
    sheaf = Sheaf.full(model)
    return sheaf, {n.removeprefix("transformer."): m for n, m in sheaf.weight_masks.items()}


def test_neuron_that_writes_nothing_is_dead():
    sheaf, masks = gpt2_sheaf()
    masks["h.0.mlp.c_proj.weight"][3] = False
    assert gone(sheaf, sheaf.pruned()) == (
        set(),
        {"h.0.mlp.c_fc.weight": 4, "h.0.mlp.c_fc.bias": 1},
    )


def test_neuron_that_gets_nothing_is_dead_unless_it_has_a_bias():
    sheaf, masks = gpt2_sheaf()
    masks["h.0.mlp.c_fc.weight"][:, 3] = False
    assert sheaf.pruned() == sheaf  # gelu of its bias is not zero
    masks["h.0.mlp.c_fc.bias"][3] = False
    assert gone(sheaf, sheaf.pruned()) == (set(), {"h.0.mlp.c_proj.weight": 4})


def test_mlp_without_weights_stays_for_its_output_bias():
    sheaf, masks = gpt2_sheaf()
    masks["h.0.mlp.c_fc.weight"][:] = False
    masks["h.0.mlp.c_fc.bias"][:] = False
    edges, weights = gone(sheaf, sheaf.pruned())
    assert edges == {"input->m0", "a0.h0->m0", "a0.h1->m0"}  # it hears nothing ...
    assert weights == {"h.0.mlp.c_proj.weight": 20}
    assert "m0->logits" in sheaf.pruned().edges  # ... but still says its bias
    masks["h.0.mlp.c_proj.bias"][:] = False
    assert "m0->logits" not in sheaf.pruned().edges


def test_silent_head_goes_with_all_that_feeds_it():
    sheaf, masks = gpt2_sheaf()
    masks["h.0.attn.c_proj.weight"][2:] = False  # head 1 writes nothing
    masks["h.0.attn.c_proj.bias"][:] = False
    edges, weights = gone(sheaf, sheaf.pruned())
    assert edges == {
        *(f"input->a0.h1<{x}>" for x in "qkv"),
        "a0.h1->m0",
        "a0.h1->logits",
    }
    # q, k and v of two dimensions each, from four inputs, and their biases.
    assert weights == {"h.0.attn.c_attn.weight": 24, "h.0.attn.c_attn.bias": 6}


def test_head_without_weights_stays_for_its_share_of_the_output_bias():
    sheaf, masks = gpt2_sheaf()
    masks["h.0.attn.c_attn.weight"].view(4, 3, 2, 2)[:, :, 1] = False
    masks["h.0.attn.c_attn.bias"].view(3, 2, 2)[:, 1] = False
    masks["h.0.attn.c_proj.weight"][2:] = False
    pruned = sheaf.pruned()
    edges, weights = gone(sheaf, pruned)
    assert edges == {f"input->a0.h1<{x}>" for x in "qkv"}
    assert weights == {}
    assert {"a0.h1->m0", "a0.h1->logits"} <= set(pruned.edges)
    # With one entry of the bias it is the same; with none the head is gone.
    masks["h.0.attn.c_proj.bias"][1:] = False
    assert "a0.h1->logits" in sheaf.pruned().edges
    masks["h.0.attn.c_proj.bias"][:] = False
    assert "a0.h1->logits" not in sheaf.pruned().edges


def test_values_that_do_not_differ_make_queries_and_keys_idle():
    """A head that takes the same from everywhere need not look."""
    sheaf, _ = gpt2_sheaf()
    cut_edges(sheaf, "->a0.h1<v>")
    edges, weights = gone(sheaf, sheaf.pruned())
    assert edges == {"input->a0.h1<q>", "input->a0.h1<k>"}
    assert weights == {"h.0.attn.c_attn.weight": 16, "h.0.attn.c_attn.bias": 4}  # q and k
    # The norm of nothing is the norm's bias, so the value weights still speak and stay.
    values = sheaf.pruned().weight_masks["transformer.h.0.attn.c_attn.weight"].view(4, 3, 2, 2)
    assert values[:, 2, 1].all()


def test_without_bias_an_rms_norm_of_nothing_is_nothing():
    model = masked(random_llama(layers=1, heads=2, kv_heads=2))
    sheaf = Sheaf.full(model)
    cut_edges(sheaf, "->a0.h1<v>")
    edges, weights = gone(sheaf, sheaf.pruned())
    assert edges == {"input->a0.h1<q>", "input->a0.h1<k>", "a0.h1->m0", "a0.h1->logits"}
    per_head = 4 * 12
    assert weights == {f"layers.0.self_attn.{x}_proj.weight": per_head for x in "qkvo"}


def test_query_and_key_dimensions_go_together():
    sheaf, masks = gpt2_sheaf()
    query = masks["h.0.attn.c_attn.weight"].view(4, 3, 2, 2)[:, 0, 0, 1]
    query[:] = False
    assert sheaf.pruned() == sheaf  # its bias is still compared with the key
    masks["h.0.attn.c_attn.bias"].view(3, 2, 2)[0, 0, 1] = False
    # The key's dimension 1 of head 0: four weights and a bias.
    assert gone(sheaf, sheaf.pruned()) == (
        set(),
        {"h.0.attn.c_attn.weight": 4, "h.0.attn.c_attn.bias": 1},
    )


def test_rotary_dimensions_live_in_pairs():
    """A query dimension meets the key dimension half a head further, once they are turned."""
    model = masked(random_llama(layers=1, heads=1, kv_heads=1, d_head=4))
    sheaf = Sheaf.full(model)
    masks = {n.removeprefix("model.layers.0.self_attn."): m for n, m in sheaf.weight_masks.items()}
    masks["q_proj.weight"][1] = False  # dimension 1; its partner 3 is there
    assert sheaf.pruned() == sheaf
    masks["q_proj.weight"][3] = False
    assert gone(sheaf, sheaf.pruned()) == (set(), {"layers.0.self_attn.k_proj.weight": 24})


def test_shared_key_lives_as_long_as_one_head_of_its_group():
    model = masked(random_llama(layers=1, heads=4, kv_heads=2))
    sheaf = Sheaf.full(model)
    cut_edges(sheaf, "a0.h0->", "a0.h1->")  # the first group
    edges, _ = gone(sheaf, sheaf.pruned())
    assert edges == {f"input->{x}" for x in ("a0.h0<q>", "a0.h1<q>", "a0.kv0<k>", "a0.kv0<v>")}
    sheaf = Sheaf.full(model)
    cut_edges(sheaf, "a0.h0->", "a0.h2->")  # one of each group
    edges, weights = gone(sheaf, sheaf.pruned())
    assert edges == {"input->a0.h0<q>", "input->a0.h2<q>"}
    assert weights == {f"layers.0.self_attn.{x}_proj.weight": 2 * 4 * 12 for x in "qo"}


def test_gated_neuron_needs_both_its_factors():
    model = masked(random_llama(layers=1))
    for factor, other in (("gate_proj", "up_proj"), ("up_proj", "gate_proj")):
        sheaf = Sheaf.full(model)
        sheaf.weight_masks[f"model.layers.0.mlp.{factor}.weight"][7] = False
        assert gone(sheaf, sheaf.pruned()) == (
            set(),
            {f"layers.0.mlp.{other}.weight": 12, "layers.0.mlp.down_proj.weight": 12},
        )


def test_node_without_a_path_to_the_logits_goes_and_so_on_backwards():
    sheaf, _ = gpt2_sheaf(layers=2)
    # m0 speaks to a1.h0 alone, and a1.h0 to nobody.
    cut_edges(sheaf, "m0->a1.h1<q>", "m0->a1.h1<k>", "m0->a1.h1<v>", "m0->m1", "m0->logits")
    cut_edges(sheaf, "a1.h0->")
    edges, weights = gone(sheaf, sheaf.pruned())
    senders = ("input", "a0.h0", "a0.h1", "m0")
    assert edges == {
        *(f"{s}->a1.h0<{x}>" for s in senders for x in "qkv"),
        *(f"{s}->m0" for s in senders[:3]),
    }
    assert weights == {
        "h.0.mlp.c_fc.weight": 20,
        "h.0.mlp.c_fc.bias": 5,
        "h.0.mlp.c_proj.weight": 20,
        "h.0.mlp.c_proj.bias": 4,
        "h.1.attn.c_attn.weight": 24,
        "h.1.attn.c_attn.bias": 6,
        "h.1.attn.c_proj.weight": 8,  # the output bias is also the other head's
    }


def test_edges_into_an_input_without_weights_go():
    sheaf, masks = gpt2_sheaf()
    masks["h.0.attn.c_attn.weight"].view(4, 3, 2, 2)[:, 0, 0] = False  # q of head 0, bias kept
    assert gone(sheaf, sheaf.pruned()) == ({"input->a0.h0<q>"}, {})
