"""One call for every task of the paper, whatever the model and wherever the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discogp_lib.errors import TaskError
from discogp_lib.tasks.base import Row, Task
from discogp_lib.tasks.blimp import blimp_rows
from discogp_lib.tasks.build import build_task
from discogp_lib.tasks.encode import tokenize
from discogp_lib.tasks.ioi import ORDERS, PAPER_NAMES, ioi_rows
from discogp_lib.tasks.names import SHORT_NAMES, check_name
from discogp_lib.tasks.pararel import pararel_rows
from discogp_lib.tasks.sources import PAPER, ioi_names

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer

PAIR_SIZES = (400, 200, 400)
"""Most rows of train, dev and test for BLiMP (1,000 rows a paradigm) and IOI."""
NEAR_PERFECT = ("mini", "gpt2")
"""Models that answer nearly every prompt of BLiMP and IOI, so that all of them are used."""
GENERATED = "generated"
"""The source of the mini model's tasks."""
IOI_DRAWN = 2000
"""Distinct IOI prompts drawn, twice what the splits take, so that one order alone suffices."""


@dataclass(frozen=True)
class RowSet:
    """A task's rows before any choice is made among them."""

    rows: list[Row]
    source: str
    """Where they came from."""
    unfit_words: int = 0
    """Infill words left out because the tokenizer splits them."""


def load_task(
    name: str,
    model: MaskedTransformer,
    *,
    seed: int = 0,
    sizes: tuple[int, int, int] | None = None,
    order: str = "both",
    held_out_templates: int = 0,
) -> Task:
    """One of the paper's nineteen tasks, tokenised and split for a model.

    Only prompts that the model answers correctly are used, and the audit keeps the count; as in
    the paper, BLiMP and IOI are used in full for GPT-2, which is near perfect on them. The answer's
    label set is the two words, or all answers of the relation, by their first tokens.

    Args:
        name: "ioi", "blimp/<paradigm>" or "pararel/<relation>".
        model: for the mini model the task is generated; for others it is read from
            `DISCOGP_DATA`, the hub or pinned upstream files. A generated fact may occur in
            several splits under different templates, by design; a prompt never does.
        seed: chooses the splits, and the prompts of IOI.
        sizes: most rows of train, dev and test, in place of 400/200/400 for pairs and 60/20/20 %
            of all rows for relations. Where there are fewer rows all three shrink alike.
        order: of the names in IOI: "ABBA", "BABA" or "both"; the authors' prompts are ABBA only.
        held_out_templates: so many templates occur in test alone, where a task has several.
    """
    if order not in ("both", *ORDERS):
        raise TaskError(f"There is no order {order!r} of IOI; choose 'both', 'ABBA' or 'BABA'.")
    if order != "both" and name != "ioi":
        raise TaskError(f"Task {name!r} has no order of names; leave out order={order!r}.")
    if sizes is not None and (len(sizes) != 3 or min(sizes) < 1):
        raise TaskError(f"The sizes {sizes!r} are not three positive numbers of rows.")
    found = task_rows(name, model, seed=seed)
    rows = [row for row in found.rows if order in ("both", row.group)]
    relation = name.startswith("pararel/")
    return build_task(
        name,
        SHORT_NAMES[name],
        rows,
        model,
        source=found.source,
        sizes=sizes or (None if relation else PAIR_SIZES),
        seed=seed,
        only_correct=relation or model.name not in NEAR_PERFECT,
        held_out_templates=held_out_templates,
        unfit_words=found.unfit_words,
    )


def task_rows(name: str, model: MaskedTransformer, *, seed: int = 0) -> RowSet:
    """A task's rows for a model: generated for the mini model, real for the others."""
    check_name(name)
    if model.name == "mini":
        from discogp_lib.tasks import mini

        return RowSet(mini.rows(name), GENERATED)
    kind, _, part = name.partition("/")
    if kind == "blimp":
        return RowSet(*blimp_rows(part))
    if kind == "pararel":
        return RowSet(*pararel_rows(part))
    return _ioi(model, seed)


def _ioi(model: MaskedTransformer, seed: int) -> RowSet:
    """IOI prompts with the names that are one token for the model, with their leading space."""
    names, source = ioi_names() or (list(PAPER_NAMES), PAPER)
    tokens = tokenize([f"Then, {name}" for name in names], model)
    start = len(tokenize(["Then,"], model)[0])
    unknown = model.tokenizer.unk_token_id
    single = [
        name
        for name, ids in zip(names, tokens, strict=True)
        if len(ids) == start + 1 and ids[-1] != unknown
    ]
    if 2 * len(single) < len(names):
        raise TaskError(
            f"The tokenizer of {model.name!r} does not fit task 'ioi': it keeps only "
            f"{len(single)} of {len(names)} names as one token; use a model with larger "
            "vocabulary, or dgp.load_model('mini') for generated prompts."
        )
    rows = ioi_rows(single, IOI_DRAWN, seed=seed)
    return RowSet(rows, source, unfit_words=len(names) - len(single))
