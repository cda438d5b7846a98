"""The words of the mini model: the project's own lexicon and its table of facts, as typed data."""

import json
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
_WORDS = json.loads((HERE / "lexicon.json").read_text(encoding="utf-8"))

GENDERS = ("female", "male")
NAMES: dict[str, list[str]] = _WORDS["names"]
"""Given names by gender, all of them names of the paper's indirect-object table."""
PEOPLE: dict[str, list[list[str]]] = _WORDS["people"]
"""Nouns for people by gender, each as [singular, plural]."""
REFLEXIVE_VERBS: list[list[str]] = _WORDS["reflexive_verbs"]
"""Verbs before an anaphor, each as [base, past]; no verb is in both lists of verbs."""
OBJECT_VERBS: list[list[str]] = _WORDS["object_verbs"]
"""Verbs before a noun phrase, each as [base, past]."""
AUXILIARIES: list[str] = _WORDS["auxiliaries"]
"""Auxiliaries that go with any subject, so that the verb never gives away the number."""
REGULAR_NOUNS: list[list[str]] = _WORDS["regular_nouns"]
IRREGULAR_NOUNS: list[list[str]] = _WORDS["irregular_nouns"]
ADJECTIVES: list[str] = _WORDS["adjectives"]
PLACES: list[str] = _WORDS["places"]
OBJECTS: list[str] = _WORDS["objects"]
IOI_TEMPLATES: list[str] = _WORDS["ioi_templates"]
"""The paper's fifteen templates; [A] is the receiver, [B] the giver, as written in BABA order."""
FILLER_TEMPLATES: list[str] = _WORDS["filler_templates"]

OTHER_GENDER = {"female": "male", "male": "female"}
ANAPHORS = {"female": "herself", "male": "himself", "plural": "themselves"}
DETERMINERS = {"singular": ("this", "that"), "plural": ("these", "those")}
OTHER_NUMBER = {"this": "these", "that": "those", "these": "this", "those": "that"}


@dataclass(frozen=True)
class Relation:
    """One relation of real-world facts: every subject has one answer, of one word."""

    relation: str
    templates: list[str]
    """Prompts with [X] for the subject; the answer comes next."""
    facts: dict[str, str]


RELATIONS: dict[str, Relation] = {
    code: Relation(**entry)
    for code, entry in json.loads((HERE / "facts.json").read_text(encoding="utf-8")).items()
}
