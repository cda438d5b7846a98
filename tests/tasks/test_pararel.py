"""PARAREL rows: the paper's counts, label sets and counterparts."""

from types import SimpleNamespace

import pytest

from discogp_lib.tasks.encode import tokenize
from discogp_lib.tasks.load import load_task
from discogp_lib.tasks.names import RELATIONS
from discogp_lib.tasks.pararel import cut_pattern, pararel_rows

QUERIES = (977, 645, 967, 982, 429, 964, 975, 877, 881, 909, 234, 703)
LABELS = (39, 399, 271, 52, 16, 434, 6, 52, 24, 69, 217, 364)
AMBIGUOUS = (1, 18, 2, 3, 7, 2, 2, 13, 4, 1, 8, 8)


def test_patterns_are_cut_before_the_object():
    assert cut_pattern("The capital of [X] is [Y] .") == "The capital of [X] is"
    assert cut_pattern("[X] is located in [Y].") == "[X] is located in"


def test_the_papers_9543_queries(data):
    counts = [len(pararel_rows(relation)[0]) for relation in RELATIONS]
    assert tuple(counts) == QUERIES
    assert sum(counts) == 9543


@pytest.mark.parametrize(
    ("relation", "queries", "labels", "ambiguous"),
    list(zip(RELATIONS, QUERIES, LABELS, AMBIGUOUS, strict=True)),
)
def test_real_relations(
    relation: str,
    queries: int,
    labels: int,
    ambiguous: int,
    gpt2_tokens: SimpleNamespace,
    answers,
):
    answers(lambda prompt: len(prompt) % 3 != 0)
    task = load_task(f"pararel/{relation}", gpt2_tokens)
    audit = task.audit
    assert (audit.rows_in, audit.n_labels, audit.ambiguous) == (queries, labels, ambiguous)
    assert audit.correct == audit.rows_used < audit.rows_in
    assert task.label_words is not None
    assert len(task.label_words) == labels
    rows, _ = pararel_rows(relation)
    answer_of: dict[tuple[int, ...], set[int]] = {}
    prompts = tokenize([row.prompt for row in rows], gpt2_tokens)
    targets = tokenize([row.target for row in rows], gpt2_tokens)
    for prompt, target in zip(prompts, targets, strict=True):
        answer_of.setdefault(prompt, set()).add(target[0])
    alone = 0
    for split in (task.train, task.dev, task.test):
        for i, length in enumerate(split.lengths.tolist()):
            corrupted = tuple(split.corrupted[i, :length].tolist())
            label = int(split.labels[i, split.targets[i]])
            if corrupted == tuple(split.tokens[i, :length].tolist()):
                alone += 1
            else:
                assert answer_of[corrupted] - {label}
    assert alone == audit.uncorrupted <= 0.04 * audit.rows_used
