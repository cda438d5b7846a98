"""Controls have exactly the sizes they are asked for, and nothing of what they control for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import discogp_lib as dgp
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import label_logits
from discogp_lib.layout import unflatten
from discogp_lib.methods.controls import (
    MagnitudeConfig,
    MatchedConfig,
    RandomConfig,
    magnitude,
    places,
    random,
    random_matched,
    shuffled,
    untrained,
)
from discogp_lib.sheaf import Sheaf
from tests.reference import (
    masked,
    planted_gpt2,
    planted_task,
    random_gpt2,
    random_llama,
    random_sheaf,
    random_tokens,
)

TASK = planted_task(8)


@pytest.fixture(scope="module", params=[random_gpt2, random_llama], ids=["gpt2", "llama"])
def model(request):
    return masked(request.param())


@given(edges=st.integers(0, 46), weights=st.integers(0, 2_000), seed=st.integers(0, 9))
def test_random_masks_have_the_densities_of_any_sheaf(edges, weights, seed):
    model = masked(planted_gpt2())
    share, weight_share = edges / model.graph.n_edges, weights / model.n_weights
    config = RandomConfig(edge_density=share, weight_density=weight_share)
    sheaf = random(model, TASK, config, seed)
    assert (sheaf.kept_edges, sheaf.kept_weights) == (edges, weights)
    assert sheaf == random(model, TASK, config, seed)
    if 10 < edges < 36:
        assert sheaf != random(model, TASK, config, seed + 1)


def test_matched_masks_keep_a_sheafs_counts_in_every_place(model):
    sheaf = random_sheaf(model, 0.3, 0.1)
    config = MatchedConfig.like(sheaf)
    control = random_matched(model, TASK, config, seed=1)
    assert control != sheaf
    for group in model.graph.groups:
        kept, drawn = (group.matrix(s.edge_mask).sum(1) for s in (sheaf, control))
        assert torch.equal(kept, drawn)
    for name, mask in sheaf.weight_masks.items():
        assert int(control.weight_masks[name].sum()) == int(mask.sum())
    for layer in range(model.layout.n_layers):
        ours, theirs = (
            model.layout.block(s.weight_masks, layer).w_q.flatten(1).sum(1)
            for s in (control, sheaf)
        )
        assert torch.equal(ours, theirs)
    assert MatchedConfig.from_dict(config.as_dict()) == config


def test_places_are_parameters_of_nodes():
    layout = masked(random_gpt2(layers=2, heads=3)).layout
    where = unflatten(places(layout), layout)
    query = where["transformer.h.0.attn.c_attn.weight"].view(12, 3, 3, 4)
    assert (query == query[:1, :, :, :1]).all()
    assert len(query.unique()) == 9
    assert len(where["transformer.h.1.attn.c_proj.weight"].unique()) == 3
    assert len(where["transformer.h.1.mlp.c_fc.weight"].unique()) == 1
    # query, key, value and output matrix and three biases of 3 heads, and five parameters more
    assert int(places(layout).max()) + 1 == 2 * (7 * 3 + 5)


def test_matching_needs_a_sheaf_of_the_model(model):
    with pytest.raises(ConfigError, match="needs the counts of a sheaf"):
        random_matched(model, TASK)
    other = masked(random_gpt2(layers=1))
    with pytest.raises(ConfigError, match="another shape"):
        random_matched(model, TASK, MatchedConfig.like(Sheaf.full(other)))


@pytest.mark.parametrize("density", [0.0, 0.03, 1.0])
def test_magnitude_keeps_the_largest_weights_and_every_edge(model, density):
    sheaf = magnitude(model, TASK, MagnitudeConfig(weight_density=density))
    mask, size = sheaf.flat_weight_mask, model.flat_weights.abs()
    assert sheaf.kept_weights == round(density * model.n_weights)
    assert sheaf.keeps_all_edges
    if 0 < density < 1:
        assert size[mask].min() >= size[~mask].max()


def test_shuffled_pairs_are_right_half_of_the_time():
    task = planted_task(200)
    other = shuffled(task, seed=3)
    for ours, theirs in ((other.train, task.train), (other.dev, task.dev)):
        assert torch.equal(ours.labels, theirs.labels)
        assert 0.4 < float((ours.targets == theirs.targets).float().mean()) < 0.6
    assert torch.equal(other.test.targets, task.test.targets)
    assert other.sha256 != task.sha256
    assert other.sha256 == shuffled(task, seed=3).sha256 != shuffled(task, seed=4).sha256


def test_shuffled_facts_keep_their_frequencies():
    model = dgp.load_model("mini")
    task = dgp.load_task("pararel/P30", model)
    other = shuffled(task)
    assert torch.equal(other.train.targets.bincount(), task.train.targets.bincount())
    assert not torch.equal(other.train.targets, task.train.targets)


def test_an_untrained_copy_has_the_shape_and_nothing_else(model):
    before = model.logits(random_tokens(2, 4)).clone()
    copy = untrained(model, seed=1)
    assert copy.layout == model.layout
    assert copy.checkpoint_sha256 != model.checkpoint_sha256
    assert copy.checkpoint_sha256 != untrained(model, seed=2).checkpoint_sha256
    assert torch.equal(copy.flat_weights, untrained(model, seed=1).flat_weights)
    assert torch.equal(model.logits(random_tokens(2, 4)), before)
    assert not torch.allclose(copy.logits(random_tokens(2, 4)), before, atol=1e-2)
    biases = [w for n, w in copy.weights.items() if n.endswith("bias")]
    assert all(not bias.any() for bias in biases)
    with pytest.raises(dgp.DiscoGPError, match="untrained"):
        Sheaf.full(model).check_fits(copy)


def test_an_untrained_copy_guesses():
    model = dgp.load_model("mini")
    task = dgp.load_task("ioi", model)
    logits = label_logits(untrained(model), task.test)
    assert float((logits.argmax(-1) == task.test.targets).float().mean()) < 0.65
