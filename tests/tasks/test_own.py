"""Tasks of one's own, and what is said of each kind of bad file."""

import json

import pytest

from discogp_lib.errors import TaskError
from discogp_lib.tasks.base import Task

LETTERS = "abcdefghijklmn"


def records(count: int = 14) -> list[dict]:
    """ "the a sees this" is followed by "cat", not "cats"; every other one is plural."""
    made = []
    for i in range(count):
        this, cat, cats = ("this", "cat", "cats") if i % 2 else ("these", "cats", "cat")
        made.append({"prompt": f"the {LETTERS[i]} sees {this}", "target": cat, "foil": cats})
    return made


def write(path, lines) -> str:
    """A JSON Lines file; strings and bytes are written as they are."""
    parts = [
        line
        if isinstance(line, bytes)
        else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    ]
    path.write_bytes(b"\n".join(parts) + b"\n")
    return path


def test_a_file_gives_the_task_its_pairs_give(tmp_path, word_model):
    path = write(tmp_path / "agree.jsonl", records())
    task = Task.from_jsonl(path, word_model)
    columns = {field: [r[field] for r in records()] for field in ("prompt", "target", "foil")}
    same = Task.from_pairs(
        "agree", columns["prompt"], columns["target"], columns["foil"], word_model
    )
    assert task.name == same.name == "agree"
    assert task.sha256 == same.sha256
    assert len(task.train) + len(task.dev) + len(task.test) == 14
    assert task.group_names == ("cat", "cats")
    assert task.audit.source == "own"
    assert task.audit.uncorrupted == 0
    assert task.sha256 != Task.from_jsonl(path, word_model, seed=1).sha256


def test_groups_and_corrupted_prompts_of_the_user_are_taken(tmp_path, word_model):
    lines = records()
    for record in lines:
        record["group"] = "odd" if record["target"] == "cat" else "even"
        record["corrupted"] = record["prompt"].replace("the ", "dog ", 1)
    task = Task.from_jsonl(write(tmp_path / "t.jsonl", lines), word_model)
    assert task.group_names == ("even", "odd")
    dog, the = word_model.tokenizer.convert_tokens_to_ids(["dog", "the"])
    assert (task.train.corrupted[:, 1] == dog).all()
    assert (task.train.tokens[:, 1] == the).all()


def test_a_leading_space_may_be_left_out_and_a_trailing_one_left_in(tmp_path, word_model):
    spaced = [
        {"prompt": r["prompt"] + " ", "target": " " + r["target"], "foil": " " + r["foil"]}
        for r in records()
    ]
    (tmp_path / "spaced").mkdir()
    first = Task.from_jsonl(write(tmp_path / "t.jsonl", records()), word_model)
    second = Task.from_jsonl(write(tmp_path / "spaced" / "t.jsonl", ["", *spaced, ""]), word_model)
    assert first.sha256 == second.sha256


BAD_LINES = {
    "missing field": (
        {"prompt": "the a sees this", "target": "cat"},
        "the field 'foil' is missing",
    ),
    "unknown field": (
        {"prompt": "the a sees this", "target": "cat", "foil": "cats", "corupted": "dog a sees"},
        "the field 'corupted' is unknown; known are prompt, target, foil, corrupted, group",
    ),
    "empty prompt": (
        {"prompt": " ", "target": "cat", "foil": "cats"},
        "the field 'prompt' is empty",
    ),
    "not a string": ({"prompt": 3, "target": "cat", "foil": "cats"}, "'prompt' is not a string"),
    "target equal to foil": (
        {"prompt": "the a sees this", "target": "cat", "foil": " cat"},
        "the target 'cat' is also the foil",
    ),
    "multi-token target": (
        {"prompt": "the a sees this", "target": "cat dog", "foil": "cats"},
        "the target ' cat dog' is 2 tokens; use a word of one",
    ),
    "unknown word": (
        {"prompt": "the zebra sees this", "target": "cat", "foil": "cats"},
        "the tokenizer of 'words' does not know 'zebra'",
    ),
    "too long": (
        {"prompt": "the a " + "sees " * 20 + "this", "target": "cat", "foil": "cats"},
        "the prompt is 24 tokens long, and 'words' reads 20 at most",
    ),
    "corrupted of another length": (
        {"prompt": "the a sees this", "target": "cat", "foil": "cats", "corrupted": "the a this"},
        "the corrupted prompt is 4 tokens long, the prompt 5; make them equal",
    ),
    "half a character": (
        '{"prompt": "the \\ud83d sees this", "target": "cat", "foil": "cats"}',
        "the field 'prompt' holds half a character",
    ),
    "not JSON": ('{"prompt": "the a', "not JSON; write one object in braces per line"),
    "not an object": ('["the a sees this", "cat", "cats"]', "not a JSON object"),
    "wrong encoding": (
        b'{"prompt": "the caf\xe9 sees this", "target": "cat", "foil": "cats"}',
        "not UTF-8 text; save the file in that encoding",
    ),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_is_told_by_its_number(kind, tmp_path, word_model):
    line, message = BAD_LINES[kind]
    lines = records()
    lines.insert(4, line)
    with pytest.raises(TaskError) as error:
        Task.from_jsonl(write(tmp_path / "mine.jsonl", lines), word_model)
    assert "mine.jsonl' is not right at line 5: " in str(error.value)
    assert message in str(error.value)


def test_all_problems_are_told_together_in_order(tmp_path, word_model):
    lines = [line for line, _ in BAD_LINES.values()]
    with pytest.raises(TaskError) as error:
        Task.from_jsonl(write(tmp_path / "mine.jsonl", lines), word_model)
    told = str(error.value)
    positions = [told.index(f"line {number}:") for number in range(1, 6)]
    assert positions == sorted(positions)
    assert "line 6" not in told
    assert told.endswith("; and 8 more.")


def test_too_few_rows_and_files_that_are_not_there(tmp_path, word_model):
    few = write(tmp_path / "few.jsonl", records(5) * 4)
    with pytest.raises(TaskError, match="has 5 distinct prompts, and a task needs 12 at least"):
        Task.from_jsonl(few, word_model)
    once = [{**record, "prompt": "the a sees this"} for record in records(14)]
    lines = [{**line, "target": LETTERS[i]} for i, line in enumerate(once)]
    with pytest.raises(TaskError, match="has 1 distinct prompts"):
        Task.from_jsonl(write(tmp_path / "once.jsonl", lines), word_model)
    with pytest.raises(TaskError, match=r"'nowhere\.jsonl' cannot be opened: No such file"):
        Task.from_jsonl("nowhere.jsonl", word_model)
    with pytest.raises(TaskError, match="cannot be opened: Is a directory"):
        Task.from_jsonl(tmp_path, word_model)


def test_columns_that_do_not_match(word_model):
    with pytest.raises(TaskError, match="has 2 prompts, 1 targets, 2 foils; give as many of each"):
        Task.from_pairs("mine", ["a", "b"], ["cat"], ["dog", "dog"], word_model)
    with pytest.raises(TaskError, match="targets is one string"):
        Task.from_pairs("mine", ["a", "b"], "cat", ["dog", "dog"], word_model)
    prompts = [record["prompt"] for record in records()]
    with pytest.raises(TaskError, match=r"Task 'mine' is not right at row 1: .*also the foil"):
        Task.from_pairs("mine", prompts, ["cat"] * 14, ["cat"] * 14, word_model)
