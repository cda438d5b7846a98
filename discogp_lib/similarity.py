"""How much of the clean value is left in what an ablation puts in its place.

The paper gives an "average cosine similarity between clean and corrupted ablated edge
representations" without saying what exactly is compared. Here:

* An edge carries its sender's output, so its clean representation is that vector in the full
  model on the clean prompt, and its ablated one is the reference value of the ablation.
* Compared is the cosine of the two at one token of one prompt.
* Averaged is over tokens, then prompts, then edges. An edge's value is its sender's, so that
  is a mean over senders, each weighted by the number of edges that leave it.

Tokens are either all of a prompt's (padding and the token before every prompt, if any, left out:
the latter is the same in every prompt) or only the last, where the answer is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from discogp_lib.ablation import random_reference, reference_for
from discogp_lib.evaluate import Reference
from discogp_lib.graph import Graph
from discogp_lib.model import MaskedTransformer
from discogp_lib.tasks.base import Split, Task

BATCH = 16

TOKENS = ("all", "last")

KINDS = {"blimp": "Agreement", "ioi": "IOI", "pararel": "PARAREL"}
"""The rows of the paper's table, by how a task's name begins."""


PROMPTS = 100
"""Test prompts of a task that values are compared on, the first so many."""


def similarity_table(model: MaskedTransformer, tasks: Sequence[Task]) -> pd.DataFrame:
    """One row per task, ablation and choice of tokens: the mean cosine on test prompts."""
    rows = []
    for task in tasks:
        split = task.test.first(PROMPTS)
        references: dict[str, Reference | None] = {
            "mean": reference_for("mean", model, task),
            "interchange": reference_for("interchange", model, task),
            "random": random_reference(model, seed=0),
        }
        for ablation, reference in references.items():
            assert reference is not None
            for tokens, cosine in similarity(model, split, reference).items():
                rows.append(
                    {
                        "task": task.name,
                        "short_name": task.short_name,
                        "ablation": ablation,
                        "tokens": tokens,
                        "cosine": cosine,
                        "prompts": len(split),
                        "edges": model.graph.n_edges,
                    }
                )
    return pd.DataFrame(rows)


def by_kind(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's table from that of the tasks: agreement, IOI and facts, each a mean over its
    tasks; a line per kind and choice of tokens, a column per ablation."""
    kinds = table["task"].str.partition("/")[0].map(KINDS).fillna(table["task"])
    named = table.assign(task=pd.Categorical(kinds, list(dict.fromkeys(kinds)), ordered=True))
    groups = named.groupby(["tokens", "task", "ablation"], observed=True)
    wide = groups["cosine"].mean().unstack()[["mean", "interchange", "random"]]
    counts = groups["cosine"].count().unstack()["mean"]
    return wide.assign(tasks=counts).rename_axis(columns=None).reset_index()


def findings(kinds: pd.DataFrame) -> list[str]:
    """What the table of kinds says about the ablations, for each choice of tokens."""
    texts = []
    for tokens, rows in kinds.groupby("tokens", sort=False):
        above = int((rows[["mean", "interchange"]].min(axis=1) > rows["random"]).sum())
        ranges = ", ".join(
            f"{name} {rows[name].min():.2f} to {rows[name].max():.2f}"
            for name in ("mean", "interchange", "random")
        )
        where = "all tokens" if tokens == "all" else "the last token"
        texts.append(
            f"Over {where}: mean and interchange values are both nearer to the clean ones than "
            f"those of random prompts for {above} of {len(rows)} kinds of task ({ranges})."
        )
    return texts


def similarity(model: MaskedTransformer, split: Split, reference: Reference) -> dict[str, float]:
    """Mean cosine of clean and ablated values over tokens, prompts and edges.

    "all": over all tokens of each prompt; "last": at its last.
    """
    total = {name: torch.zeros(model.graph.n_senders, device=model.device) for name in TOKENS}
    for batch in split.batches(BATCH):
        cosines = F.cosine_similarity(model.sender_outputs(batch.tokens), reference(batch), dim=-1)
        for name in TOKENS:
            chosen = _tokens(model, batch, last=name == "last").to(model.device).unsqueeze(-1)
            total[name] += ((cosines * chosen).sum(1) / chosen.sum(1)).sum(0)
    weight = out_degrees(model.graph).to(model.device)
    return {
        name: float((value / len(split) * weight).sum() / weight.sum())
        for name, value in total.items()
    }


def out_degrees(graph: Graph) -> Float[Tensor, " sender"]:
    """Number of edges that leave each sender."""
    degrees = torch.zeros(graph.n_senders)
    for group in graph.groups:
        degrees[: group.n_senders] += len(group.receivers)
    return degrees


def _tokens(model: MaskedTransformer, batch: Split, last: bool) -> Bool[Tensor, "prompt pos"]:
    """The tokens of each prompt that are compared."""
    positions = torch.arange(batch.tokens.shape[1])[None, :]
    ends = batch.lengths[:, None] - 1
    if last:
        return positions == ends
    return (positions <= ends) & (positions >= (model.bos is not None))
