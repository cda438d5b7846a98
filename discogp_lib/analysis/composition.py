"""Does the union of two sheaves still do the task of each?

For a task (the column of the paper's table) its sheaf is joined with the sheaves of other tasks
and evaluated on it. Whatever is added is added to a sheaf that works, so the union is compared
with two controls: the same sheaf joined with as many random edges and weights as the others
bring in that are new, drawn from all that it lacks (`random`), or with as many in every part of
the model (`matched`, see `parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from discogp_lib.analysis.chance import Draw, by_part, uniform
from discogp_lib.analysis.parts import edge_parts, weight_parts
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import is_right, label_logits, wilson
from discogp_lib.layout import unflatten
from discogp_lib.model import MaskedTransformer
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.base import Split

CONTROLS = {"random": uniform, "matched": by_part}
"""Kinds of random masks that a sheaf is joined with for comparison."""


def composition_table(
    model: MaskedTransformer,
    sheaves: Mapping[str, Sequence[Sheaf]],
    splits: Mapping[str, Split],
    *,
    sizes: Sequence[int] = (2,),
    unions: int | None = None,
    draws: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Accuracy on every task of its sheaf, alone and joined with the sheaves of other tasks.

    sheaves: by task, one for each seed; those of one seed are joined with each other.
    sizes: how many sheaves are joined: 2 for the paper's table, `len(sheaves)` for all of them.
    unions: at most so many unions for each task and size, drawn at random; all by default.
    draws: random masks per control.

    Columns: `seed` (place in the lists), `task` (whose prompts and whose sheaf), `joined` (the
    other tasks, with " + " between them; empty for the sheaf alone), `size`, `kind` (full model,
    original, composed, random, matched), `draw`, `accuracy`, `low`, `high` (95 %, Wilson), `n`,
    `edges`, `weights` (how many the evaluated sheaf keeps).
    """
    _check(sheaves, splits, sizes)
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(len(next(iter(sheaves.values())))):
        for task, found in sheaves.items():
            others = [other for other in sheaves if other != task]
            alone = found[number]
            tried = [("", 0, "full model", 0, alone | ~alone), ("", 1, "original", 0, alone)]
            for size in sizes:
                for names in _some(list(combinations(others, size - 1)), unions, rng):
                    union = reduce(or_, (sheaves[name][number] for name in names), alone)
                    tried += [
                        (" + ".join(names), size, kind, draw, sheaf)
                        for kind, draw, sheaf in _with_controls(alone, union, draws, rng)
                    ]
            for joined, size, kind, draw, sheaf in tried:
                about = {"seed": number, "task": task, "joined": joined, "size": size}
                about |= {"kind": kind, "draw": draw}
                rows.append(about | _accuracy(model, sheaf, splits[task]))
    return pd.DataFrame(rows)


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """What joining changes: composed minus original, and composed minus each control.

    One row per `seed`, `task` and `joined`, with `size`, the accuracies `composed`, `original`,
    `random`, `matched` (controls: mean over draws) and `change`, `over_random`, `over_matched`.
    """
    joined = table[table["size"] > 1]
    keys = ["seed", "task", "joined", "size"]
    wide = joined.pivot_table(index=keys, columns="kind", values="accuracy", sort=False)
    wide = wide.reset_index().rename_axis(columns=None)
    original = table[table["kind"] == "original"].set_index(["seed", "task"])["accuracy"]
    wide["original"] = original.loc[list(zip(wide["seed"], wide["task"], strict=True))].to_numpy()
    wide["change"] = wide["composed"] - wide["original"]
    for control in CONTROLS:
        wide[f"over_{control}"] = wide["composed"] - wide[control]
    return wide


def over_seeds(changes: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds of `differences`, each with the ends of its 95 % interval (Student's t).

    One row per `task` and `joined`; for a column x also `x_low` and `x_high`, missing where
    there is one seed only.
    """
    groups = changes.drop(columns="seed").groupby(["task", "joined", "size"], sort=False)
    means, spreads, n = groups.mean(), groups.std(), groups.size()
    half = spreads.mul(stats.t.ppf(0.975, n - 1) / np.sqrt(n), axis=0)
    low, high = (means - half).add_suffix("_low"), (means + half).add_suffix("_high")
    return pd.concat([means, low, high, n.rename("n_seeds")], axis=1).reset_index()


def paper_rows(table: pd.DataFrame, kind: str = "composed") -> pd.DataFrame:
    """The paper's table: what is joined by row, the task by column, the sheaf alone in the last.

    Accuracies in percent, means over seeds (and draws); `kind` may be one of the controls.
    """
    pairs = table[(table["size"] == 2) & (table["kind"] == kind)]
    tasks = list(dict.fromkeys(table["task"]))
    wide = pairs.pivot_table(index="joined", columns="task", values="accuracy")
    alone = table[table["kind"] == "original"].groupby("task")["accuracy"].mean()
    wide = 100 * wide.reindex(index=tasks, columns=tasks)
    wide.loc["original"] = 100 * alone[tasks]
    return wide.rename_axis(index="joined with", columns=None).reset_index()


def _check(
    sheaves: Mapping[str, Sequence[Sheaf]], splits: Mapping[str, Split], sizes: Sequence[int]
) -> None:
    lengths = {task: len(found) for task, found in sheaves.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        counts = ", ".join(f"{task} has {n}" for task, n in lengths.items()) or "there are none"
        raise ConfigError(f"Every task needs a sheaf for each of the same seeds, but {counts}.")
    missing = [task for task in sheaves if task not in splits]
    if missing:
        raise ConfigError(f"There are sheaves but no prompts for {', '.join(missing)}.")
    if not all(2 <= size <= len(sheaves) for size in sizes):
        raise ConfigError(
            f"Of {len(sheaves)} sheaves, 2 to {len(sheaves)} can be joined, not {list(sizes)}."
        )


def _some(
    unions: list[tuple[str, ...]], at_most: int | None, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """All, or as many as asked for, in their order."""
    if at_most is None or len(unions) <= at_most:
        return unions
    return [unions[i] for i in sorted(rng.choice(len(unions), at_most, replace=False))]


def _with_controls(
    alone: Sheaf, union: Sheaf, draws: int, rng: np.random.Generator
) -> Iterator[tuple[str, int, Sheaf]]:
    """The union, and the sheaf joined with random masks of the size of what the union adds."""
    yield "composed", 0, union
    for kind, draw in CONTROLS.items():
        for number in range(draws):
            yield kind, number, join_random(alone, union - alone, draw(rng))


def join_random(sheaf: Sheaf, added: Sheaf, draw: Draw) -> Sheaf:
    """The sheaf and random edges and weights that it lacks, as many as `added` has."""
    layout, missing = sheaf.layout, ~sheaf
    edges = draw(missing.edge_mask, added.edge_mask, edge_parts(layout.graph))
    weights = draw(missing.flat_weight_mask, added.flat_weight_mask, weight_parts(layout))
    return replace(
        sheaf,
        edge_mask=sheaf.edge_mask | edges,
        weight_masks=unflatten(sheaf.flat_weight_mask | weights, layout),
        metadata={},
    )


def _accuracy(model: MaskedTransformer, sheaf: Sheaf, split: Split) -> dict[str, float]:
    """Accuracy with its interval, and the size of what was evaluated."""
    right = is_right(label_logits(model, split, sheaf), split.targets)
    low, high = wilson(int(right.sum()), len(split))
    return {
        "accuracy": float(right.float().mean()),
        "low": low,
        "high": high,
        "n": len(split),
        "edges": sheaf.kept_edges,
        "weights": sheaf.kept_weights,
    }
