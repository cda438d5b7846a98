"""What happened to a task's rows between their source and the splits, and what guessing scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer
    from discogp_lib.tasks.base import Task


@dataclass(frozen=True)
class Audit:
    """The counts of one task, kept with it so that no table has to guess them."""

    source: str
    """Where the rows came from: a folder, the hub, the generator, the user."""
    rows_in: int
    """Rows the source gave."""
    duplicates: int
    """Rows dropped because the same prompt with the same answers came before."""
    ties: int
    """Rows dropped because the right and the wrong word start with the same token."""
    multi_token_targets: int
    """Rows whose right word is more than one token, of which only the first is scored."""
    collisions: int
    """Answers of a relation merged with another because they start with the same token."""
    ambiguous: int
    """Prompts that come with more than one right answer."""
    unfit_words: int
    """Infill words left out because the tokenizer splits them (names of IOI)."""
    correct: int | None
    """Rows the full model answers correctly, where only those are used; else None."""
    uncorrupted: int
    """Rows used that have no counterpart of their length and are their own corrupted prompt."""
    rows_used: int
    """Rows in the three splits."""
    n_labels: int
    """Size of the label set; guessing scores one in so many."""
    majority_in: float
    """Share of the most frequent class before the model was asked anything."""
    majority: float
    """Share of the most frequent class among the rows used: what one fixed answer scores."""
    tokens_min: int
    """Shortest prompt used, BOS included."""
    tokens_mean: float
    """Mean prompt length, BOS included."""
    tokens_max: int
    """Longest prompt used, BOS included."""

    @property
    def chance(self) -> float:
        """Accuracy of an even guess over the label set, 1/K."""
        return 1 / self.n_labels


def audit_table(
    model: MaskedTransformer, tasks: Sequence[Task], *, seed: int = 0, max_rows: int = 400
) -> pd.DataFrame:
    """One line per task: the counts, what guessing scores, what the full model scores.

    seed: that of the tasks.

    `accuracy` is the full model's on test. The last four columns score at most `max_rows` rows of
    the source, a fixed sample before any filter: `first_token` and `whole_word` on the rows
    without a tie, `whole_word_all` on all of them, `rows_scored` how many these are.
    """
    from discogp_lib.evaluate import is_right, label_logits
    from discogp_lib.tasks.load import task_rows
    from discogp_lib.tasks.words import score_words

    lines = []
    for task in tasks:
        right = is_right(label_logits(model, task.test).cpu(), task.test.targets)
        scores = score_words(task_rows(task.name, model, seed=seed).rows, model, max_rows=max_rows)
        audit = task.audit
        lines.append(
            {
                "task": task.short_name,
                **{field: getattr(audit, field) for field in Audit.__dataclass_fields__},
                "chance": audit.chance,
                "accuracy": right.double().mean().item(),
                "first_token": scores.first_token,
                "whole_word": scores.whole_word,
                "whole_word_all": scores.whole_word_all,
                "rows_scored": scores.rows,
            }
        )
    return pd.DataFrame(lines).astype({"correct": "Int64"})
