"""ACDC: chains give what judging one edge at a time gives, and budgets are met."""

from itertools import pairwise

import pytest
import torch

import discogp_lib as dgp
from discogp_lib.ablation import reference_for
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import final_states, kl_divergence, project_labels
from discogp_lib.methods import measured_kl
from discogp_lib.methods.acdc import AcdcConfig, AcdcSearch, acdc
from discogp_lib.methods.budget import edge_sheaf, some_prompts
from discogp_lib.methods.measured_kl import MeasuredKL
from discogp_lib.methods.suffix import SuffixStream, blocks, dead_receivers
from tests.reference import (
    make_split,
    make_task,
    masked,
    planted_gpt2,
    planted_task,
    random_gpt2,
    random_llama,
    random_tokens,
)

ABLATIONS = ["zero", "mean", "interchange"]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request):
    if request.param == "gpt2":
        return masked(random_gpt2(layers=2, heads=2))
    return masked(random_llama(layers=2, heads=2, kv_heads=1))


@pytest.fixture(scope="module")
def task():
    """Six prompts of unequal length with three labels, and other prompts as corrupted ones."""
    lengths = torch.tensor([5, 3, 4, 5, 2, 5])
    inside = torch.arange(5) < lengths[:, None]
    tokens, corrupted = (torch.where(inside, random_tokens(6, 5, seed=s), 0) for s in (0, 1))
    labels, targets = torch.tensor([[3, 1, 7]]).repeat(6, 1), torch.tensor([0, 1, 2, 0, 1, 2])
    split = make_split(tokens, labels, targets, lengths=lengths, corrupted=corrupted)
    return make_task(split, split, split)


def label_kl(model, split, mask, reference) -> float:
    def log_labels(edge_mask):
        states = final_states(model, split, edge_mask=edge_mask, reference=reference)
        return project_labels(model, split, states).double().log_softmax(-1)

    full = torch.ones_like(mask)
    return float(kl_divergence(log_labels(full), log_labels(mask)).mean())


def one_at_a_time(model, task, config, seed=0):
    """ACDC from its definition: every edge from the last to the first, one whole pass each."""
    split = some_prompts(task, config.prompts, seed)
    reference = reference_for(config.ablation, model, task)
    mask, current = torch.ones(model.graph.n_edges, dtype=torch.bool), 0.0
    for edge in reversed(range(model.graph.n_edges)):
        mask[edge] = False
        after = label_kl(model, split, mask, reference)
        if after - current < config.threshold:
            current = after
        else:
            mask[edge] = True
    return edge_sheaf(model, mask, config.ablation)


@pytest.mark.parametrize(
    ("ablation", "threshold"), list(zip(ABLATIONS, [0.003, 0.01, 0.02], strict=True))
)
def test_chains_give_what_one_edge_at_a_time_gives(model, task, ablation, threshold):
    config = AcdcConfig(ablation=ablation, threshold=threshold)
    sheaf = acdc(model, task, config, progress=False)
    assert sheaf == one_at_a_time(model, task, config)
    assert 0 < sheaf.kept_edges < sheaf.n_edges
    assert sheaf.keeps_all_weights


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_what_is_downstream_of_a_block_is_the_whole_model(model, task, ablation):
    """Masks that differ in a block, later edges cut at random: the same KL as a whole pass."""
    split = some_prompts(task, 32, seed=0)
    kls = MeasuredKL(model, task, split, ablation)
    reference = reference_for(ablation, model, task)
    noise = torch.Generator().manual_seed(0)
    for block in blocks(model.graph):
        mask = torch.ones(model.graph.n_edges, dtype=torch.bool)
        mask[block.stop :] = torch.rand(len(mask) - block.stop, generator=noise) < 0.5
        masks = mask.repeat(3, 1)
        inside = torch.rand(3, block.stop - block.start, generator=noise) < 0.7
        masks[:, block.start : block.stop] = inside
        upstream = kls.upstream(block, mask, kls.outputs)
        found = kls.evaluate(upstream, masks)
        expected = [label_kl(model, split, m, reference) for m in masks]
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_blocks_are_all_edges_from_the_last_to_the_first(model):
    found = blocks(model.graph)
    assert found[0].stop == model.graph.n_edges
    assert found[-1].start == 0
    assert all(a.start == b.stop for a, b in pairwise(found))


@pytest.mark.parametrize("length", [1, 3])
def test_the_length_of_chains_does_not_matter(model, task, length):
    search = AcdcSearch(model, task, AcdcConfig())
    search.kls.most_masks = length
    usual = AcdcSearch(model, task, AcdcConfig()).run(0.01)
    assert torch.equal(search.run(0.01).mask, usual.mask)


def ranked(model, task, config, mask=None, current=0.0, least=0):
    """All blocks by the definition, up to the one that would leave too few edges."""
    mask = torch.ones(model.graph.n_edges, dtype=torch.bool) if mask is None else mask.clone()
    split = some_prompts(task, config.prompts, 0)
    reference = reference_for(config.ablation, model, task)
    written = MeasuredKL(model, task, split, config.ablation).outputs_under(mask)
    sizes = dict(zip(model.graph.senders, written.norm(dim=-1).mean(1).tolist(), strict=True))
    for block in blocks(model.graph):
        before = mask.clone()
        dead = dead_receivers(model.graph, block, mask, zero=reference is None)
        block.matrix(mask)[dead] = False
        edges = [e for e in reversed(range(block.start, block.stop)) if mask[e]]
        largest = sorted(edges, key=lambda e: -sizes[model.graph.edges[e].split("->")[0]])
        found = [(current + config.threshold * len(edges), current, mask)]
        for kept in [0, 1, 2, 4, 8, 16, 32, 64]:
            if edges and kept < len(edges):
                without = mask.clone()
                without[largest[kept:]] = False
                kl = label_kl(model, split, without, reference)
                found.append((kl + config.threshold * kept, kl, without))
        _, current, mask = min(found, key=lambda f: f[0])
        if edge_sheaf(model, mask, config.ablation).kept_edges < least:
            return edge_sheaf(model, before, config.ablation)
    return edge_sheaf(model, mask, config.ablation)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_judging_ranked_edges_is_what_it_says(model, task, ablation):
    config = AcdcConfig(ablation=ablation, threshold=0.003, ranked=True)
    expected = ranked(model, task, config)
    assert acdc(model, task, config, progress=False) == expected
    assert 0 < expected.kept_edges < expected.n_edges


def test_ranked_a_trial_stops_at_the_budget(model, task):
    search = AcdcSearch(model, task, AcdcConfig(ranked=True))
    start = search.run(1e-4)
    config = AcdcConfig(threshold=0.05, ranked=True)
    free = ranked(model, task, config, start.mask, start.kl)
    for least in range(free.kept_edges + 1, start.edges, 3):
        trial = search.run(0.05, start=start, least=least)
        expected = ranked(model, task, config, start.mask, start.kl, least)
        assert search.sheaf(trial) == expected
        assert not trial.complete
        assert least <= trial.edges <= start.edges
        assert label_kl(model, search.kls.split, trial.mask, None) == pytest.approx(
            trial.kl, abs=1e-6
        )


@pytest.mark.parametrize("density", [0.2, 0.4, 0.6])
def test_ranked_a_stopped_trial_is_the_last(model, task, density):
    search = AcdcSearch(model, task, AcdcConfig(edge_density=density, ranked=True))
    best = search.tune(density)
    assert best is search.trials[-1]
    assert best.edge_density >= density
    assert all(trial.complete for trial in search.trials[:-1])


def test_a_planted_circuit_is_found_ranked():
    model, task = masked(planted_gpt2()), planted_task()
    one_by_one, together = (
        AcdcSearch(model, task, AcdcConfig(threshold=0.05, ranked=ranked))
        for ranked in (False, True)
    )
    sheaf = together.sheaf(together.run(0.05))
    assert dgp.evaluate(model, sheaf, task.test).accuracy == 1.0
    assert sheaf.kept_edges <= 10
    one_by_one.run(0.05)
    assert together.kls.evaluated < one_by_one.kls.evaluated


@pytest.mark.parametrize("name", ["blimp/anaphor_gender_agreement", "pararel/P36"])
def test_ranked_edges_do_a_task_as_well_as_edges_judged_one_by_one(name):
    """On the mini model, at 6 % of the edges; dev prompts."""
    model = dgp.load_model("mini")
    task = dgp.load_task(name, model)
    accuracies = []
    for ranked in (False, True):
        config = AcdcConfig(prompts=16, edge_density=0.06, ranked=ranked)
        sheaf = acdc(model, task, config, progress=False)
        assert 0.06 <= sheaf.edge_density < 0.075
        accuracies.append(dgp.evaluate(model, sheaf, task.dev).accuracy)
    assert accuracies[1] > accuracies[0] - 0.03 > 0.9


def test_a_planted_circuit_is_found():
    model, task = masked(planted_gpt2()), planted_task()
    sheaf = acdc(model, task, AcdcConfig(threshold=0.05), progress=False)
    assert dgp.evaluate(model, sheaf, task.test).accuracy == 1.0
    assert {"a0.h0->a1.h1<v>", "a1.h1->m1", "m1->logits"} <= set(sheaf.edges)
    assert sheaf.kept_edges <= 10


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_the_budget_is_met_and_hardly_exceeded(task, ablation):
    density = 0.25
    model = masked(random_gpt2(layers=2, heads=2))
    config = AcdcConfig(ablation=ablation, edge_density=density)
    sheaf = acdc(model, task, config, progress=False)
    found = sheaf.metadata["found"]
    assert found["status"] == "reached"
    assert sheaf.edge_density >= density
    near = sheaf.kept_edges <= 1.02 * density * sheaf.n_edges + 2
    too_few = [t for t in found["trials"] if t["start"] == found["threshold"]]
    closest = min((t["threshold"] / found["threshold"] for t in too_few), default=9.0)
    assert near or closest < 1.05
    assert any(t["edges"] == sheaf.kept_edges and t["complete"] for t in found["trials"])


@pytest.mark.parametrize(
    ("ranked", "first", "fall"), [(False, 1e-4, 10.0), (True, 1e-3, 10.0**0.5)]
)
def test_a_budget_that_no_threshold_leaves_is_told(ranked, first, fall):
    """Most of the planted model does nothing at all."""
    model, task = masked(planted_gpt2()), planted_task(16)
    config = AcdcConfig(edge_density=0.9, ranked=ranked)
    found = (sheaf := acdc(model, task, config, progress=False)).metadata["found"]
    assert found["status"] == "no threshold leaves as many edges"
    assert sheaf.kept_edges == max(t["edges"] for t in found["trials"])
    thresholds = [t["threshold"] for t in found["trials"]]
    assert thresholds == pytest.approx([first / fall**i for i in range(len(thresholds))])
    assert thresholds[-1] == pytest.approx(1e-6)


def test_an_interrupted_search_goes_on_where_it_was(task, tmp_path, monkeypatch):
    model = masked(random_gpt2(layers=2, heads=2))
    config, path = AcdcConfig(edge_density=0.2), tmp_path / "search"
    whole = acdc(model, task, config, progress=False)
    monkeypatch.setattr(measured_kl, "SAVE_EVERY", 8)
    passes = []
    init = SuffixStream.__init__

    def interrupted(self, *given):
        passes.append(1)
        if len(passes) == 20:
            raise KeyboardInterrupt
        init(self, *given)

    monkeypatch.setattr(SuffixStream, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        acdc(model, task, config, checkpoint=path, progress=False)
    resumed = acdc(model, task, config, checkpoint=path, progress=False)
    assert resumed == whole
    assert resumed.metadata["found"]["trials"] == whole.metadata["found"]["trials"]
    assert resumed.metadata["found"]["evaluated"] == whole.metadata["found"]["evaluated"]


def test_settings_that_contradict_each_other():
    with pytest.raises(ConfigError, match="not both"):
        AcdcConfig(threshold=0.1, edge_density=0.1)
    with pytest.raises(ConfigError, match="above 0"):
        AcdcConfig(threshold=0.0)
    with pytest.raises(ConfigError, match="0 to 1"):
        AcdcConfig(edge_density=5.0)
    config = AcdcConfig(edge_density=0.1)
    assert AcdcConfig.from_dict(config.as_dict()) == config
    assert config.sha256() != AcdcConfig(edge_density=0.2).sha256()
