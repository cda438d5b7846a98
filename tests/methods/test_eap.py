"""EAP against finite differences and exact effects; EAP-IG against what its path promises."""

import pytest
import torch

import discogp_lib as dgp
from discogp_lib.evaluate import final_states
from discogp_lib.methods.budget import at_least, by_score, edge_sheaf
from discogp_lib.methods.eap import (
    EapConfig,
    EapIgConfig,
    eap,
    eap_ig,
    eap_ig_scores,
    eap_scores,
    label_answers,
    log_likelihood,
)
from tests.reference import (
    kept_edges,
    make_split,
    make_task,
    masked,
    random_gpt2,
    random_llama,
    random_tokens,
    slow_logits,
    slow_outputs,
)

LABELS = [3, 1, 7]


def small_task(n: int = 2, length: int = 3):
    tokens, corrupted = (random_tokens(n, length, seed=s) for s in (0, 1))
    targets = torch.arange(n) % 3
    split = make_split(tokens, torch.tensor([LABELS]).repeat(n, 1), targets, corrupted=corrupted)
    return make_task(split, split, split)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def hf(request):
    if request.param == "gpt2":
        return random_gpt2(layers=2, heads=2)
    return random_llama(layers=2, heads=2, kv_heads=1)


@pytest.fixture(scope="module")
def task():
    return small_task()


def slow_metric(hf, task, edges, reference) -> float:
    """Mean log-likelihood of the full model's answers, in float64."""
    tokens = task.train.tokens
    full = slow_logits(hf, tokens)[:, -1][:, LABELS]
    logits = slow_logits(hf, tokens, edges, reference=reference)[:, -1][:, LABELS]
    found = [
        row[answer] - row.exp().sum().log()
        for row, answer in zip(logits, full.argmax(-1), strict=True)
    ]
    return float(sum(found) / len(found))


@pytest.mark.parametrize("ablation", ["zero", "interchange"])
def test_eap_differentiates_every_edge(hf, task, ablation):
    model, step = masked(hf), 1e-4
    scores = eap_scores(model, task, EapConfig(ablation=ablation))
    reference = slow_outputs(hf, task.train.corrupted) if ablation == "interchange" else None
    for edge in range(0, model.graph.n_edges, 3):
        sides = []
        for sign in (1, -1):
            mask = torch.ones(model.graph.n_edges, dtype=torch.float64)
            mask[edge] += sign * step
            sides.append(slow_metric(hf, task, kept_edges(model, mask), reference))
        slope = (sides[0] - sides[1]) / (2 * step)
        assert float(scores[edge]) == pytest.approx(slope, rel=1e-4, abs=2e-5)


def test_eap_is_exact_where_cutting_is_linear():
    """With a constant in the stream far larger than all else the last norm is a fixed factor, and
    an edge into the logits takes away what it carries; with small logits, the log-likelihood is
    linear in them."""
    hf, large, small = random_gpt2(layers=2, heads=2), 300.0, 0.02
    with torch.no_grad():
        hf.transformer.wpe.weight[:, 0] += large
        hf.transformer.ln_f.weight *= large * small
    model, task = masked(hf), small_task(n=4)
    scores = eap_scores(model, task, EapConfig())
    split = task.train
    answers = label_answers(model, split)

    def metric_without(edge: str | None) -> float:
        mask = torch.ones(model.graph.n_edges, dtype=torch.bool)
        if edge is not None:
            mask[model.graph.edge_index[edge]] = False
        states = final_states(model, split, edge_mask=mask)
        return float(log_likelihood(model, split, states, answers))

    full = metric_without(None)
    for sender in model.graph.senders[1:]:
        edge = f"{sender}->logits"
        score = float(scores[model.graph.edge_index[edge]])
        assert abs(score) > 1e-3 * small
        assert full - metric_without(edge) == pytest.approx(score, rel=0.03, abs=3e-3 * small)


def test_attributions_into_a_receiver_cancel_under_zero_ablation(hf, task):
    """The norm undoes any common factor of what a receiver reads."""
    model = masked(hf)
    scores = eap_scores(model, task, EapConfig())
    for group in model.graph.groups:
        matrix = group.matrix(scores)
        assert matrix.sum(1).abs().max() < 1e-3 * (1 + matrix.abs().max())


def test_integrated_gradients_add_up_to_the_difference_of_the_prompts(hf):
    """Of the edges that leave the embedding, as the number of steps grows."""
    model, task = masked(hf), small_task(n=4, length=4)
    split, answers = task.train, label_answers(model, task.train)
    clean = log_likelihood(model, split, final_states(model, split), answers)
    last = split.lengths - 1
    corrupted = log_likelihood(model, split, model.hidden(split.corrupted, last=last), answers)
    leaves = torch.tensor([name.startswith("input->") for name in model.graph.edges])
    errors = []
    for steps in (1, 32):
        config = EapIgConfig(ablation="interchange", steps=steps)
        scores = eap_ig_scores(model, task, config)
        errors.append(abs(float(scores[leaves].sum() - (clean - corrupted))))
    assert errors[1] < errors[0]
    assert errors[1] < 5e-3 * (1 + abs(float(clean - corrupted)))


@pytest.mark.parametrize("ablation", ["zero", "mean", "interchange"])
def test_a_path_that_leads_nowhere_gives_plain_eap(hf, ablation):
    split = small_task().train
    model, same = masked(hf), make_split(split.tokens, split.labels, split.targets)
    task = make_task(same, same, split)
    plain = eap_scores(model, task, EapConfig(ablation=ablation))
    along = eap_ig_scores(model, task, EapIgConfig(ablation=ablation, steps=3))
    torch.testing.assert_close(along, plain, rtol=1e-3, atol=1e-5)
    if ablation == "interchange":
        assert plain.abs().max() < 1e-5


@pytest.mark.parametrize("ablation", ["zero", "interchange"])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
def test_no_smaller_number_of_best_edges_meets_the_budget(hf, density, ablation):
    model = masked(hf)
    scores = torch.randn(model.graph.n_edges, generator=torch.Generator().manual_seed(0))
    sheaf = by_score(model, scores, density, ablation)
    target = at_least(density, len(scores))
    order = scores.abs().argsort(descending=True)
    sizes = []
    for n in range(len(scores) + 1):
        mask = torch.zeros(len(scores), dtype=torch.bool)
        mask[order[:n]] = True
        sizes.append(edge_sheaf(model, mask, ablation))
    assert sheaf == next(s for s in sizes if s.kept_edges >= target)
    assert sheaf.keeps_all_weights


@pytest.mark.parametrize(("method", "config"), [(eap, EapConfig), (eap_ig, EapIgConfig)])
def test_both_methods_on_the_mini_model(method, config):
    model = dgp.load_model("mini")
    task = dgp.load_task("blimp/determiner_noun_agreement_1", model)
    sheaf = method(model, task, config(edge_density=0.06, prompts=32))
    assert 0.06 <= sheaf.edge_density < 0.08
    assert dgp.evaluate(model, sheaf, task.test).accuracy > 0.9
    assert sheaf.metadata["found"]["threshold"] > 0
    assert sheaf == method(model, task, config(edge_density=0.06, prompts=32))
