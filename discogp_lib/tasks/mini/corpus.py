"""The text the mini model is trained on, one sentence at a time, and the words it is made of."""

import random

from discogp_lib.tasks.mini import agreement, facts, indirect_object, lexicon

SHARES = {"agreement": 40, "ioi": 30, "facts": 25, "filler": 5}
"""How many sentences of a hundred are of each kind."""

_FACTS = [row for name in facts.TASKS for row in facts.rows(name)]
_NOUNS = [word for pair in [*lexicon.REGULAR_NOUNS, *lexicon.IRREGULAR_NOUNS] for word in pair[:1]]


def sentence(rng: random.Random) -> str:
    """One sentence of the corpus; never a held-out pair of subject and verb, or of names."""
    (kind,) = rng.choices(list(SHARES), weights=list(SHARES.values()))
    if kind == "filler":
        return filler(rng)
    if kind == "agreement":
        row = agreement.draw(rng.choice(list(agreement.PHENOMENA)), rng, held_out=False)
    elif kind == "ioi":
        row = indirect_object.draw(rng, held_out=False)
    else:
        row = rng.choice(_FACTS)
    return f"{row.prompt}{row.target}."


def filler(rng: random.Random) -> str:
    """A plain sentence that belongs to no task."""
    text = rng.choice(lexicon.FILLER_TEMPLATES)
    for slot, words in _SLOTS.items():
        while slot in text:
            text = text.replace(slot, rng.choice(words), 1)
    return text


def vocabulary() -> list[str]:
    """Every word and punctuation mark the corpus can contain, sorted."""
    people = [pair for gender in lexicon.GENDERS for pair in lexicon.PEOPLE[gender]]
    verbs = [*lexicon.REFLEXIVE_VERBS, *lexicon.OBJECT_VERBS]
    nouns = [*lexicon.REGULAR_NOUNS, *lexicon.IRREGULAR_NOUNS]
    phrases = [
        *(word for pair in [*people, *verbs, *nouns] for word in pair),
        *(plural.capitalize() for _, plural in people),
        *(word for word in lexicon.OTHER_NUMBER),
        *(word.capitalize() for word in lexicon.OTHER_NUMBER),
        *lexicon.ANAPHORS.values(),
        *lexicon.AUXILIARIES,
        *(word for words in _SLOTS.values() for word in words),
        *lexicon.IOI_TEMPLATES,
        *lexicon.FILLER_TEMPLATES,
        *(f"{row.prompt}{row.target}" for row in _FACTS),
    ]
    return sorted({word for phrase in phrases for word in words(phrase) if word[0] != "["})


def words(text: str) -> list[str]:
    """The text as the tokenizer cuts it: at spaces, with commas and full stops on their own."""
    return text.replace(",", " , ").replace(".", " . ").split()


_SLOTS = {
    "[NAME]": indirect_object.NAMES,
    "[PLACE]": lexicon.PLACES,
    "[OBJECT]": lexicon.OBJECTS,
    "[NOUN]": _NOUNS,
    "[ADJECTIVE]": lexicon.ADJECTIVES,
}
