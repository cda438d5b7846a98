"""The paper's data tables, for generated and for real data."""

from types import SimpleNamespace

import pandas as pd

from discogp_lib.tasks import describe
from discogp_lib.tasks.ioi import PAPER_NAMES
from discogp_lib.tasks.load import task_rows
from discogp_lib.tasks.names import RELATIONS, TASK_NAMES

MINI = SimpleNamespace(name="mini")


def test_overview_of_the_generated_tasks():
    table = describe.overview_table(MINI, TASK_NAMES)
    assert table["name"].tolist() == list(TASK_NAMES)
    assert set(table["source"]) == {"generated"}
    assert table.set_index("task").loc["P36", "incorrect"] == "any other answer"
    assert not (table["correct"] == table["incorrect"]).any()


def test_ioi_tables():
    assert len(describe.ioi_templates_table()) == 15
    table = describe.ioi_words_table(MINI)
    assert table["words in the original list"].tolist() == [99, 8, 8]
    for count, candidates in zip(table["words"], table["candidates"], strict=True):
        assert count == len(candidates.split(", "))


def test_relations_have_the_papers_counts(data, gpt2_tokens):
    table = describe.relations_table(gpt2_tokens)
    assert table["relation"].tolist() == list(RELATIONS)
    assert table["queries"].tolist() == table["queries in the paper"].tolist()
    assert table["queries"].sum() == 9543
    assert set(table["questions"]) == {1}
    assert table.set_index("relation").loc["P36", "first question"] == "The capital of [X] is"


def test_no_subject_of_a_real_fact_is_shown(data, gpt2_tokens):
    table = describe.overview_table(gpt2_tokens, [f"pararel/{relation}" for relation in RELATIONS])
    assert table["example prompt"].str.contains("[X]", regex=False).all()


def test_no_sentence_of_blimp_is_shown(data, gpt2_tokens):
    names = [name for name in TASK_NAMES if name.startswith("blimp/")]
    shown = set(describe.overview_table(gpt2_tokens, names)["example prompt"])
    prompts = {row.prompt for name in names for row in task_rows(name, gpt2_tokens).rows}
    assert prompts
    assert not shown & prompts


def test_names_beyond_the_papers_are_counted_only(data, gpt2_tokens):
    people = describe.ioi_words_table(gpt2_tokens).loc[0]
    shown, _, more = people["candidates"].partition(" and ")
    assert set(shown.split(", ")) <= set(PAPER_NAMES)
    assert len(shown.split(", ")) + int(more.removesuffix(" more")) == people["words"]


def test_priors_have_the_papers_random_level_by_family():
    audit = pd.DataFrame({"task": ["AGA", "IOI", "P30"], "chance": 0.3, "majority": 0.6, "ties": 1})
    table = describe.prior_table(audit)
    assert table["paper_random"].tolist() == [0.5, 0.5, 0.0]
    assert table.columns.tolist() == ["task", "chance", "majority", "paper_random"]
