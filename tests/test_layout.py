"""Where weights lie: names and shapes are Hugging Face's, and every weight is in one block."""

from dataclasses import fields

import pytest
import torch

from discogp_lib.layout import Layout, unflatten
from tests.reference import masked, random_gpt2, random_llama

GPT2_SMALL = Layout("gpt2", 12, 12, 12, 768, 64, 3072, True, True)
MODELS = {
    "gpt2": random_gpt2,
    "llama": random_llama,
    "llama with biases": lambda: random_llama(attention_bias=True, mlp_bias=True),
    "llama, wide heads": lambda: random_llama(heads=2, kv_heads=1, d_head=10),
}


def test_gpt2_small_has_85_million_maskable_weights():
    assert GPT2_SMALL.n_weights == 85_017_600
    # Per layer: c_attn, c_proj, c_fc, c_proj, with their biases.
    d = 768
    per_layer = d * 3 * d + 3 * d + d * d + d + d * 4 * d + 4 * d + 4 * d * d + d
    assert 12 * per_layer == 85_017_600


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_all_attention_and_mlp_parameters_and_no_others(make):
    hf = make()
    model = masked(hf)
    unmasked = ("wte", "wpe", "ln_", "norm", "embed_tokens", "lm_head")
    expected = {
        name: tuple(parameter.shape)
        for name, parameter in hf.named_parameters()
        if not any(part in name for part in unmasked)
    }
    assert model.layout.weight_shapes == expected
    assert model.n_weights == sum(parameter.numel() for parameter in model.weights.values())
    for name, parameter in hf.named_parameters():
        if name in expected:
            assert torch.equal(model.weights[name], parameter)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_blocks_are_views_that_hold_every_weight_once(make):
    layout = masked(make()).layout
    counts = torch.zeros(layout.n_weights)
    by_name = unflatten(counts, layout)
    for layer in range(layout.n_layers):
        block = layout.block(by_name, layer)
        for field in fields(block):
            value = getattr(block, field.name)
            if value is not None:
                value += 1
    assert torch.equal(counts, torch.ones(layout.n_weights))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_blocks_have_one_common_form(make):
    model = masked(make())
    layout = model.layout
    block = layout.block(model.weights, 1)
    h, kv, d, dh = layout.n_heads, layout.n_kv_heads, layout.d_model, layout.d_head
    assert block.w_q.shape == (h, d, dh)
    assert block.w_k.shape == block.w_v.shape == (kv, d, dh)
    assert block.w_o.shape == (h, dh, d)
    assert block.w_in.shape == (d, layout.d_mlp)
    assert block.w_out.shape == (layout.d_mlp, d)
    assert (block.w_gate is not None) == (layout.architecture == "llama")
    assert (block.b_q is not None) == layout.attention_bias


def test_a_head_of_gpt2_lies_in_its_own_columns_and_rows():
    model = masked(random_gpt2(layers=1, heads=3, d_head=4))
    block = model.layout.block(model.weights, 0)
    attention = model.weights["transformer.h.0.attn.c_attn.weight"]
    assert torch.equal(block.w_q[1], attention[:, 4:8])
    assert torch.equal(block.w_k[2], attention[:, 12 + 8 : 24])
    assert torch.equal(block.w_v[0], attention[:, 24:28])
    assert torch.equal(block.w_o[1], model.weights["transformer.h.0.attn.c_proj.weight"][4:8])


def test_unflatten_goes_in_checkpoint_order():
    layout = Layout("gpt2", 2, 1, 1, 2, 2, 3, True, True)
    flat = torch.arange(layout.n_weights)
    parts = unflatten(flat, layout)
    assert list(parts) == list(layout.weight_shapes)
    assert torch.equal(torch.cat([part.flatten() for part in parts.values()]), flat)
    parts["transformer.h.1.mlp.c_fc.bias"][:] = -1
    assert int((flat == -1).sum()) == 3
