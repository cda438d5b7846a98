"""The same sheaf under every ablation: does it need nothing, an average or another prompt's value
in the place of what was cut?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import pandas as pd
import torch

from discogp_lib.ablation import reference_for
from discogp_lib.comparison import name_of
from discogp_lib.config import Ablation
from discogp_lib.derived import derived
from discogp_lib.evaluate import evaluate, final_states
from discogp_lib.model import MaskedTransformer
from discogp_lib.profiles import get_profile
from discogp_lib.runs import Record, cached_model, cached_task
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Task

ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)
PROMPTS = 64
"""Test prompts, the first so many: reference values of every sender are large."""
BATCH = 16
VERSION = 2
EMPTY = "no edges"
"""The name of what is left when every edge is cut."""


def across_ablations(
    model: MaskedTransformer, task: Task, sheaf: Sheaf, *, prompts: int = PROMPTS
) -> pd.DataFrame:
    """One row per ablation: what the sheaf and its complement do on test prompts."""
    split = task.test.first(prompts)
    full = final_states(model, split)
    rows = []
    for ablation in ABLATIONS:
        reference = reference_for(ablation, model, task)
        found = evaluate(model, sheaf, split, reference=reference, full=full, batch_size=BATCH)
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


def without_edges(model: MaskedTransformer) -> Sheaf:
    """Every edge cut: what the ablation alone can do."""
    mask = torch.zeros(model.graph.n_edges, dtype=torch.bool)
    return replace(Sheaf.full(model), edge_mask=mask)


def of_no_edges(model_name: str, seed: int, task_name: str) -> pd.DataFrame:
    """The same table for every edge cut, as a worker makes it."""
    model, task = cached_model(model_name), cached_task(task_name, model_name, seed)
    table = across_ablations(model, task, without_edges(model))
    return table.assign(short_name=task.short_name, method=EMPTY, seed=seed)


def findings(table: pd.DataFrame, chance: Mapping[str, float]) -> list[str]:
    """What the table of sheaves under all ablations says; `chance` by the task's short name."""
    above = table["accuracy"] - table["short_name"].map(chance)
    means = above.groupby([table["method"], table["ablation"]]).mean().unstack()
    texts = []
    if "discogp" in means.index:
        found = table[table["method"] == "discogp"]
        wide = found.pivot(index=["short_name", "seed"], columns="ablation", values="accuracy")
        for ablation in ABLATIONS[1:]:
            change = 100 * (wide[ablation] - wide["zero"])
            same = int((change.abs() <= 5).sum())
            texts.append(
                f"DiscoGP's sheaves, found with nothing in the place of what was cut, keep their "
                f"accuracy within 5 points under {ablation} ablation in {same} of {len(wide)} "
                f"sheaves (mean change {change.mean():+.1f} points, least {change.min():+.1f})."
            )
    for name in [n for n in ("random_matched", EMPTY) if n in means.index]:
        points = 100 * means.loc[name]
        told = ", ".join(f"{ablation} {points[ablation]:+.1f}" for ablation in ABLATIONS)
        who = "With every edge cut" if name == EMPTY else f"For the control {name_of(name)!r}"
        texts.append(f"{who} accuracy is, in points against chance: {told}.")
    return texts


def mean_ablation_findings(table: pd.DataFrame) -> list[str]:
    """DiscoGP against ACDC where both search under mean ablation, task by task."""
    texts = []
    for task, rows in table.groupby("short_name", sort=False):
        by = rows.set_index("method")
        if not {"discogp@mean", "acdc@mean"} <= set(by.index):
            continue
        ours, theirs = by.loc["discogp@mean"], by.loc["acdc@mean"]
        lead = 100 * (ours["accuracy"] - theirs["accuracy"])
        texts.append(
            f"{task}: under mean ablation DiscoGP has {ours['accuracy']:.1%} at "
            f"{ours['edge_density']:.2%} of the edges and {ours['weight_density']:.2%} of the "
            f"weights, ACDC {theirs['accuracy']:.1%} at {theirs['edge_density']:.2%} of the edges "
            f"and all weights ({lead:+.1f} points for DiscoGP); KL {ours['kl']:.3f} and "
            f"{theirs['kl']:.3f}."
        )
    return texts
