"""The nineteen tasks of the paper: their names here and in its tables."""

import difflib

from discogp_lib.errors import TaskError

PARADIGMS = {
    "anaphor_gender_agreement": "AGA",
    "anaphor_number_agreement": "ANA",
    "determiner_noun_agreement_1": "DNA",
    "determiner_noun_agreement_irregular_1": "DNA i",
    "determiner_noun_agreement_with_adjective_1": "DNA a",
    "determiner_noun_agreement_with_adj_irregular_1": "DNA ia",
}
"""The six BLiMP paradigms in the paper's order, with the short names of its tables."""

RELATIONS = {
    "P103": "native language",
    "P138": "named after",
    "P159": "headquarters location",
    "P176": "manufacturer",
    "P264": "record label",
    "P279": "subclass of",
    "P30": "continent",
    "P407": "language of work or name",
    "P449": "original network",
    "P495": "country of origin",
    "P1376": "capital of",
    "P36": "capital",
}
"""The twelve PARAREL relations in the paper's order, with what they relate."""

SHORT_NAMES = {
    **{f"blimp/{paradigm}": short for paradigm, short in PARADIGMS.items()},
    "ioi": "IOI",
    **{f"pararel/{relation}": relation for relation in RELATIONS},
}
"""Every task's name and its short name, in the paper's order."""

TASK_NAMES = tuple(SHORT_NAMES)


def check_name(name: str) -> None:
    """Refuse a name that is none of the nineteen, with the likeliest ones first."""
    if name in SHORT_NAMES:
        return
    by_short_name = [full for full, short in SHORT_NAMES.items() if short.lower() == name.lower()]
    alike = difflib.get_close_matches(name.lower(), TASK_NAMES, n=3, cutoff=0.5)
    close = list(dict.fromkeys(by_short_name + alike))
    rest = [full for full in TASK_NAMES if full not in close]
    hint = f"did you mean {' or '.join(map(repr, close))}? The" if close else "the"
    raise TaskError(f"There is no task {name!r}; {hint} tasks are {', '.join(close + rest)}.")
