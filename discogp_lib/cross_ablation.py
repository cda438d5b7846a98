"""The same sheaf under every ablation: does it need nothing, an average or another prompt's value
in the place of what was cut?"""

from __future__ import annotations

from typing import get_args

import pandas as pd

from discogp_lib.ablation import reference_for
from discogp_lib.config import Ablation
from discogp_lib.derived import derived
from discogp_lib.evaluate import evaluate
from discogp_lib.model import MaskedTransformer
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Record, cached_model, cached_task
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)
PROMPTS = 100
"""Test prompts, the first so many: reference values of every sender are large."""
BATCH = 16
VERSION = 1


def across_ablations(
    model: MaskedTransformer, task: Task, sheaf: Sheaf, *, prompts: int = PROMPTS
) -> pd.DataFrame:
    """One row per ablation: what the sheaf and its complement do on test prompts."""
    split = task.test.select(range(min(prompts, len(task.test))))
    rows = []
    for ablation in ABLATIONS:
        reference = reference_for(ablation, model, task)
        found = evaluate(model, sheaf, split, reference=reference, batch_size=BATCH)
        rows.append({"ablation": ablation, **found.as_dict()})
    return pd.DataFrame(rows)


def of_record(record: Record, *, prompts: int = PROMPTS) -> pd.DataFrame:
    """The same for the sheaf of a run, computed once."""
    run, model_name = record.run, get_profile(record.run.profile).model
    inputs = {"version": VERSION, "sheaf": record.data["sheaf_sha256"], "prompts": prompts}

    def make() -> pd.DataFrame:
        task = cached_task(run.task, model_name, run.seed)
        return across_ablations(cached_model(model_name), task, record.sheaf(), prompts=prompts)

    table = derived(run, "ablations", inputs | record.data["inputs"], make)
    return table.assign(short_name=record.data["short_name"], method=run.method, seed=run.seed)
