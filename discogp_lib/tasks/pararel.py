"""PARAREL: facts asked for with one fixed sentence per relation."""

import re

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.sources import pararel_pairs, pararel_pattern


def pararel_rows(relation: str) -> tuple[list[Row], str]:
    """The rows of one of the paper's twelve relations, and where they came from.

    One row for each subject and object, asked with the relation's first pattern cut before the
    object. The corrupted prompt is left to be chosen: another subject of the relation with as
    many tokens and another answer.
    """
    pairs, source = pararel_pairs(relation)
    question = cut_pattern(pararel_pattern(relation))
    rows = [
        Row(question.replace("[X]", subject), f" {answer}", None, "", answer, question)
        for subject, answer in pairs
    ]
    return rows, source


def cut_pattern(pattern: str) -> str:
    """A pattern without the object at its end: "[X] is located in [Y]." to "[X] is located in"."""
    return re.sub(r"\s*\[Y\]\s*\.?$", "", pattern)
