"""The generated tasks: what the model is asked, and that training cannot have shown it."""

import hashlib
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discogp_lib.errors import TaskError
from discogp_lib.tasks import mini
from discogp_lib.tasks.mini import agreement, corpus, facts, indirect_object, lexicon

PAIRS = mini.NAMES[:7]
FACTS = mini.NAMES[7:]
ROWS = {name: mini.rows(name) for name in mini.NAMES}
KNOWN = set(corpus.vocabulary())
HELD_OUT = {" ".join(corpus.words(row.prompt)) for name in PAIRS for row in ROWS[name]}


def test_the_nineteen_tasks_are_in_the_papers_order() -> None:
    relations = (103, 138, 159, 176, 264, 279, 30, 407, 449, 495, 1376, 36)
    assert list(FACTS) == [f"pararel/P{number}" for number in relations]
    assert mini.NAMES[6] == "ioi"
    assert all(name.startswith("blimp/") for name in mini.NAMES[:6])


def test_the_rows_are_those_the_shipped_model_was_measured_on() -> None:
    text = repr([(name, ROWS[name]) for name in mini.NAMES])
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "95b5308a9856e27ffac18d4a135a520b12809d2a62c380d8bf06da22411547c7"
    )


@pytest.mark.parametrize("name", mini.NAMES)
def test_no_prompt_is_asked_twice_and_a_caller_cannot_change_the_rows(name: str) -> None:
    rows = mini.rows(name)
    assert len({row.prompt for row in rows}) == len(rows) >= 200
    rows.clear()
    assert mini.rows(name) == ROWS[name]


@pytest.mark.parametrize("name", mini.NAMES)
def test_the_corrupted_prompt_is_another_one_of_the_same_length(name: str) -> None:
    for row in ROWS[name]:
        assert row.corrupted != row.prompt
        assert len(corpus.words(row.corrupted)) == len(corpus.words(row.prompt))


@pytest.mark.parametrize("name", mini.NAMES)
def test_every_word_is_in_the_vocabulary_and_every_answer_is_one_word(name: str) -> None:
    for row in ROWS[name]:
        assert set(corpus.words(row.prompt)) | set(corpus.words(row.corrupted)) <= KNOWN
        for answer in filter(None, (row.target, row.foil)):
            assert answer[0] == " "
            assert answer[1:] in KNOWN


@pytest.mark.parametrize("name", PAIRS)
def test_the_two_classes_of_a_pair_task_are_equally_large(name: str) -> None:
    sizes = Counter(row.group for row in ROWS[name])
    assert len(sizes) == 2
    assert len(set(sizes.values())) == 1
    assert all(row.target != row.foil for row in ROWS[name])


def kind_of_subject(prompt: str) -> tuple[str, str]:
    """Gender and number of the subject, looked up word by word."""
    words = prompt.split()
    word = words[1] if words[0] in ("The", "This", "That", "These", "Those") else words[0]
    for gender in lexicon.GENDERS:
        if word in lexicon.NAMES[gender]:
            return gender, "singular"
        for forms in lexicon.PEOPLE[gender]:
            if word.lower() in forms:
                return gender, ("singular", "plural")[forms.index(word.lower())]
    raise AssertionError(prompt)


def test_the_anaphor_agrees_with_the_subject_and_the_corrupted_subject_wants_the_foil() -> None:
    for name in mini.NAMES[:2]:
        for row in ROWS[name]:
            for prompt, anaphor in ((row.prompt, row.target), (row.corrupted, row.foil)):
                gender, number = kind_of_subject(prompt)
                wanted = "plural" if number == "plural" else gender
                assert anaphor == f" {lexicon.ANAPHORS[wanted]}"


@pytest.mark.parametrize("name", mini.NAMES[2:6])
def test_the_noun_agrees_with_its_determiner_and_the_foil_with_the_other(name: str) -> None:
    pairs = [*lexicon.REGULAR_NOUNS, *lexicon.IRREGULAR_NOUNS]
    number = {f" {word}": n for pair in pairs for n, word in enumerate(pair)}
    determiners = [("this", "that"), ("these", "those")]
    place = -2 if agreement.PHENOMENA[name].adjective else -1
    for row in ROWS[name]:
        clean, other = row.prompt.split(), row.corrupted.split()
        assert clean[place] in determiners[number[row.target]]
        assert other[place] in determiners[number[str(row.foil)]]
        assert clean[:place] == other[:place]
        assert clean[place:][1:] == other[place:][1:]


def test_the_third_name_takes_the_place_of_the_repeated_giver() -> None:
    for row in ROWS["ioi"]:
        receiver, giver = row.target.strip(), str(row.foil).strip()
        clean, corrupted = corpus.words(row.prompt), corpus.words(row.corrupted)
        assert (clean.count(receiver), clean.count(giver)) == (1, 2)
        assert (corrupted.count(receiver), corrupted.count(giver)) == (1, 1)
        first = min(clean.index(receiver), clean.index(giver))
        assert clean[first] == (receiver if row.group == "ABBA" else giver)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32))
def test_the_corpus_never_contains_a_held_out_prompt_and_is_all_in_the_vocabulary(
    seed: int,
) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        words = corpus.words(corpus.sentence(rng))
        assert set(words) <= KNOWN
        assert not any(" ".join(words[:end]) in HELD_OUT for end in range(len(words)))
        names = [word for word in words if word in indirect_object.NAMES]
        if len(names) == 4:
            receiver, giver = names[3], names[2]
            assert not indirect_object.is_held_out(receiver, giver)


def test_the_held_out_rows_are_of_held_out_pairs() -> None:
    for row in ROWS["ioi"]:
        assert indirect_object.is_held_out(row.target.strip(), str(row.foil).strip())
    for row in ROWS[mini.NAMES[0]]:
        words = row.prompt.split()
        size = 2 if words[0] in ("The", "This", "That") else 1
        assert agreement.is_held_out(" ".join(words[:size]), " ".join(words[size:]))


@pytest.mark.parametrize("name", FACTS)
def test_a_relation_has_forty_facts_in_five_templates_and_no_dominant_answer(name: str) -> None:
    relation = facts.TASKS[name]
    assert (len(relation.facts), len(set(relation.templates))) == (40, 5)
    assert all(template.count("[X]") == 1 for template in relation.templates)
    assert max(Counter(relation.facts.values()).values()) <= 0.35 * 40


@pytest.mark.parametrize("name", FACTS)
def test_the_corrupted_fact_has_another_answer(name: str) -> None:
    answers = {row.prompt: row.target for row in ROWS[name]}
    assert all(answers[row.corrupted] != row.target for row in ROWS[name])


def test_no_verb_takes_both_an_anaphor_and_a_noun() -> None:
    reflexive = {form for verb in lexicon.REFLEXIVE_VERBS for form in verb}
    assert not reflexive & {form for verb in lexicon.OBJECT_VERBS for form in verb}


def test_an_unknown_task_is_told_the_names_of_the_known() -> None:
    with pytest.raises(TaskError, match=r"P999.*ioi"):
        mini.rows("pararel/P999")
