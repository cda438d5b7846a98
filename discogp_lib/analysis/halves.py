"""Half a sheaf: does it need both its masks, or would its weights or its edges do alone?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch

from discogp_lib.derived import derived
from discogp_lib.evaluate import evaluate, final_states
from discogp_lib.model import MaskedTransformer
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Record, cached_model, cached_task
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split

BOTH, ITS_WEIGHTS, ITS_EDGES = "both masks", "its weights, all edges", "its edges, all weights"
PROMPTS = 100
"""Test prompts, the first so many."""


def halves(sheaf: Sheaf) -> dict[str, Sheaf]:
    """The sheaf, and what is left of it when one of its masks is taken away."""
    all_edges = torch.ones_like(sheaf.edge_mask)
    all_weights = {name: torch.ones_like(mask) for name, mask in sheaf.weight_masks.items()}
    return {
        BOTH: sheaf,
        ITS_WEIGHTS: replace(sheaf, edge_mask=all_edges),
        ITS_EDGES: replace(sheaf, weight_masks=all_weights),
    }


def halves_table(model: MaskedTransformer, sheaf: Sheaf, split: Split) -> pd.DataFrame:
    """One row per half: what it does on a split."""
    full = final_states(model, split)
    found = {kept: evaluate(model, half, split, full=full) for kept, half in halves(sheaf).items()}
    return pd.DataFrame([{"kept": kept, **one.as_dict()} for kept, one in found.items()])


def stored_halves(record: Record, prompts: int = PROMPTS) -> pd.DataFrame:
    """The same for the sheaf of a run on its test prompts, computed once."""
    run, model_name = record.run, get_profile(record.run.profile).model
    inputs = {"sheaf": record.data["sheaf_sha256"], "prompts": prompts, **record.data["inputs"]}

    def make() -> pd.DataFrame:
        split = cached_task(run.task, model_name, run.seed).test.first(prompts)
        return halves_table(cached_model(model_name), record.sheaf(), split)

    table = derived(run, "halves", inputs, make)
    return table.assign(short_name=record.data["short_name"], run=str(run))
