"""The six agreement phenomena, written by a small grammar over the project's own lexicon.

A sentence is a subject, a verb phrase, and an anaphor (`Mary can't help herself`) or a noun
phrase (`The kings noticed those old lamps`). A fifth of all pairs of subject and verb phrase is
held out: the training corpus draws from the other pairs, the tasks only from the held-out ones,
so no evaluated prompt, nor its beginning up to the verb, is ever trained on.
"""

import random
import zlib
from dataclasses import dataclass

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.mini import lexicon

HELD_OUT_SHARE = 5
"""One in this many pairs of subject and verb phrase is kept for the tasks."""


@dataclass(frozen=True)
class Subject:
    """A subject, and what it becomes when its gender or its number is changed."""

    text: str
    gender: str
    number: str
    other_gender: str
    other_number: str


@dataclass(frozen=True)
class Phenomenon:
    """What a paradigm puts after the verb."""

    anaphor: str = ""
    """"gender" or "number" for an anaphor that must agree in it; empty for a noun phrase."""
    nouns: str = "regular"
    adjective: bool = False


PHENOMENA = {
    "blimp/anaphor_gender_agreement": Phenomenon(anaphor="gender"),
    "blimp/anaphor_number_agreement": Phenomenon(anaphor="number"),
    "blimp/determiner_noun_agreement_1": Phenomenon(),
    "blimp/determiner_noun_agreement_irregular_1": Phenomenon(nouns="irregular"),
    "blimp/determiner_noun_agreement_with_adjective_1": Phenomenon(adjective=True),
    "blimp/determiner_noun_agreement_with_adj_irregular_1": Phenomenon(
        nouns="irregular", adjective=True
    ),
}


def is_held_out(subject: str, verb_phrase: str) -> bool:
    """Whether this pair is kept for the tasks: a property of the text, not of any seed."""
    return zlib.crc32(f"{subject}|{verb_phrase}".encode()) % HELD_OUT_SHARE == 0


def draw(name: str, rng: random.Random, *, held_out: bool, group: str | None = None) -> Row:
    """One prompt of the paradigm, held out or not; of the class `group` if one is given."""
    phenomenon = PHENOMENA[name]
    verbs = lexicon.REFLEXIVE_VERBS if phenomenon.anaphor else lexicon.OBJECT_VERBS
    while True:
        row_group = group or rng.choice(groups(name))
        subject = _subject(phenomenon, row_group, rng)
        verb_phrase = _verb_phrase(verbs, rng)
        if is_held_out(subject.text, verb_phrase) == held_out:
            break
    if phenomenon.anaphor:
        return _anaphor_row(phenomenon, subject, verb_phrase, row_group)
    return _noun_row(phenomenon, f"{subject.text} {verb_phrase}", row_group, rng)


def groups(name: str) -> tuple[str, str]:
    """The two classes of a paradigm, which its rows hold in equal numbers."""
    gender = PHENOMENA[name].anaphor == "gender"
    return lexicon.GENDERS if gender else ("singular", "plural")


def _subject(phenomenon: Phenomenon, group: str, rng: random.Random) -> Subject:
    """A subject of the wanted gender or number; either where the phenomenon does not care."""
    gender, number = rng.choice(lexicon.GENDERS), rng.choice(("singular", "plural"))
    if phenomenon.anaphor == "gender":
        gender, number = group, "singular"
    elif phenomenon.anaphor == "number":
        number = group
    other = lexicon.OTHER_GENDER[gender]
    which = rng.randrange(len(lexicon.PEOPLE[gender]))
    singular, plural = lexicon.PEOPLE[gender][which]
    other_noun = lexicon.PEOPLE[other][which][number == "plural"]
    if rng.random() < 0.5:  # one word: a name, or a bare plural
        name, bare = rng.choice(lexicon.NAMES[gender]), plural.capitalize()
        if number == "singular":
            return Subject(name, gender, number, rng.choice(lexicon.NAMES[other]), bare)
        return Subject(bare, gender, number, other_noun.capitalize(), name)
    one, many = rng.choice((("The", "The"), ("This", "These"), ("That", "Those")))
    texts = {"singular": f"{one} {singular}", "plural": f"{many} {plural}"}
    determiner = texts[number].split()[0]
    other_number = texts["plural" if number == "singular" else "singular"]
    return Subject(texts[number], gender, number, f"{determiner} {other_noun}", other_number)


def _verb_phrase(verbs: list[list[str]], rng: random.Random) -> str:
    base, past = rng.choice(verbs)
    return past if rng.random() < 0.4 else f"{rng.choice(lexicon.AUXILIARIES)} {base}"


def _anaphor_row(phenomenon: Phenomenon, subject: Subject, verb_phrase: str, group: str) -> Row:
    own = lexicon.ANAPHORS[subject.gender]
    if phenomenon.anaphor == "gender":
        target, foil = own, lexicon.ANAPHORS[lexicon.OTHER_GENDER[subject.gender]]
        changed = subject.other_gender
    else:
        target, foil = own, lexicon.ANAPHORS["plural"]
        if subject.number == "plural":
            target, foil = foil, target
        changed = subject.other_number
    prompt, corrupted = f"{subject.text} {verb_phrase}", f"{changed} {verb_phrase}"
    return Row(prompt, f" {target}", f" {foil}", corrupted, group)


def _noun_row(phenomenon: Phenomenon, before: str, group: str, rng: random.Random) -> Row:
    irregular = phenomenon.nouns == "irregular"
    pair = rng.choice(lexicon.IRREGULAR_NOUNS if irregular else lexicon.REGULAR_NOUNS)
    target, foil = pair if group == "singular" else reversed(pair)
    determiner = rng.choice(lexicon.DETERMINERS[group])
    after = f" {rng.choice(lexicon.ADJECTIVES)}" if phenomenon.adjective else ""
    prompt = f"{before} {determiner}{after}"
    corrupted = f"{before} {lexicon.OTHER_NUMBER[determiner]}{after}"
    return Row(prompt, f" {target}", f" {foil}", corrupted, group)
