"""The paper's three tables of data, made again from what the tasks really hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from discogp_lib.tasks.ioi import OBJECTS, PAPER_NAMES, PLACES, TEMPLATES
from discogp_lib.tasks.load import GENERATED, task_rows
from discogp_lib.tasks.names import RELATIONS, SHORT_NAMES

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer

PAPER_QUERIES = dict(
    zip(RELATIONS, (977, 645, 967, 982, 429, 964, 975, 877, 881, 909, 234, 703), strict=True)
)
"""The number of queries per relation in the paper's table, 9,543 in all."""

PAPER_RANDOM = {"pararel": 0.0, "ioi": 0.5, "blimp": 0.5}
"""What the caption of the paper's main table calls random performance: "close to 0 %" for facts."""


def overview_table(model: MaskedTransformer, names: Sequence[str]) -> pd.DataFrame:
    """One example of each task: a prompt, the right and the wrong answer.

    Sentences of BLiMP and subjects of real facts are not ours to pass on: a fact is shown by its
    question alone, and of a pair is said what it is.
    """
    lines = []
    for name in names:
        found = task_rows(name, model)
        row, family = found.rows[0], name.partition("/")[0]
        if found.source == GENERATED or family == "ioi":
            wrong = "any other answer" if row.foil is None else row.foil.strip()
            example = row.prompt, row.target.strip(), wrong
        elif family == "blimp":
            example = "a sentence up to the word", "the one that agrees", "the other"
        else:
            example = row.template, "its one answer", "any other answer"
        texts = dict(zip(("example prompt", "correct", "incorrect"), example, strict=True))
        counts = {"rows": len(found.rows), "source": found.source}
        lines.append({"task": SHORT_NAMES[name], "name": name, **texts, **counts})
    return pd.DataFrame(lines)


def ioi_templates_table() -> pd.DataFrame:
    """The fifteen IOI templates in the order BABA, [A] at the end being the answer."""
    return pd.DataFrame({"number": range(1, len(TEMPLATES) + 1), "template": TEMPLATES})


def ioi_words_table(model: MaskedTransformer) -> pd.DataFrame:
    """The words that fill the IOI templates for a model, their number beside the original's.

    Of the original list's names those are shown that the paper prints.
    """
    rows = task_rows("ioi", model).rows
    names = sorted({row.target.strip() for row in rows} | {str(row.foil).strip() for row in rows})
    lines = [("[A] and [B]", 99, names), ("[PLACE]", 8, PLACES), ("[OBJECT]", 8, OBJECTS)]
    return pd.DataFrame(
        [(slot, len(words), original, _listed(words)) for slot, original, words in lines],
        columns=["placeholder", "words", "words in the original list", "candidates"],
    )


def _listed(words: Sequence[str]) -> str:
    """The words that the paper prints, and how many others there are."""
    shown = [word for word in words if word in (*PAPER_NAMES, *PLACES, *OBJECTS)]
    hidden = len(words) - len(shown)
    return ", ".join(shown) + (f" and {hidden} more" if hidden else "")


def relations_table(model: MaskedTransformer) -> pd.DataFrame:
    """The relations: the question, our number of queries beside the paper's, the answers."""
    lines = []
    for relation in RELATIONS:
        rows = task_rows(f"pararel/{relation}", model).rows
        lines.append(
            {
                "relation": relation,
                "meaning": RELATIONS[relation],
                "queries": len(rows),
                "queries in the paper": PAPER_QUERIES[relation],
                "answers": len({row.target for row in rows}),
                "questions": len({row.template for row in rows}),
                "first question": rows[0].template,
            }
        )
    return pd.DataFrame(lines)


def prior_table(audit: pd.DataFrame) -> pd.DataFrame:
    """What three ways of not knowing score, from an audit table: the figure of label priors.

    `chance` guesses evenly over the label set, `majority` always gives the most frequent class,
    `paper_random` is the level the paper compares with.
    """
    kinds = {short: name.partition("/")[0] for name, short in SHORT_NAMES.items()}
    table = audit[["task", "chance", "majority"]].copy()
    table["paper_random"] = [PAPER_RANDOM[kinds[task]] for task in table["task"]]
    return table
