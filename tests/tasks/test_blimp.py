"""BLiMP rows by hand, and the real paradigms where they are present."""

from types import SimpleNamespace

import pytest

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.blimp import blimp_row, blimp_rows
from discogp_lib.tasks.load import load_task
from discogp_lib.tasks.names import PARADIGMS

TIES = dict(zip(PARADIGMS, (0, 0, 51, 190, 50, 202), strict=True))


def test_the_prompt_is_cut_before_the_last_word():
    row = blimp_row("anaphor_gender_agreement", "Anna sees herself.", "Anna sees himself.")
    assert row == Row("Anna sees", " herself", " himself", "", "female")


def test_number_of_an_anaphor_is_its_class():
    row = blimp_row("anaphor_number_agreement", "Cats see themselves.", "Cats see itself.")
    assert row.group == "plural"
    assert row.foil == " itself"


def test_the_determiner_next_to_the_noun_is_the_one_changed():
    row = blimp_row(
        "determiner_noun_agreement_with_adjective_1",
        "These men see that old cat.",
        "These men see that old cats.",
    )
    assert row == Row(
        "These men see that old", " cat", " cats", "These men see those old", "singular"
    )


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_real_paradigms(paradigm: str, gpt2_tokens: SimpleNamespace):
    rows, source = blimp_rows(paradigm)
    assert len(rows) == 1000
    assert source == "DISCOGP_DATA"
    task = load_task(f"blimp/{paradigm}", gpt2_tokens)
    audit = task.audit
    assert audit.ties == TIES[paradigm]
    assert audit.rows_used == 1000 - audit.ties - audit.duplicates
    assert audit.uncorrupted <= 8
    assert task.sha256 == load_task(f"blimp/{paradigm}", gpt2_tokens).sha256
    prompts = [set(split.prompts) for split in (task.train, task.dev, task.test)]
    assert not prompts[0] & prompts[1]
    assert not (prompts[0] | prompts[1]) & prompts[2]
    for split in (task.train, task.dev, task.test):
        same = (split.tokens == split.corrupted).all(dim=1)
        assert int(same.sum()) <= audit.uncorrupted
        assert ((split.corrupted != 0).sum(dim=1) <= split.lengths).all()
