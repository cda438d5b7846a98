"""The cosine table against its definition, edge by edge."""

import pandas as pd
import pytest
import torch

from discogp_lib.ablation import random_reference, reference_for
from discogp_lib.similarity import by_kind, findings, out_degrees, similarity, similarity_table
from tests.reference import make_split, make_task, masked, random_gpt2, random_tokens, slow_outputs

LENGTHS = torch.tensor([4, 2, 3])


@pytest.fixture(scope="module")
def hf():
    return random_gpt2(layers=1, heads=2)


@pytest.fixture(scope="module")
def task():
    inside = torch.arange(4) < LENGTHS[:, None]
    tokens, corrupted = (torch.where(inside, random_tokens(3, 4, seed=s), 0) for s in (0, 1))
    labels, targets = torch.tensor([[0, 1]]).repeat(3, 1), torch.tensor([0, 1, 0])
    split = make_split(tokens, labels, targets, lengths=LENGTHS, corrupted=corrupted)
    return make_task(split, split, split)


@pytest.mark.parametrize("last", [False, True])
def test_the_mean_over_tokens_prompts_and_edges(hf, task, last):
    model, split = masked(hf), task.test
    clean, other = slow_outputs(hf, split.tokens), slow_outputs(hf, split.corrupted)
    edges = []
    for edge in model.graph.edges:
        sender = edge.split("->")[0]
        prompts = []
        for i, n in enumerate(LENGTHS.tolist()):
            cosines = [
                float(a @ b / (a.norm() * b.norm()))
                for a, b in zip(clean[sender][i, :n], other[sender][i, :n], strict=True)
            ]
            prompts.append(cosines[-1] if last else sum(cosines) / n)
        edges.append(sum(prompts) / len(prompts))
    reference = reference_for("interchange", model, task)
    found = similarity(model, split, reference)["last" if last else "all"]
    assert found == pytest.approx(sum(edges) / len(edges), abs=1e-5)


def test_every_edge_leaves_a_sender(hf):
    graph = masked(hf).graph
    by_name = [sum(e.startswith(f"{s}->") for e in graph.edges) for s in graph.senders]
    assert out_degrees(graph).tolist() == by_name


def test_random_values_depend_on_the_seed_alone(hf, task):
    model = masked(hf)
    values = random_reference(model, seed=1)(task.test)
    assert values.shape == model.sender_outputs(task.test.tokens).shape
    assert torch.equal(values, random_reference(model, seed=1)(task.test))
    assert not torch.equal(values, random_reference(model, seed=2)(task.test))


def test_the_table_has_a_row_for_each_task_ablation_and_choice_of_tokens(hf, task):
    table = similarity_table(masked(hf), [task])
    assert len(table) == 6
    assert set(table.ablation) == {"mean", "interchange", "random"}
    assert table.cosine.between(-1, 1).all()


def test_kinds_are_means_over_their_tasks():
    tasks = ("blimp/a", "blimp/b", "ioi", "my own")
    rows = [
        {"task": task, "ablation": ablation, "tokens": "all", "cosine": 0.1 * i + j}
        for i, task in enumerate(tasks)
        for j, ablation in enumerate(("mean", "interchange", "random"))
    ]
    table = by_kind(pd.DataFrame(rows)).set_index("task")
    assert table.index.tolist() == ["Agreement", "IOI", "my own"]
    assert table.loc["Agreement", ["mean", "interchange"]].tolist() == pytest.approx([0.05, 1.05])
    assert table.tasks.tolist() == [2, 1, 1]


def test_the_sentences_tell_which_is_nearer():
    kinds = pd.DataFrame(
        {
            "tokens": "all",
            "task": ["IOI", "PARAREL"],
            "mean": [0.9, 0.5],
            "interchange": [0.95, 0.9],
            "random": [0.6, 0.6],
        }
    )
    (text,) = findings(kinds)
    assert "for 1 of 2 kinds of task (mean 0.50 to 0.90" in text
