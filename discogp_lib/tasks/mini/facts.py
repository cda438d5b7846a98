"""Twelve relations of real-world facts, each fact in several surface templates."""

import random

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.mini import lexicon

TASKS: dict[str, lexicon.Relation] = {
    f"pararel/{code}": relation for code, relation in lexicon.RELATIONS.items()
}


def rows(name: str) -> list[Row]:
    """Every fact of the relation in every template.

    The corrupted prompt asks the same of another subject with as many words and another answer.
    """
    relation = TASKS[name]
    rng = random.Random(f"rows of {name}")
    found = []
    for subject, answer in relation.facts.items():
        others = [
            other
            for other, other_answer in relation.facts.items()
            if other_answer != answer and len(other.split()) == len(subject.split())
        ]
        for template in relation.templates:
            prompt = template.replace("[X]", subject)
            corrupted = template.replace("[X]", rng.choice(others))
            found.append(Row(prompt, f" {answer}", None, corrupted, answer, template))
    return found
