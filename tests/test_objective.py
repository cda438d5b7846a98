"""The terms of the objective, written out plainly beside them."""

import math

import pytest
import torch

from discogp_lib.objective import (
    answer_log_odds,
    completeness_loss,
    fidelity_loss,
    label_log_probabilities,
)
from tests.reference import VOCABULARY, masked, random_gpt2


@pytest.fixture(scope="module")
def model():
    return masked(random_gpt2())


@pytest.fixture(scope="module")
def states(model):
    noise = torch.Generator().manual_seed(0)
    return torch.randn(2, 5, model.layout.d_model, generator=noise)  # sheaf, full


LABELS = torch.tensor([[0, 1, 2], [3, 4, 5], [1, 0, 7], [9, 8, 2], [0, 1, 2]])
TARGETS = torch.tensor([2, 0, 1, 1, 0])


def test_log_probabilities_are_among_the_labels_alone(model, states):
    actual = label_log_probabilities(model, states[0], LABELS)
    for i, row in enumerate(LABELS.tolist()):
        scores = [float(states[0, i] @ model.fixed.unembedding[token]) for token in row]
        total = sum(map(math.exp, scores))
        assert actual[i].tolist() == pytest.approx([s - math.log(total) for s in scores], abs=1e-5)


def test_label_fidelity_is_the_likelihood_of_the_full_models_answer(model, states):
    sheaf, full = states
    expected = 0.0
    for i, row in enumerate(LABELS.tolist()):
        answer = max(range(3), key=lambda j: float(full[i] @ model.fixed.unembedding[row[j]]))
        expected -= label_log_probabilities(model, sheaf, LABELS)[i, answer].item() / 5
    assert fidelity_loss("label", model, sheaf, full, LABELS, TARGETS).item() == pytest.approx(
        expected
    )


def test_gold_fidelity_is_the_likelihood_of_the_right_answers(model, states):
    sheaf, full = states
    log_q = label_log_probabilities(model, sheaf, LABELS)
    expected = -sum(log_q[i, t].item() for i, t in enumerate(TARGETS.tolist())) / 5
    actual = fidelity_loss("gold", model, sheaf, full, LABELS, TARGETS)
    assert actual.item() == pytest.approx(expected, rel=1e-5)


def test_distribution_and_vocabulary_fidelity_are_divergences(model, states):
    sheaf, full = states
    p = label_log_probabilities(model, full, LABELS).exp()
    q = label_log_probabilities(model, sheaf, LABELS).exp()
    expected = (p * (p / q).log()).sum(1).mean().item()
    actual = fidelity_loss("distribution", model, sheaf, full, LABELS, TARGETS)
    assert actual.item() == pytest.approx(expected, rel=1e-4)
    p, q = ((s @ model.fixed.unembedding.T).softmax(1) for s in (full, sheaf))
    assert p.shape == (5, VOCABULARY)
    expected = (p * (p / q).log()).sum(1).mean().item()
    actual = fidelity_loss("vocabulary", model, sheaf, full, LABELS, TARGETS)
    assert actual.item() == pytest.approx(expected, rel=1e-4)
    for kind in ("distribution", "vocabulary"):
        assert fidelity_loss(kind, model, full, full, LABELS, TARGETS).item() == pytest.approx(
            0, abs=1e-6
        )


def test_completeness_is_the_cross_entropy_with_the_uniform_distribution(model, states):
    q = label_log_probabilities(model, states[0], LABELS)
    expected = -sum(q[i, j].item() / 3 for i in range(5) for j in range(3)) / 5
    assert completeness_loss(model, states[0], LABELS).item() == pytest.approx(expected, rel=1e-5)
    # An even answer is the best there is.
    even = completeness_loss(model, torch.zeros_like(states[0]), LABELS)
    assert even.item() == pytest.approx(math.log(3), rel=1e-5)
    assert expected > math.log(3)


def test_log_odds_are_of_the_likeliest_label_against_the_rest(model, states):
    actual = answer_log_odds(model, states[0], LABELS)
    for i, row in enumerate(LABELS.tolist()):
        scores = sorted(float(states[0, i] @ model.fixed.unembedding[token]) for token in row)
        others = math.log(sum(map(math.exp, scores[:-1])))
        assert float(actual[i]) == pytest.approx(scores[-1] - others, abs=1e-5)
