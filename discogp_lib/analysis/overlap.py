"""Do sheaves of similar tasks share more edges and weights than others do, and than chance does?

The paper compares intersection over union. That number grows with the sizes of the masks, so
each pair comes with what random masks of those very sizes share, drawn from the whole model and
drawn part by part (see `parts`); and a task's sheaves of several seeds are the yardstick of what
"the same" looks like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch

from discogp_lib.analysis.chance import shared_by_chance, tail
from discogp_lib.analysis.likeness import SIMILARITY
from discogp_lib.analysis.parts import KINDS, Found, Kind, flat_mask, parts_of
from discogp_lib.sheaf import Sheaf

PAPER_PAIRS = (
    ("AGA", "DNA"),
    ("ANA", "DNA"),
    ("ANA", "AGA"),
    ("DNA", "DNA i"),
    ("DNA", "DNA a"),
    ("DNA", "DNA ia"),
)
"""The six rows of the paper's table, in its order."""

COLUMNS = ["kind", "size_a", "size_b", "total", "shared", "union", "iou", "expected", "spread"]
COLUMNS += ["iou_by_chance", "ratio", "excess", "z", "p"]
COLUMNS += ["expected_matched", "ratio_matched", "excess_matched", "z_matched"]
"""What every pair is told about, see `overlap_table`."""


def overlap_table(sheaves: Mapping[str, Sheaf]) -> pd.DataFrame:
    """Every pair of sheaves, the paper's six first; one row for edges and one for weights.

    Columns: `a`, `b`, `kind`; `size_a`, `size_b`, `total` (all edges or weights of the model);
    `shared`, `union`, `iou`; by chance, for masks of these sizes: `expected` and `spread` of the
    shared entries, `iou_by_chance`, `ratio` (shared over expected), `excess` (shared beyond
    chance, of what could be: 1 if the smaller mask lies in the larger), `z`, `p` (one-sided);
    and with the sizes matched in every part: `expected_matched`, `ratio_matched`,
    `excess_matched`, `z_matched`.
    """
    names = list(sheaves)
    first = [pair for pair in PAPER_PAIRS if set(pair) <= set(names)]
    known = {frozenset(pair) for pair in first}
    rest = [pair for pair in combinations(names, 2) if frozenset(pair) not in known]
    pairs = [(names.index(a), names.index(b)) for a, b in (*first, *rest)]
    rows = _compare(list(sheaves.values()), pairs)
    labels = [{"a": names[i], "b": names[j]} for i, j in pairs]
    return pd.DataFrame([labels[n] | row for n, row in rows], columns=["a", "b", *COLUMNS])


def seed_overlap(sheaves: Found, classes: Mapping[str, str] = SIMILARITY) -> pd.DataFrame:
    """Every pair of sheaves over tasks and seeds, by how alike their tasks are.

    The columns of `overlap_table`, and `seed_a`, `seed_b` and `tasks`: same, similar (of one
    class) or different. Two tasks are compared at all pairs of seeds.
    """
    flat = [(task, seed, s) for task, found in sheaves.items() for seed, s in found.items()]
    pairs = list(combinations(range(len(flat)), 2))
    labels = []
    for (a, seed_a, _), (b, seed_b, _) in combinations(flat, 2):
        alike = classes.get(a, a) == classes.get(b, b)
        tasks = "same" if a == b else "similar" if alike else "different"
        labels.append({"a": a, "b": b, "seed_a": seed_a, "seed_b": seed_b, "tasks": tasks})
    rows = _compare([sheaf for _, _, sheaf in flat], pairs)
    return pd.DataFrame(
        [labels[n] | row for n, row in rows],
        columns=["a", "b", "seed_a", "seed_b", "tasks", *COLUMNS],
    )


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over pairs of seeds of each pair of tasks, the paper's six first.

    Of a task with itself, the pairs of different seeds. `iou_sd`, `ratio_sd` and
    `ratio_matched_sd` are standard deviations over the `n_pairs` pairs of seeds.
    """
    keys = ["a", "b", "kind", "tasks"]
    groups = table.drop(columns=["seed_a", "seed_b", "p"]).groupby(keys, sort=False)
    means = groups.mean()
    for value in ("iou", "ratio", "ratio_matched"):
        means[f"{value}_sd"] = groups[value].std()
    means = means.assign(n_pairs=groups.size()).reset_index()
    papers = [frozenset(pair) for pair in PAPER_PAIRS]
    ranks = [
        papers.index(pair) if (pair := frozenset(both)) in papers else len(papers)
        for both in zip(means["a"], means["b"], strict=True)
    ]
    return means.iloc[np.argsort(ranks, kind="stable")].reset_index(drop=True)


def by_seed(table: pd.DataFrame) -> pd.DataFrame:
    """Different tasks at the same seed and at different seeds: do equal random numbers matter?

    Takes `seed_overlap`. One row per kind: means over pairs of sheaves, and how many there are.
    """
    rows = table[table["a"] != table["b"]]
    seeds = np.where(rows["seed_a"] == rows["seed_b"], "same seed", "different seeds")
    groups = rows.assign(seeds=seeds).groupby(["kind", "seeds"], sort=False)
    means = groups[["iou", "ratio", "ratio_matched"]].mean()
    return means.assign(n=groups.size()).reset_index()


def paper_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's table: its six pairs, overlap in percent with the count, and ratios to chance.

    Takes `overlap_table` or `over_seeds`. A pair that is not in it was not run.
    """
    rows = []
    for pair in PAPER_PAIRS:
        row: dict[str, Any] = {"sheaf 1": pair[0], "sheaf 2": pair[1]}
        found = table[table["a"].isin(pair) & table["b"].isin(pair) & (table["a"] != table["b"])]
        for kind in KINDS:
            one = next(iter(found[found["kind"] == kind].to_dict("records")), None)
            text = "not run" if one is None else f"{one['iou']:.2%} ({one['shared']:,.0f})"
            row[f"{kind[:-1]} overlap"] = text
            for value, name in (("ratio", "ratio to chance"), ("ratio_matched", "ratio, matched")):
                row[f"{kind[:-1]} {name}"] = math.nan if one is None else one[value]
        rows.append(row)
    return pd.DataFrame(rows)


def memberships(sheaves: Mapping[str, Sheaf], kind: Kind = "edges") -> pd.DataFrame:
    """How many edges or weights are in exactly which sheaves, most first.

    One bool column per sheaf, `count`, and `expected`: the count for random masks of the same
    sizes. Combinations that do not occur, and what is in no sheaf, are left out.
    """
    columns = [*sheaves, "count", "expected"]
    if not sheaves:
        return pd.DataFrame(columns=columns)
    code = sum(flat_mask(s, kind).long() << i for i, s in enumerate(sheaves.values()))
    counts = torch.bincount(torch.as_tensor(code), minlength=2 ** len(sheaves)).numpy()
    rows = []
    for value in np.flatnonzero(counts[1:]) + 1:
        inside = {name: bool(value >> i & 1) for i, name in enumerate(sheaves)}
        shares = [_density(sheaf, kind) for sheaf in sheaves.values()]
        chances = [p if i else 1 - p for p, i in zip(shares, inside.values(), strict=True)]
        expected = counts.sum() * math.prod(chances)
        rows.append(inside | {"count": int(counts[value]), "expected": float(expected)})
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("count", ascending=False, kind="stable").reset_index(drop=True)


def _density(sheaf: Sheaf, kind: Kind) -> float:
    return sheaf.edge_density if kind == "edges" else sheaf.weight_density


def _compare(
    sheaves: Sequence[Sheaf], pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, dict[str, Any]]]:
    """Both rows of every pair, each with the place of the pair in the list."""
    if not pairs:
        return []
    for sheaf in sheaves[1:]:
        sheaf.check_same_model(sheaves[0].layout, sheaves[0].checkpoint_sha256, sheaf.model_name)
    rows: list[tuple[int, int, dict[str, Any]]] = []
    for order, kind in enumerate(KINDS):
        kept = [flat_mask(sheaf, kind).nonzero().flatten() for sheaf in sheaves]
        parts = parts_of(sheaves[0].layout, kind)
        available = parts.table["available"].to_numpy()
        counts = [parts.count(flat_mask(sheaf, kind)).numpy() for sheaf in sheaves]
        for i in sorted({i for i, _ in pairs}):
            mask = flat_mask(sheaves[i], kind)
            for n, (first, j) in enumerate(pairs):
                if first == i:
                    shared = int(mask[kept[j]].sum())
                    row = _row(kind, len(mask), len(kept[i]), len(kept[j]), shared)
                    matched = shared_by_chance(available, counts[i], counts[j])
                    most = int(np.minimum(counts[i], counts[j]).sum())
                    rows.append((n, order, row | _matched(shared, most, *matched)))
    return [(n, row) for n, _, row in sorted(rows, key=lambda r: r[:2])]


def _row(kind: Kind, total: int, a: int, b: int, shared: int) -> dict[str, Any]:
    """One pair against random masks of the same sizes."""
    union = a + b - shared
    expected, spread = shared_by_chance(total, a, b)
    return {
        "kind": kind,
        "size_a": a,
        "size_b": b,
        "total": total,
        "shared": shared,
        "union": union,
        "iou": shared / union if union else 1.0,
        "expected": expected,
        "spread": spread,
        "iou_by_chance": expected / (a + b - expected) if union else 1.0,
        "ratio": shared / expected if expected else math.nan,
        "excess": _excess(shared, expected, min(a, b)),
        "z": (shared - expected) / spread if spread else math.nan,
        "p": tail(shared, total, a, b),
    }


def _matched(shared: int, most: int, expected: float, spread: float) -> dict[str, float]:
    """The same against masks with the sizes of every part."""
    return {
        "expected_matched": expected,
        "ratio_matched": shared / expected if expected else math.nan,
        "excess_matched": _excess(shared, expected, most),
        "z_matched": (shared - expected) / spread if spread > 1e-9 else math.nan,
    }


def _excess(shared: int, expected: float, most: int) -> float:
    """What is shared beyond chance, of what could be."""
    return (shared - expected) / (most - expected) if most - expected > 1e-9 else math.nan
