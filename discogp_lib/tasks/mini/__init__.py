"""The nineteen tasks of the embedded mini model, generated from the project's own data.

`rows` gives the evaluation prompts of a task. The agreement and indirect-object prompts are all
held out: the corpus the model is trained on cannot contain them. The facts are what the model
was made to memorise, every fact in every template.
"""

import random
from functools import cache

from discogp_lib.errors import TaskError
from discogp_lib.tasks.base import Row
from discogp_lib.tasks.mini import agreement, facts, indirect_object

AGREEMENT_ROWS = 800
IOI_ROWS = 1000

NAMES: tuple[str, ...] = (*agreement.PHENOMENA, "ioi", *facts.TASKS)
"""The tasks in the paper's order."""


def rows(name: str) -> list[Row]:
    """The prompts of a task, the same at every call: distinct, half of each class for pairs."""
    if name not in NAMES:
        raise TaskError(f'The mini model has no task "{name}"; its tasks are {", ".join(NAMES)}.')
    return list(_rows(name))


@cache
def _rows(name: str) -> tuple[Row, ...]:
    if name in facts.TASKS:
        return tuple(facts.rows(name))
    rng = random.Random(f"rows of {name}")
    size = IOI_ROWS if name == "ioi" else AGREEMENT_ROWS
    classes = indirect_object.ORDERS if name == "ioi" else agreement.groups(name)
    found: dict[str, Row] = {}
    while len(found) < size:
        group = classes[len(found) % len(classes)]
        if name == "ioi":
            row = indirect_object.draw(rng, held_out=True, order=group)
        else:
            row = agreement.draw(name, rng, held_out=True, group=group)
        found.setdefault(row.prompt, row)
    return tuple(found.values())
