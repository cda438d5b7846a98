"""References: averages over prompts position by position, and the corrupted prompt's values."""

import pytest
import torch

from discogp_lib.ablation import mean_outputs, positions_from_end, reference_for
from discogp_lib.errors import TaskError
from discogp_lib.evaluate import final_states
from tests.reference import (
    kept_edges,
    make_split,
    make_task,
    masked,
    random_gpt2,
    random_llama,
    random_sheaf,
    random_tokens,
    slow_logits,
    slow_outputs,
)

LENGTHS = torch.tensor([5, 3, 4, 5])


@pytest.fixture(scope="module", params=[random_gpt2, random_llama], ids=["gpt2", "llama"])
def hf(request):
    return request.param()


@pytest.fixture(scope="module")
def task():
    inside = torch.arange(5) < LENGTHS[:, None]
    tokens, corrupted = (torch.where(inside, random_tokens(4, 5, seed=s), 0) for s in (0, 1))
    labels, targets = torch.tensor([[0, 1]]).repeat(4, 1), torch.tensor([0, 1, 0, 1])
    split = make_split(tokens, labels, targets, lengths=LENGTHS, corrupted=corrupted)
    return make_task(split, split, split)


def average_by_hand(hf, split) -> list[dict[str, torch.Tensor]]:
    """By distance from the end: each sender's mean over the prompts that are so long."""
    outputs = [
        slow_outputs(hf, row[None, :n])
        for row, n in zip(split.tokens, LENGTHS.tolist(), strict=True)
    ]
    means = []
    for back in range(5):
        reach = [o for o, n in zip(outputs, LENGTHS.tolist(), strict=True) if back < n]
        means.append(
            {s: torch.stack([o[s][0, -1 - back] for o in reach]).mean(0) for s in reach[0]}
        )
    return means


def test_zero_ablation_has_no_reference(hf, task):
    assert reference_for("zero", masked(hf), task) is None


def test_interchange_with_nothing_to_interchange_is_refused(hf, task):
    split = make_split(task.train.tokens, task.train.labels, task.train.targets)
    with pytest.raises(TaskError, match="would change nothing"):
        reference_for("interchange", masked(hf), make_task(split, split, split))


def test_positions_are_counted_from_the_end(task):
    assert positions_from_end(task.train, 5).tolist() == [
        [4, 3, 2, 1, 0],
        [2, 1, 0, 0, 0],
        [3, 2, 1, 0, 0],
        [4, 3, 2, 1, 0],
    ]
    assert positions_from_end(task.train, 3)[0].tolist() == [2, 2, 2, 1, 0]


def test_means_are_over_real_tokens_only(hf, task):
    model = masked(hf)
    means = mean_outputs(model, task.train)
    for back, expected in enumerate(average_by_hand(hf, task.train)):
        for i, sender in enumerate(model.graph.senders):
            torch.testing.assert_close(means[back, i].double(), expected[sender], atol=1e-5, rtol=0)


@pytest.mark.parametrize("ablation", ["mean", "interchange"])
def test_states_under_an_ablation_are_those_of_the_slow_transformer(hf, task, ablation):
    model, split = masked(hf), task.test
    sheaf = random_sheaf(model, 0.5, 0.7)
    reference = reference_for(ablation, model, task)
    states = final_states(model, split, sheaf, reference=reference, batch_size=3)
    logits = states @ model.fixed.unembedding.T
    means = average_by_hand(hf, split)
    for i, n in enumerate(LENGTHS.tolist()):
        if ablation == "interchange":
            by_sender = slow_outputs(hf, split.corrupted[i : i + 1, :n])
        else:
            by_sender = {
                s: torch.stack([means[n - 1 - position][s] for position in range(n)])[None]
                for s in model.graph.senders
            }
        expected = slow_logits(
            hf,
            split.tokens[i : i + 1, :n],
            kept_edges(model, sheaf.edge_mask),
            model.masked_weights(sheaf),
            by_sender,
        )[0, -1]
        torch.testing.assert_close(logits[i].double(), expected, atol=1e-4, rtol=0)
