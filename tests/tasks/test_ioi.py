"""IOI prompts: both orders, distinct, and what must not give the answer away."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discogp_lib.errors import TaskError
from discogp_lib.tasks.encode import tokenize
from discogp_lib.tasks.ioi import OBJECTS, PAPER_NAMES, PLACES, TEMPLATES, ioi_row, ioi_rows
from discogp_lib.tasks.load import load_task


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, answers) -> None:
    """The paper's own names, and a model that is always right."""
    monkeypatch.delenv("DISCOGP_DATA", raising=False)
    answers(lambda prompt: True)


def test_a_prompt_by_hand_in_both_orders():
    template = "Then, [B] and [A] had a long argument, and afterwards [B] said to [A]"
    people = ("Mary", "John", "Lisa")
    abba = ioi_row(template, "ABBA", people, place="store", thing="ring")
    assert abba.prompt == "Then, Mary and John had a long argument, and afterwards John said to"
    assert abba.corrupted == "Then, Mary and John had a long argument, and afterwards Lisa said to"
    assert (abba.target, abba.foil, abba.group) == (" Mary", " John", "ABBA")
    baba = ioi_row(template, "BABA", people, place="store", thing="ring")
    assert baba.prompt == "Then, John and Mary had a long argument, and afterwards John said to"
    assert baba.target == " Mary"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(30, 200))
def test_rows_are_distinct_balanced_and_the_same_twice(seed, count):
    rows = ioi_rows(PAPER_NAMES, count, seed=seed)
    assert rows == ioi_rows(PAPER_NAMES, count, seed=seed)
    assert len({row.prompt for row in rows}) == count
    orders = Counter(row.group for row in rows)
    assert abs(orders["ABBA"] - orders["BABA"]) <= 1
    for row in rows:
        names = [word.strip(",.") for word in row.prompt.split() if word.strip(",.") in PAPER_NAMES]
        receiver, giver = row.target.strip(), row.foil.strip()
        expected = [receiver, giver, giver] if row.group == "ABBA" else [giver, receiver, giver]
        assert names == expected


def test_the_task_is_balanced_and_its_corrupted_prompts_are_as_long(toy_model, no_data):
    task = load_task("ioi", toy_model, sizes=(60, 30, 60))
    assert [len(part) for part in (task.train, task.dev, task.test)] == [60, 30, 60]
    assert task.audit.source == "the paper"
    assert task.audit.uncorrupted == 0
    for split in (task.train, task.dev, task.test):
        assert split.groups.bincount().tolist() == [len(split) // 2] * 2
        differences = (split.tokens != split.corrupted).sum(dim=1)
        assert differences.tolist() == [1] * len(split)
    prompts = [set(split.prompts) for split in (task.train, task.dev, task.test)]
    assert not prompts[0] & prompts[1]
    assert not (prompts[0] | prompts[1]) & prompts[2]


def test_a_model_that_errs_gets_the_prompts_it_answers(toy_model, no_data, answers):
    answers(lambda prompt: " store" not in prompt)
    task = load_task("ioi", toy_model, sizes=(60, 30, 60))
    prompts = task.train.prompts + task.dev.prompts + task.test.prompts
    assert len(prompts) == 150
    assert not [prompt for prompt in prompts if " store" in prompt]
    assert 150 < task.audit.correct < task.audit.rows_in


def test_one_order_alone(toy_model, no_data):
    task = load_task("ioi", toy_model, order="ABBA", sizes=(40, 20, 40))
    assert task.group_names == ("ABBA",)
    assert task.audit.rows_used == 100
    with pytest.raises(TaskError, match="no order 'AB'"):
        load_task("ioi", toy_model, order="AB")
    with pytest.raises(TaskError, match="'pararel/P36' has no order of names"):
        load_task("pararel/P36", toy_model, order="ABBA")


def test_held_out_templates_are_in_test_alone(toy_model, no_data):
    task = load_task("ioi", toy_model, held_out_templates=5, sizes=(60, 30, 60))
    by_prompt = {row.prompt: row.template for row in ioi_rows(PAPER_NAMES, 2000, seed=0)}
    seen = {by_prompt[prompt] for prompt in task.train.prompts + task.dev.prompts}
    held = {by_prompt[prompt] for prompt in task.test.prompts}
    assert len(seen) == 10
    assert len(held) == 5
    assert not seen & held
    with pytest.raises(TaskError, match="15 templates cannot be held out of 15"):
        load_task("ioi", toy_model, held_out_templates=15)


def test_a_tokenizer_that_splits_most_names_does_not_fit(no_data):
    class Letters:
        unk_token_id = None

        def __call__(self, texts, **options):
            return {"input_ids": [list(text.encode()) for text in texts]}

    model = SimpleNamespace(name="letters", tokenizer=Letters(), bos=None)
    with pytest.raises(TaskError, match="'letters' does not fit task 'ioi': it keeps only 0 of 80"):
        load_task("ioi", model)


def test_names_without_a_token_are_left_out_and_counted(word_model, no_data):
    with pytest.raises(TaskError, match="'words' does not fit task 'ioi': it keeps only 0 of 80"):
        load_task("ioi", word_model)


def test_the_lists_are_the_original_ones(data: Path):
    lists = json.loads((data / "ioi" / "ioi_templates.json").read_text())
    assert list(TEMPLATES) == lists["BABA_TEMPLATES"]
    assert list(PLACES) == lists["PLACES"]
    assert list(OBJECTS) == lists["OBJECTS"]
    assert len(PAPER_NAMES) == 80
    assert set(PAPER_NAMES) < set(lists["NAMES"])


def test_all_names_are_one_gpt2_token(data: Path, gpt2_tokens: SimpleNamespace):
    names = json.loads((data / "ioi" / "ioi_templates.json").read_text())["NAMES"]
    assert [len(ids) for ids in tokenize([f" {name}" for name in names], gpt2_tokens)] == [1] * 99
    task = load_task("ioi", gpt2_tokens)
    assert task.audit.unfit_words == 0
    assert [len(part) for part in (task.train, task.dev, task.test)] == [400, 200, 400]
