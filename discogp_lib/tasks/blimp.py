"""BLiMP: which of two words agrees with what came before."""

from discogp_lib.tasks.base import Row
from discogp_lib.tasks.sources import blimp_pairs

OTHER_NUMBER = {"this": "these", "that": "those", "these": "this", "those": "that"}
NUMBER = {"this": "singular", "that": "singular", "these": "plural", "those": "plural"}
GENDER = {"herself": "female", "himself": "male", "itself": "neuter"}


def blimp_rows(paradigm: str) -> tuple[list[Row], str]:
    """The rows of one of the paper's six paradigms, and where they came from.

    The prompt is the sentence cut before its last word, the only one in which the good and the
    bad sentence differ.
    """
    pairs, source = blimp_pairs(paradigm)
    return [blimp_row(paradigm, good, bad) for good, bad in pairs], source


def blimp_row(paradigm: str, good: str, bad: str) -> Row:
    """One minimal pair as a row.

    Between determiner and noun the corrupted prompt has the determiner of the other number. For
    anaphors it is left to be chosen: the nearest prompt as long whose subject has the other
    number or gender, which only the tokenizer can tell.
    """
    prompt, target = good.removesuffix(".").rsplit(" ", 1)
    foil = bad.removesuffix(".").rsplit(" ", 1)[1]
    corrupted = ""
    if paradigm == "anaphor_gender_agreement":
        group = GENDER[target]
    elif paradigm == "anaphor_number_agreement":
        group = "plural" if target == "themselves" else "singular"
    else:
        words = prompt.split(" ")
        place = max(i for i, word in enumerate(words) if word in NUMBER)
        group = NUMBER[words[place]]
        words[place] = OTHER_NUMBER[words[place]]
        corrupted = " ".join(words)
    return Row(prompt, f" {target}", f" {foil}", corrupted, group)
