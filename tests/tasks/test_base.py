"""Splits as tensors, and the way rows become a task."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discogp_lib.errors import TaskError
from discogp_lib.tasks.base import Row, Split
from discogp_lib.tasks.build import build_task
from discogp_lib.tasks.encode import encode_rows
from discogp_lib.tasks.names import check_name
from discogp_lib.tasks.splits import split_rows

LETTERS = "abcdefghijklmn"


def pair_rows(count: int = 14) -> list[Row]:
    """ "the a sees this" -> cat, not cats; with a letter's number of words in front."""
    rows = []
    for i in range(count):
        number = "this" if i % 2 else "these"
        target, foil = (" cat", " cats") if i % 2 else (" cats", " cat")
        prompt = f"the {LETTERS[i]} {'sees ' * (i // 7)}{number}"
        rows.append(Row(prompt, target, foil, "", "singular" if i % 2 else "plural"))
    return rows


def small_split(lengths: list[int]) -> Split:
    n = len(lengths)
    tokens = torch.zeros(n, max(lengths), dtype=torch.int64)
    for i, length in enumerate(lengths):
        tokens[i, :length] = torch.arange(1, length + 1) + 10 * i
    return Split(
        prompts=tuple(f"prompt {i}" for i in range(n)),
        tokens=tokens,
        corrupted=tokens.clone(),
        lengths=torch.tensor(lengths),
        labels=torch.arange(2 * n).reshape(n, 2),
        targets=torch.zeros(n, dtype=torch.int64),
        groups=torch.arange(n) % 2,
    )


def test_select_keeps_rows_together_and_trims_the_padding():
    split = small_split([2, 5, 3, 4])
    chosen = split.select([2, 0])
    assert chosen.prompts == ("prompt 2", "prompt 0")
    assert chosen.tokens.tolist() == [[21, 22, 23], [1, 2, 0]]
    assert chosen.labels.tolist() == [[4, 5], [0, 1]]
    mask = torch.tensor([False, True, False, True])
    assert split.select(mask).prompts == ("prompt 1", "prompt 3")
    assert split.first(2).prompts == ("prompt 0", "prompt 1")
    assert split.first(10).prompts == split.prompts


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 25))
def test_batches_are_the_split_in_order(lengths, size):
    split = small_split(lengths)
    batches = list(split.batches(size))
    assert sum((batch.prompts for batch in batches), ()) == split.prompts
    for batch in batches:
        assert len(batch) <= size
        assert batch.tokens.shape[1] == int(batch.lengths.max())


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from("xyz")), min_size=3, max_size=80),
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60)),
    st.integers(0, 5),
)
def test_splits_are_disjoint_in_prompts_and_the_same_twice(rows, sizes, seed):
    prompts = [str(number) for number, _ in rows]
    groups = [group for _, group in rows]
    parts = split_rows(prompts, groups, sizes, str(seed))
    assert parts == split_rows(prompts, groups, sizes, str(seed))
    sets = [{prompts[i] for i in part} for part in parts]
    assert sets[0].isdisjoint(sets[1] | sets[2])
    assert sets[1].isdisjoint(sets[2])
    chosen = [i for part in parts for i in part]
    assert len(chosen) == len(set(chosen))


@given(
    st.lists(st.integers(3, 40), min_size=1, max_size=6),
    st.tuples(st.integers(10, 60), st.integers(10, 60), st.integers(10, 60)),
    st.integers(0, 5),
)
def test_every_class_is_in_every_split_in_proportion(class_sizes, sizes, seed):
    groups = [str(k) for k, size in enumerate(class_sizes) for _ in range(size)]
    prompts = [str(i) for i in range(len(groups))]
    parts = split_rows(prompts, groups, sizes, str(seed))
    wanted = sum(sizes)
    used = min(len(groups), wanted)
    for part, size in zip(parts, sizes, strict=True):
        assert abs(len(part) - used * size / wanted) <= 1 + len(class_sizes)
        for k, count in enumerate(class_sizes):
            found = sum(groups[i] == str(k) for i in part)
            assert found >= 1
            assert abs(found - count * len(part) / len(groups)) <= 2 + len(class_sizes)


def test_a_seed_gives_known_splits_on_every_machine():
    prompts = [f"p{i}" for i in range(10)]
    groups = ["x", "y"] * 5
    expected = ([1, 2, 7, 0, 5, 4], [9, 8], [6, 3])
    assert split_rows(prompts, groups, (6, 2, 2), "name/0") == expected


def test_exact_sizes_where_the_classes_allow_them():
    parts = split_rows(
        [str(i) for i in range(1000)], ["f"] * 643 + ["m"] * 328 + ["n"] * 29, (400, 200, 400), "0"
    )
    assert [len(part) for part in parts] == [400, 200, 400]


def test_a_task_of_pairs(word_model: SimpleNamespace):
    task = build_task("t", "T", pair_rows(), word_model, source="test")
    assert [len(part) for part in (task.train, task.dev, task.test)] == [8, 3, 3]
    assert task.group_names == ("plural", "singular")
    assert task.label_words is None
    cat, cats = word_model.tokenizer.convert_tokens_to_ids(["cat", "cats"])
    for split in (task.train, task.dev, task.test):
        assert split.targets.tolist() == [0] * len(split)
        for i, prompt in enumerate(split.prompts):
            ids = word_model.tokenizer(prompt)["input_ids"]
            length = int(split.lengths[i])
            assert split.tokens[i, :length].tolist() == [1, *ids]
            singular = prompt.endswith("this")
            assert split.labels[i].tolist() == ([cat, cats] if singular else [cats, cat])
            assert task.group_names[split.groups[i]] == ("singular" if singular else "plural")


def test_the_chosen_counterpart_is_as_long_of_the_other_class_and_the_nearest(
    word_model: SimpleNamespace,
):
    rows = pair_rows()
    task = build_task("t", "T", rows, word_model, source="test")
    text = {tuple(e.prompt): e.row for e in encode_rows(rows, word_model)}
    for split in (task.train, task.dev, task.test):
        for i, length in enumerate(split.lengths.tolist()):
            clean = text[tuple(split.tokens[i, :length].tolist())]
            other = text[tuple(split.corrupted[i, :length].tolist())]
            assert other.group != clean.group
    assert task.audit.uncorrupted == 0


def test_a_row_without_counterpart_keeps_its_prompt_and_is_counted(word_model: SimpleNamespace):
    lonely = Row("the a sees sees sees sees this", " cat", " cats", "", "singular")
    task = build_task("t", "T", [*pair_rows(), lonely], word_model, source="test")
    assert task.audit.uncorrupted == 1
    for split in (task.train, task.dev, task.test):
        for i, prompt in enumerate(split.prompts):
            same = split.tokens[i].tolist() == split.corrupted[i].tolist()
            assert same == (prompt == lonely.prompt)


def test_the_same_seed_gives_the_same_task_and_another_another(word_model: SimpleNamespace):
    first, again, other = (
        build_task("t", "T", pair_rows(), word_model, source="test", seed=seed)
        for seed in (0, 0, 1)
    )
    assert first.sha256 == again.sha256 != other.sha256


def test_ties_and_duplicates_are_dropped_and_counted(toy_model: SimpleNamespace):
    rows = [
        Row(f"see the {word} see", " cat", " dog", "", "x") for word in ("ring", "kiss", "bone")
    ]
    rows += [Row(f"the {word} see", " dog", " cat", "", "y") for word in ("store", "house")] * 2
    rows += [Row(f"{word} see", " catzz", " catqq", "", "y") for word in "abc"]
    rows += [Row(f"see {word} and see", " dog", " cat", "", "y") for word in "abcdefgh"]
    task = build_task("t", "T", rows, toy_model, source="test")
    assert (task.audit.rows_in, task.audit.duplicates, task.audit.ties) == (18, 2, 3)
    assert task.audit.rows_used == 13
    assert task.audit.multi_token_targets == 3


def test_prompts_that_a_model_reads_alike_are_one(word_model: SimpleNamespace):
    """However they are spaced: else a test prompt might be a training prompt."""
    plain = pair_rows()
    spaced = [replace(row, prompt=row.prompt.replace(" ", "  "), group="other") for row in plain]
    task = build_task("t", "T", plain + spaced, word_model, source="test")
    assert (task.audit.duplicates, task.audit.rows_used) == (len(plain), len(plain))
    assert task.sha256 == build_task("t", "T", plain, word_model, source="test").sha256


def test_a_single_answer_is_no_question(word_model: SimpleNamespace):
    rows = [Row(f"the {x} sees this", " cat", None, "", "cat") for x in "abcdefghijklmn"]
    with pytest.raises(TaskError, match="nothing to choose"):
        build_task("t", "T", rows, word_model, source="test")


def test_only_correct_prompts_of_a_relation(word_model: SimpleNamespace, answers):
    rows = [
        Row(
            f"the {letter} sees",
            f" {'cat' if i % 2 else 'dog'}",
            None,
            "",
            "cat" if i % 2 else "dog",
        )
        for i, letter in enumerate(LETTERS)
    ]
    answers(lambda prompt: prompt != "the a sees")
    task = build_task("t", "T", rows, word_model, source="test", only_correct=True)
    assert task.audit.correct == task.audit.rows_used == 13
    assert task.label_words == task.group_names == ("cat", "dog")
    everyone = task.train.prompts + task.dev.prompts + task.test.prompts
    assert "the a sees" not in everyone
    assert len(everyone) == 13
    cat, dog = word_model.tokenizer.convert_tokens_to_ids(["cat", "dog"])
    assert {tuple(row) for row in task.test.labels.tolist()} == {(cat, dog)}
    answers(lambda prompt: False)
    with pytest.raises(TaskError, match="0 prompts that 'words' answers correctly"):
        build_task("t", "T", rows, word_model, source="test", only_correct=True)


def test_answers_of_a_large_model_are_kept(
    word_model: SimpleNamespace, answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DISCOGP_CACHE", str(tmp_path))
    rows = [Row(f"the {letter} sees", " cat", " dog", "", "cat") for letter in LETTERS]

    def correct(**changes: object) -> int | None:
        model = SimpleNamespace(**{**vars(word_model), **changes})
        return build_task("t", "T", rows, model, source="test", only_correct=True).audit.correct

    answers(lambda prompt: prompt != "the a sees")
    assert correct(n_weights=10**8) == 13
    answers(lambda prompt: True)
    assert correct(n_weights=10**8) == 13
    assert correct(n_weights=10**8, checkpoint_sha256="another") == 14
    assert correct() == 14
    assert len(list((tmp_path / "answers").iterdir())) == 2


def test_answers_that_start_alike_are_one_label(toy_model: SimpleNamespace):
    answers = ["catzz", "catqq", "dog", "ring"]
    rows = [
        Row(f"see the {name} see", f" {answers[i % 4]}", None, "", answers[i % 4])
        for i, name in enumerate(("store", "garden", "house", "office", *"abcdefgh"))
    ]
    task = build_task("t", "T", rows, toy_model, source="test")
    assert task.audit.collisions == 1
    assert task.audit.n_labels == 3
    assert task.label_words == ("catqq / catzz", "dog", "ring")


def test_a_tokenizer_that_does_not_know_the_words_says_so(word_model: SimpleNamespace):
    rows = [*pair_rows(), Row("the zebra sees this", " cat", " cats", "", "singular")]
    with pytest.raises(TaskError, match=r"'words' does not know all words .*zebra.*1 of 15"):
        build_task("t", "T", rows, word_model, source="test")


def test_an_unknown_name_gives_the_close_ones_first():
    with pytest.raises(
        TaskError, match=r"no task 'blimp/anaphor_gender'; did you mean 'blimp/anaph"
    ):
        check_name("blimp/anaphor_gender")
    with pytest.raises(TaskError, match=r"did you mean 'pararel/P36'"):
        check_name("P36")
    with pytest.raises(TaskError, match=r"no task 'zzz'; the tasks are blimp/anaphor_gender"):
        check_name("zzz")
