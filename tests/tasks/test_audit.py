"""The audit's numbers against ones worked out by hand."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from discogp_lib.errors import TaskError
from discogp_lib.tasks.audit import audit_table
from discogp_lib.tasks.base import Row
from discogp_lib.tasks.build import build_task
from discogp_lib.tasks.load import load_task, task_rows
from discogp_lib.tasks.names import TASK_NAMES
from discogp_lib.tasks.words import _predictions, score_words


class RandomModel:
    """Logits that depend on the whole prefix, the same at every call."""

    device = torch.device("cpu")
    bos = None
    n_weights = 0

    def __init__(self, vocabulary: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.randn(vocabulary, vocabulary, generator=generator) * 2

    def logits(self, tokens: torch.Tensor, sheaf: object = None) -> torch.Tensor:
        places = torch.arange(1, tokens.shape[1] + 1).reshape(1, -1, 1)
        return self.table[tokens].cumsum(dim=1) / places**0.5


def log_prob(model: RandomModel, prompt: tuple[int, ...], word: tuple[int, ...]) -> float:
    """The word's log-probability, one slow pass per token."""
    total = 0.0
    for i, token in enumerate(word):
        last = model.logits(torch.tensor([prompt + word[:i]]))[0, -1]
        total += float(last.log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("seed", range(5))
def test_the_best_whole_word_is_the_one_found_by_trying_all(seed: int):
    model = RandomModel(7, seed)
    prompts = [(1, 2), (3,), (4, 4, 5), (6, 0, 1, 2)] * 10
    words = [(0,), (1, 2), (1, 3, 4), (2, 2), (5, 6), (5, 1, 1), (6,)]
    candidates = [words if i % 2 else words[1:4] for i in range(len(prompts))]
    first, whole = _predictions(prompts, candidates, model)
    for prompt, options, by_first, by_word in zip(prompts, candidates, first, whole, strict=True):
        assert by_word == max(options, key=lambda word: log_prob(model, prompt, word))
        best = max(options, key=lambda word: log_prob(model, prompt, word[:1]))
        assert by_first[0] == best[0]


def test_a_tie_can_be_scored_by_whole_words_alone(toy_model: SimpleNamespace):
    endings = toy_model.tokenizer([" catzz", " catqq"])["input_ids"]
    assert endings[0][0] == endings[1][0]
    assert len(endings[0]) > 1

    class LikesZ(RandomModel):
        name = "likes z"
        tokenizer = toy_model.tokenizer

        def logits(self, tokens: torch.Tensor, sheaf: object = None) -> torch.Tensor:
            logits = torch.zeros(*tokens.shape, len(toy_model.tokenizer))
            logits[..., endings[0][1]] = 5
            logits[..., self.tokenizer(" dog")["input_ids"][0]] = 9
            return logits

    rows = [Row(f"see {letter} see", " dog", " ring", "", "x") for letter in "abc"]
    rows.append(Row("the cat see", " catzz", " catqq", "", "y"))
    rows.append(Row("the dog see", " catqq", " catzz", "", "y"))
    scores = score_words(rows, LikesZ(2, 0), max_rows=100)
    assert scores.rows == 5
    assert scores.first_token == scores.whole_word == 1.0
    assert scores.whole_word_all == 4 / 5


def test_rows_of_a_task_of_ones_own_are_not_those_of_ioi(word_model: SimpleNamespace):
    with pytest.raises(TaskError, match="mine"):
        task_rows("mine", word_model)


def test_priors_and_lengths_by_hand(word_model: SimpleNamespace):
    letters = "abcdefghijklmn"
    rows = [
        Row(f"the {letter}{' sees' * (i % 3)}", f" {answer}", None, "", answer)
        for i, (letter, answer) in enumerate(
            zip(letters, itertools.chain(["cat"] * 8, ["dog"] * 5, ["this"]), strict=False)
        )
    ]
    audit = build_task("t", "T", rows, word_model, source="test").audit
    assert (audit.n_labels, audit.chance) == (3, 1 / 3)
    assert audit.majority == audit.majority_in == 8 / 14
    assert (audit.tokens_min, audit.tokens_max) == (3, 5)
    assert audit.tokens_mean == pytest.approx(sum(3 + i % 3 for i in range(14)) / 14)


def test_a_prompt_with_two_answers_is_counted_as_ambiguous(word_model: SimpleNamespace):
    rows = [Row(f"the {letter}", " cat", None, "", "cat") for letter in "abcdefghijkl"]
    rows.append(Row("the a", " dog", None, "", "dog"))
    task = build_task("t", "T", rows, word_model, source="test")
    assert task.audit.ambiguous == 1
    parts = [split for split in (task.train, task.dev, task.test) if "the a" in split.prompts]
    assert len(parts) == 1
    assert parts[0].prompts.count("the a") == 2


@pytest.fixture(scope="module")
def mini():
    from discogp_lib.model import load_model

    return load_model("mini")


def test_the_mini_model_does_its_nineteen_tasks(mini, monkeypatch):
    monkeypatch.delenv("DISCOGP_DATA", raising=False)
    tasks = [load_task(name, mini) for name in TASK_NAMES]
    table = audit_table(mini, tasks, max_rows=40).set_index("task")
    assert len(table) == 19
    assert (table["accuracy"] >= 0.98).all()
    assert set(table["source"]) == {"generated"}
    assert (table[["ties", "multi_token_targets", "uncorrupted", "unfit_words"]] == 0).all(
        axis=None
    )
    assert (table["rows_scored"] == 40).all()
    assert (table["first_token"] == table["whole_word"]).all()
    assert table["correct"].notna().tolist() == [False] * 7 + [True] * 12


@pytest.mark.parametrize("name", TASK_NAMES)
def test_generated_tasks_keep_what_is_promised(name, mini):
    task = load_task(name, mini)
    assert task.sha256 == load_task(name, mini).sha256 != load_task(name, mini, seed=1).sha256
    splits = (task.train, task.dev, task.test)
    prompts = [set(split.prompts) for split in splits]
    assert sum(map(len, prompts)) == len(set.union(*prompts)) == task.audit.rows_used
    for split in splits:
        places = torch.arange(split.tokens.shape[1])
        padding = places[None, :] >= split.lengths[:, None]
        assert (split.corrupted[padding] == 0).all()
        assert (split.tokens != split.corrupted).any(dim=1).all()
        assert (split.tokens[:, 0] == mini.bos).all()
        assert set(split.groups.tolist()) == set(range(len(task.group_names)))
    if name == "ioi":
        assert all(split.groups.bincount().tolist() == [len(split) // 2] * 2 for split in splits)
