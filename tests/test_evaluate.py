"""Every number of an evaluation against one worked out from its definition."""

import math
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from discogp_lib.errors import SheafError
from discogp_lib.evaluate import (
    balanced,
    evaluate,
    final_states,
    is_right,
    kl_divergence,
    label_logits,
    share_of,
)
from discogp_lib.sheaf import Sheaf
from tests.reference import make_split, masked, random_gpt2, random_sheaf, random_tokens


@pytest.fixture(scope="module")
def model():
    return masked(random_gpt2())


@pytest.fixture(scope="module")
def split():
    """Eleven prompts of unequal length, three labels each, classes of unequal size."""
    lengths = torch.tensor([6, 5, 4, 3, 6, 2, 6, 5, 4, 6, 1])
    tokens = torch.where(torch.arange(6) < lengths[:, None], random_tokens(11, 6), 0)
    labels = torch.stack([torch.arange(3) + i for i in range(11)])
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1])
    groups = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2])
    return make_split(tokens, labels, targets, lengths=lengths, groups=groups)


def by_hand(model, split, sheaf) -> torch.Tensor:
    """Label logits, prompt by prompt and without padding."""
    rows = []
    for i, n in enumerate(split.lengths.tolist()):
        logits = model.logits(split.tokens[i : i + 1, :n], sheaf)[0, -1]
        rows.append(logits[split.labels[i]])
    return torch.stack(rows)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_label_logits_are_those_at_the_last_token(model, split, batch_size):
    for sheaf in (None, random_sheaf(model, 0.7, 0.8)):
        actual = label_logits(model, split, sheaf, batch_size=batch_size)
        torch.testing.assert_close(actual, by_hand(model, split, sheaf), atol=1e-5, rtol=0)


def test_evaluation_from_its_definitions(model, split):
    sheaf = random_sheaf(model, 0.7, 0.8, seed=1)
    result = evaluate(model, sheaf, split, batch_size=4)
    full, kept, rest = (by_hand(model, split, s) for s in (None, sheaf, ~sheaf))
    right = [int(row.argmax()) == t for row, t in zip(kept, split.targets.tolist(), strict=True)]
    rest_right = (rest.argmax(1) == split.targets).float()
    assert result.n == 11
    assert result.accuracy == pytest.approx(sum(right) / 11)
    per_class = [right[0:7], right[7:10], right[10:11]]
    assert result.balanced_accuracy == pytest.approx(sum(sum(c) / len(c) for c in per_class) / 3)
    assert result.agreement == pytest.approx(
        (kept.argmax(1) == full.argmax(1)).float().mean().item()
    )
    assert result.full_accuracy == pytest.approx(
        (full.argmax(1) == split.targets).float().mean().item()
    )
    assert result.complement_accuracy == pytest.approx(rest_right.mean().item())
    assert result.ties == 0
    p, q = full.softmax(1), kept.softmax(1)
    assert result.kl == pytest.approx((p * (p / q).log()).sum(1).mean().item(), rel=1e-3)
    r = rest.softmax(1)
    entropy = -(r * r.log()).sum(1).mean().item() / math.log(3)
    assert result.complement_entropy == pytest.approx(entropy, rel=1e-4)
    assert (result.weight_density, result.edge_density) == (
        sheaf.weight_density,
        sheaf.edge_density,
    )
    assert (result.n_weights, result.n_edges) == (model.n_weights, model.graph.n_edges)
    low, high = stats.binomtest(sum(right), 11).proportion_ci(method="wilson")
    assert (result.accuracy_low, result.accuracy_high) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.filterwarnings("ignore:reduction")
def test_paper_kl_is_what_the_authors_call_gives(model, split):
    """`F.kl_div` of log-probabilities with the default reduction, and the arguments that way."""
    sheaf = random_sheaf(model, 0.7, 0.8, seed=1)
    full, kept = (by_hand(model, split, s).log_softmax(1) for s in (None, sheaf))
    expected = F.kl_div(full, kept, log_target=True, reduction="mean")
    result = evaluate(model, sheaf, split)
    assert result.kl_paper == pytest.approx(expected.item(), rel=1e-3)
    assert result.kl_paper != pytest.approx(result.kl, rel=0.1)


def test_vocabulary_numbers(model, split):
    sheaf = random_sheaf(model, 0.7, 0.8, seed=1)
    total, same = 0.0, 0
    for i, n in enumerate(split.lengths.tolist()):
        a, b = (model.logits(split.tokens[i : i + 1, :n], s)[0, -1] for s in (None, sheaf))
        total += F.kl_div(b.log_softmax(0), a.log_softmax(0), log_target=True, reduction="sum")
        same += int(a.argmax() == b.argmax())
    result = evaluate(model, sheaf, split)
    assert result.kl_vocabulary == pytest.approx(float(total) / 11, rel=1e-3)
    assert result.top_token_agreement == pytest.approx(same / 11)


def test_full_sheaf_does_what_the_model_does(model, split):
    result = evaluate(model, Sheaf.full(model), split)
    assert result.accuracy == result.full_accuracy
    assert result.agreement == result.top_token_agreement == 1
    assert result.kl == pytest.approx(0, abs=1e-6)
    assert (result.weight_density, result.edge_density) == (1, 1)


def test_empty_sheaf_ties_and_is_never_right(split):
    """Without a LayerNorm bias nothing is left to prefer one label to another."""
    model = masked(random_gpt2())
    model.fixed.final_norm.bias.zero_()
    result = evaluate(model, Sheaf.empty(model), split)
    assert result.ties == 1
    assert result.accuracy == result.agreement == 0
    assert result.kl > 0
    # The complement of nothing is the whole model.
    assert result.complement_accuracy == result.full_accuracy
    nothing_left = evaluate(model, random_sheaf(model, 1.0, 0.999), split)
    assert nothing_left.complement_entropy <= 1


def test_reference_values_are_used(model, split):
    sheaf = random_sheaf(model, 0.3, 1.0)
    own = evaluate(model, sheaf, split, reference=lambda s: model.sender_outputs(s.tokens))
    assert own.kl == pytest.approx(0, abs=1e-5)  # cut edges carry what they would have carried
    assert evaluate(model, sheaf, split).kl > 0.01


def test_sheaf_of_another_model_is_refused(model, split):
    other = masked(random_gpt2(seed=1), sha256="1" * 64)
    with pytest.raises(SheafError):
        evaluate(model, Sheaf.full(other), split)


def test_a_sheaf_is_judged_under_the_ablation_it_was_found_under(model, split):
    found = replace(random_sheaf(model, 0.5, 0.5), metadata={"config": {"ablation": "mean"}})
    for sheaf in (found, found | found, ~~found):
        told = pytest.raises(SheafError, match=r"reference=dgp.reference_for\('mean', model, task")
        with told:
            evaluate(model, sheaf, split)
        with told:
            label_logits(model, split, sheaf)
        with told:
            model.logits(split.tokens, sheaf)
    shape = model.graph.n_senders, model.layout.d_model
    nothing = lambda batch: torch.zeros(*batch.tokens.shape, *shape)  # noqa: E731
    same = evaluate(model, found, split, reference=nothing)
    assert same.accuracy == evaluate(model, replace(found, metadata={}), split).accuracy


def test_long_prompts_are_evaluated_fewer_at_a_time(model, split, monkeypatch):
    sheaf, sizes = random_sheaf(model, 0.5, 0.5), []
    whole, hidden = final_states(model, split, sheaf), model.hidden

    def noted(tokens, **more):
        sizes.append(len(tokens))
        return hidden(tokens, **more)

    monkeypatch.setattr(model, "hidden", noted)
    numbers = split.tokens.shape[1] * model.graph.n_senders * model.layout.d_model
    # The module, which the package hides behind its function.
    monkeypatch.setattr(sys.modules["discogp_lib.evaluate"], "MOST_FLOATS", 3 * numbers)
    torch.testing.assert_close(final_states(model, split, sheaf), whole)
    assert sizes == [3, 3, 3, 2]


def test_evaluating_twice_gives_the_same_and_changes_nothing(model, split):
    sheaf = random_sheaf(model, 0.5, 0.5)
    weights = model.flat_weights.clone()
    assert evaluate(model, sheaf, split) == evaluate(model, sheaf, split)
    assert torch.equal(model.flat_weights, weights)
    assert not final_states(model, split, sheaf).requires_grad


def test_print_out_names_the_denominators(model, split):
    result = evaluate(model, random_sheaf(model, 0.5, 0.5), split)
    assert f"of {model.n_weights:,}" in str(result)
    assert f"of {model.graph.n_edges:,}" in str(result)
    assert result.as_dict()["n"] == 11


# -- the parts ----------------------------------------------------------------------------------


def test_a_tie_is_no_answer():
    logits = torch.tensor([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0], [3.0, 3.0]])
    assert is_right(logits, torch.tensor([0, 0, 0, 1])).tolist() == [True, False, False, False]
    many = torch.tensor([[1.0, 5.0, 5.0], [1.0, 5.0, 4.0]])
    assert is_right(many, torch.tensor([1, 1])).tolist() == [False, True]


def test_balanced_accuracy_unmasks_a_constant_answer():
    right = torch.tensor([True] * 9 + [False])
    assert balanced(right, torch.tensor([0] * 9 + [1])) == 0.5
    assert balanced(right, torch.tensor([4] * 5 + [7] * 5)) == pytest.approx(0.9)


def test_kl_by_hand():
    p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]])
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert kl_divergence(p.log(), q.log()).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("right", "n"), [(38, 40), (19, 20), (49, 50), (0, 7), (3, 3)])
def test_shares_are_exact(right, n):
    """In single precision 38 of 40 would be a little less than 95 %, and miss a target of 95 %."""
    assert share_of(torch.arange(n) < right) == right / n
