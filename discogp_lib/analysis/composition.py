"""Does the union of two sheaves still do the task of each?

For a task (the column of the paper's table) its sheaf is joined with the sheaves of other tasks
and evaluated on it. Whatever is added is added to a sheaf that works, so the union is compared
with two controls: the same sheaf joined with as many random edges and weights as the others
bring in that are new, drawn from all that it lacks (`random`), or with as many in every part of
the model (`matched`, see `parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import combinations
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from discogp_lib.analysis.chance import Draw, by_part, uniform
from discogp_lib.analysis.memory import Memory, fingerprint, key_of
from discogp_lib.analysis.parts import Found, edge_parts, weight_parts
from discogp_lib.errors import ConfigError
from discogp_lib.evaluate import is_right, label_logits, share_of
from discogp_lib.intervals import half_width, wilson
from discogp_lib.layout import unflatten
from discogp_lib.model import MaskedTransformer
from discogp_lib.paths import RESULTS
from discogp_lib.profiles import get_profile
from discogp_lib.report import stored_sheaves
from discogp_lib.runs import cached_model, cached_task
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks import SHORT_NAMES
from discogp_lib.tasks.base import Split, identity

CONTROLS = {"random": uniform, "matched": by_part}
"""Kinds of random masks that a sheaf is joined with for comparison."""

COMPARISONS = {
    "change": "joined minus alone",
    "over_random": "joined minus random",
    "over_matched": "joined minus matched random",
}
"""What a union is compared with."""

COLUMNS = {"seed": int, "task": str, "joined": str, "size": int, "kind": str, "draw": int}
COLUMNS |= {"accuracy": float, "low": float, "high": float, "n": int, "edges": int}
COLUMNS |= {"weights": int, "live_edges": int, "live_weights": int}


def composition_table(
    model: MaskedTransformer,
    sheaves: Found,
    splits: Mapping[str, Mapping[int, Split]],
    *,
    on: Sequence[str] | None = None,
    sizes: Sequence[int] = (2,),
    unions: int | None = None,
    draws: int = 1,
    seed: int = 0,
    memory: Path | None = None,
) -> pd.DataFrame:
    """Accuracy on every task of its sheaf, alone and joined with the sheaves of other tasks.

    sheaves, splits: by task and seed; a sheaf is joined with those of the same seed, and judged
        on the test prompts of its seed, because another seed may have trained on them.
    on: the tasks that are judged; all by default.
    sizes: how many sheaves are joined: 2 for the paper's table, `len(sheaves)` for all of them;
        sizes that a seed has not enough tasks for are left out.
    unions: at most so many unions of three and more sheaves for each task and size, drawn at
        random; all by default. All pairs are always joined.
    draws: random masks per control.
    memory: file in which evaluations are kept.

    Columns: `seed`, `task` (whose prompts and whose sheaf), `joined` (the other tasks, with " + "
    between them; empty for the sheaf alone), `size`, `kind` (full model, original, composed,
    random, matched), `draw`, `accuracy`, `low`, `high` (95 %, Wilson), `n`, `edges`, `weights`
    (how many the evaluated sheaf keeps), `live_edges`, `live_weights` (how many of them can change
    the logits, see `posthoc`).
    """
    _check(sheaves, splits, sizes)
    known, rows = Memory(memory), []
    for number in sorted({number for found in sheaves.values() for number in found}):
        present = {task: found[number] for task, found in sheaves.items() if number in found}
        prints = {task: fingerprint(sheaf) for task, sheaf in present.items()}
        for task in present if on is None else [task for task in present if task in on]:
            split = splits[task][number]
            prompts = identity([split], (), None)
            for trial in _trials(task, list(present), sizes, unions, draws, (seed, number)):
                key = key_of(prompts, prints[task], sorted(prints[t] for t in trial.names))
                key = key_of(key, trial.kind, trial.draw, seed)
                numbers = known.get(
                    key, partial(_evaluate, model, present, split, task, trial, key)
                )
                rows.append({"seed": number, "task": task, **trial.labels(), **numbers})
    # A table without rows has its types too, and can be put under others.
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def stored_composition(
    profile: str, tasks: Sequence[str], prompts: int, unions: int, place: tuple[int, str]
) -> pd.DataFrame:
    """The table of sheaves in the run store, joined by two, by three and all of them.

    prompts: at most so many test prompts per task.
    place: the seed, and the task that is judged.
    """
    seed, judged = place
    model_name = get_profile(profile).model
    found = stored_sheaves(profile, tasks, [seed])
    present = [task for task in tasks if SHORT_NAMES[task] in found]
    tests = {t: cached_task(t, model_name, seed).test.first(prompts) for t in present}
    return composition_table(
        cached_model(model_name),
        found,
        {SHORT_NAMES[task]: {seed: test} for task, test in tests.items()},
        on=[SHORT_NAMES[judged]],
        sizes=sorted({2, 3, len(found)} & set(range(2, len(found) + 1))),
        unions=unions,
        memory=RESULTS / profile / "runs" / "composition.jsonl",
    )


@dataclass(frozen=True)
class _Trial:
    """One sheaf to be evaluated on a task: which others are joined, or what stands for them."""

    names: tuple[str, ...]
    kind: str
    draw: int = 0

    def labels(self) -> dict[str, Any]:
        size = 0 if self.kind == "full model" else 1 + len(self.names)
        joined = " + ".join(self.names)
        return {"joined": joined, "size": size, "kind": self.kind, "draw": self.draw}

    def sheaf(self, alone: Sheaf, sheaves: Mapping[str, Sheaf], key: str) -> Sheaf:
        """The sheaf, with its own random numbers: the same whatever else is evaluated."""
        if self.kind == "full model":
            return alone | ~alone
        union = reduce(or_, (sheaves[name] for name in self.names), alone)
        if self.kind not in CONTROLS:
            return union
        rng = np.random.default_rng(int(key[:16], 16))
        return join_random(alone, union - alone, CONTROLS[self.kind](rng))


def _trials(
    task: str,
    tasks: list[str],
    sizes: Sequence[int],
    unions: int | None,
    draws: int,
    seeds: tuple[int, int],
) -> Iterator[_Trial]:
    """The full model, the sheaf alone, and every union with its controls."""
    yield _Trial((), "full model")
    yield _Trial((), "original")
    rng = np.random.default_rng([*seeds, *task.encode()])
    others = [other for other in tasks if other != task]
    for size in sizes:
        at_most = unions if size > 2 else None
        for names in _some(list(combinations(others, size - 1)), at_most, rng):
            yield _Trial(names, "composed")
            for kind in CONTROLS:
                yield from (_Trial(names, kind, draw) for draw in range(draws))


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """What joining changes: composed minus original, and composed minus each control.

    One row per `seed`, `task` and `joined`, with `size`, the accuracies `composed`, `original`,
    `random`, `matched` (controls: mean over draws) and `change`, `over_random`, `over_matched`.
    """
    joined = table[table["size"] > 1]
    keys = ["seed", "task", "joined", "size"]
    means = joined.groupby([*keys, "kind"], sort=False)["accuracy"].mean().astype(float)
    wide = means.unstack("kind", sort=False).reindex(columns=["composed", *CONTROLS])
    wide = wide.reset_index().rename_axis(columns=None)
    original = table[table["kind"] == "original"].set_index(["seed", "task"])["accuracy"]
    places = pd.MultiIndex.from_frame(wide[["seed", "task"]])
    wide["original"] = original.reindex(places).to_numpy(float)
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
    half = spreads.apply(half_width, n=n)
    low, high = (means - half).add_suffix("_low"), (means + half).add_suffix("_high")
    return pd.concat([means, low, high, n.rename("n_seeds")], axis=1).reset_index()


def with_intervals(means: pd.DataFrame) -> pd.DataFrame:
    """Differences in points as text, each with its interval, for readers; takes `over_seeds`."""
    texts = pd.DataFrame({"on": means["task"], "joined with": means["joined"]})
    for value, name in COMPARISONS.items():
        texts[name] = [
            f"{mean:+.1f}" + ("" if np.isnan(low) else f" [{low:+.1f}, {high:+.1f}]")
            for mean, low, high in 100 * means[[value, f"{value}_low", f"{value}_high"]].to_numpy()
        ]
    return texts


def by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Means over tasks, unions, draws and seeds: what joining more and more sheaves does.

    Columns: `size`, `kind`, `accuracy`, `edges`, `weights` (kept), `live_edges`, `live_weights`
    (of these, those that can change the logits), `n` (evaluations).
    """
    kinds = ["full model", "original", "composed", *CONTROLS]
    groups = table.groupby(["size", "kind"], sort=False)
    values = ["accuracy", "edges", "weights", "live_edges", "live_weights"]
    means = groups[values].mean().assign(n=groups.size()).reset_index()
    order = pd.DataFrame({"size": means["size"], "kind": means["kind"].map(kinds.index)})
    return means.loc[order.sort_values(["size", "kind"]).index].reset_index(drop=True)


def paper_rows(
    table: pd.DataFrame, kind: str = "composed", tasks: Sequence[str] = ()
) -> pd.DataFrame:
    """The paper's table: what is joined by row, the task by column, the sheaf alone in the last.

    Accuracies in percent, means over seeds (and draws); `kind` may be one of the controls. `tasks`
    are the rows and columns, missing where a task was not run; by default those of the table.
    """
    pairs = table[(table["size"] == 2) & (table["kind"] == kind)]
    tasks = list(tasks or dict.fromkeys(table["task"]))
    wide = pairs.pivot_table(index="joined", columns="task", values="accuracy")
    alone = table[table["kind"] == "original"].groupby("task")["accuracy"].mean()
    wide = 100 * wide.reindex(index=tasks, columns=tasks)
    wide.loc["original"] = 100 * alone.reindex(tasks)
    return wide.rename_axis(index="joined with", columns=None).reset_index()


def _check(sheaves: Found, splits: Mapping[str, Mapping[int, Split]], sizes: Sequence[int]) -> None:
    missing = [
        f"{task} seed {number}"
        for task, found in sheaves.items()
        for number in found
        if number not in splits.get(task, {})
    ]
    if missing:
        raise ConfigError(f"There are sheaves but no prompts for {', '.join(missing)}.")
    if any(size < 2 for size in sizes):
        raise ConfigError(f"Two sheaves or more can be joined, not {list(sizes)}.")


def _some(
    unions: list[tuple[str, ...]], at_most: int | None, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """All, or as many as asked for, in their order."""
    if at_most is None or len(unions) <= at_most:
        return unions
    return [unions[i] for i in sorted(rng.choice(len(unions), at_most, replace=False))]


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


def _evaluate(
    model: MaskedTransformer,
    sheaves: Mapping[str, Sheaf],
    split: Split,
    task: str,
    trial: _Trial,
    key: str,
) -> dict[str, float]:
    """Accuracy with its interval, and the size of what was evaluated."""
    sheaf = trial.sheaf(sheaves[task], sheaves, key)
    right = is_right(label_logits(model, split, sheaf), split.targets)
    low, high = wilson(int(right.sum()), len(split))
    live = sheaf.pruned()
    return {
        "accuracy": share_of(right),
        "low": low,
        "high": high,
        "n": len(split),
        "edges": sheaf.kept_edges,
        "weights": sheaf.kept_weights,
        "live_edges": live.kept_edges,
        "live_weights": live.kept_weights,
    }
