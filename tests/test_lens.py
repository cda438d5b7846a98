"""The TransformerLens bridge and the engine: two implementations, one sheaf, the same logits."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import discogp_lib as dgp
from discogp_lib.checkpoints import load_checkpoint
from discogp_lib.errors import ConfigError, SheafError
from discogp_lib.hf_directory import quiet_transformers
from discogp_lib.model import MaskedTransformer
from discogp_lib.paths import PACKAGE
from discogp_lib.sheaf import Sheaf
from tests.reference import masked, random_gpt2, random_llama, random_sheaf, random_tokens

TOKENS = random_tokens(3, 7)


def saved(hf: Any, directory: Path) -> MaskedTransformer:
    """The model as a user has it: loaded from a directory."""
    with quiet_transformers():
        hf.save_pretrained(directory)
        masked(hf).tokenizer.save_pretrained(directory)
    return dgp.load_model(directory)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MaskedTransformer]:
    folder = tmp_path_factory.mktemp("lens")
    makes = {
        "gpt2": random_gpt2(layers=3),
        "llama": random_llama(),
        "llama with biases": random_llama(attention_bias=True, mlp_bias=True),
    }
    return {name: saved(hf, folder / name) for name, hf in makes.items()}


@pytest.fixture(scope="module")
def gpt2(models: dict[str, MaskedTransformer]) -> MaskedTransformer:
    return models["gpt2"]


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama with biases"])
@pytest.mark.parametrize(
    ("edges", "weights", "seed"),
    [(1.0, 0.7, 0), (0.8, 1.0, 1), (0.7, 0.8, 2), (0.4, 0.9, 3), (0.0, 1.0, 4)],
)
def test_bridge_and_engine_agree(
    models: dict[str, MaskedTransformer], name: str, edges: float, weights: float, seed: int
) -> None:
    sheaf = random_sheaf(models[name], edges, weights, seed)
    with torch.no_grad():
        found = dgp.lens_model(models[name], sheaf)(TOKENS)
    close(found, models[name].logits(TOKENS, sheaf))


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama with biases"])
def test_full_sheaf_is_the_checkpoint(models: dict[str, MaskedTransformer], name: str) -> None:
    model = models[name]
    bridge = dgp.lens_model(model, Sheaf.full(model))
    with torch.no_grad():
        close(bridge(TOKENS), load_checkpoint(model.name).model(TOKENS).logits)


def test_the_sheaf_is_seen(gpt2: MaskedTransformer) -> None:
    """A bridge that ignored its masks would differ from the engine by far more than allowed."""
    full = gpt2.logits(TOKENS)
    for edges, weights in ((0.7, 1.0), (1.0, 0.7)):
        bridge = dgp.lens_model(gpt2, random_sheaf(gpt2, edges, weights))
        assert (bridge(TOKENS) - full).abs().max() > 0.1


def test_the_callers_model_is_untouched(gpt2: MaskedTransformer) -> None:
    before, weights = gpt2.logits(TOKENS), gpt2.flat_weights.clone()
    sheaf = random_sheaf(gpt2, 0.5, 0.5)
    bridge = dgp.lens_model(gpt2, sheaf)
    bridge(TOKENS)
    assert torch.equal(gpt2.flat_weights, weights)
    assert torch.equal(gpt2.logits(TOKENS), before)
    parameters = dict(load_checkpoint(gpt2.name).model.named_parameters())
    assert all(torch.equal(parameters[n], w) for n, w in gpt2.weights.items())


def cut(model: MaskedTransformer, *edges: str) -> Sheaf:
    sheaf = Sheaf.full(model)
    mask = sheaf.edge_mask.clone()
    mask[[model.graph.edge_index[edge] for edge in edges]] = False
    return replace(sheaf, edge_mask=mask)


def test_cache_under_the_sheaf_holds_the_masked_sums(gpt2: MaskedTransformer) -> None:
    """One query input loses the embedding and one head, bias share included; nothing else does."""
    sheaf = cut(gpt2, "input->a1.h2<q>", "a0.h1->a1.h2<q>")
    logits, cache = dgp.lens_model(gpt2, sheaf).run_with_cache(TOKENS)
    close(logits, gpt2.logits(TOKENS, sheaf))
    stream = cache["blocks.1.hook_resid_pre"]
    share = gpt2.layout.block(gpt2.weights, 0).b_o / gpt2.graph.n_heads
    head = cache["blocks.0.attn.hook_result"][:, :, 1] + share
    inputs = cache["blocks.1.attn.hook_q_input"]
    close(inputs[:, :, 2], stream - cache["blocks.0.hook_resid_pre"] - head, 1e-5)
    close(inputs[:, :, 0], stream, 1e-5)
    close(cache["blocks.1.attn.hook_k_input"][:, :, 2], stream, 1e-5)
    close(cache["blocks.1.hook_mlp_in"], cache["blocks.1.hook_resid_mid"], 1e-5)


def test_the_logits_read_only_kept_senders(gpt2: MaskedTransformer) -> None:
    senders = [s for s in gpt2.graph.senders if s != "m2"]
    sheaf = cut(gpt2, *(f"{sender}->logits" for sender in senders))
    _, cache = dgp.lens_model(gpt2, sheaf).run_with_cache(TOKENS)
    close(cache["ln_final.hook_in"], cache["blocks.2.hook_mlp_out"], 1e-6)


@pytest.mark.parametrize("point", ["attn.hook_result", "hook_mlp_out", "hook_resid_pre"])
def test_patches_of_a_sender_reach_its_kept_receivers_alone(
    gpt2: MaskedTransformer, point: str
) -> None:
    """A sender with no edge left can be patched at will; with one edge the logits change."""
    sender = {"attn.hook_result": "a0.h1", "hook_mlp_out": "m0", "hook_resid_pre": "input"}[point]
    edges = [edge for edge in gpt2.graph.edges if edge.startswith(f"{sender}->")]

    def patch(value: Tensor, hook: Any) -> Tensor:
        value = value.clone()
        (value[:, :, 1] if point == "attn.hook_result" else value).add_(
            torch.arange(value.shape[-1]) % 3
        )
        return value

    for kept, changes in ((edges, False), ([e for e in edges if e[-6:] != "logits"], True)):
        bridge = dgp.lens_model(gpt2, cut(gpt2, *kept))
        plain = bridge(TOKENS)
        patched = bridge.run_with_hooks(TOKENS, fwd_hooks=[(f"blocks.0.{point}", patch)])
        assert (not torch.equal(patched, plain)) == changes
        close(bridge(TOKENS), plain, 0)


def test_hooks_survive_a_reset_and_stopped_passes(gpt2: MaskedTransformer) -> None:
    sheaf = random_sheaf(gpt2, 0.6, 0.9)
    bridge = dgp.lens_model(gpt2, sheaf)
    bridge(TOKENS, stop_at_layer=1)
    bridge.reset_hooks()
    close(bridge(TOKENS), gpt2.logits(TOKENS, sheaf))


def test_generation_with_a_cache_stays_inside_the_sheaf(gpt2: MaskedTransformer) -> None:
    sheaf = random_sheaf(gpt2, 0.6, 0.9)
    found = dgp.lens_model(gpt2, sheaf).generate(
        TOKENS, max_new_tokens=4, do_sample=False, stop_at_eos=False, verbose=False
    )
    expected = TOKENS
    for _ in range(4):
        best = gpt2.logits(expected, sheaf)[:, -1:].argmax(-1)
        expected = torch.cat([expected, best], dim=1)
    assert torch.equal(found, expected)


def test_mini_model_reads_text_as_its_tasks_do() -> None:
    model = dgp.load_model("mini")
    split = dgp.load_task("ioi", model).test
    sheaf = random_sheaf(model, 0.7, 0.9)
    bridge = dgp.lens_model(model, sheaf)
    row = split.tokens[0, : split.lengths[0]]
    assert torch.equal(bridge.to_tokens(split.prompts[0])[0], row)
    with torch.no_grad():
        close(bridge(split.prompts[0])[0], model.logits(row[None], sheaf)[0])


def test_what_cannot_be_done_is_said(gpt2: MaskedTransformer) -> None:
    sheaf = random_sheaf(gpt2, 0.6, 1.0)
    bridge = dgp.lens_model(gpt2, sheaf)
    with pytest.raises(ConfigError, match="start_at_layer"):
        bridge(torch.zeros(1, 3, gpt2.layout.d_model), start_at_layer=1)
    mean = replace(sheaf, metadata={"config": {"ablation": "mean"}})
    with pytest.raises(SheafError, match="zero ablation"):
        dgp.lens_model(gpt2, mean)


def test_a_directory_with_other_weights_is_refused(tmp_path: Path) -> None:
    model = saved(random_gpt2(), tmp_path)
    sheaf = Sheaf.full(model)
    saved(random_gpt2(seed=1), tmp_path)
    with pytest.raises(SheafError, match="belongs to the model"):
        dgp.lens_model(model, sheaf)


def test_the_library_imports_without_transformer_lens() -> None:
    """Importing it takes seconds: one module does, and only when it is called."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        assert any(map(is_lens_import, ast.walk(module))) == (path.name == "lens.py"), path
        assert not any(map(is_lens_import, module.body)), path


def is_lens_import(node: ast.AST) -> bool:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.split(".")[0] == "transformer_lens" for name in names)
