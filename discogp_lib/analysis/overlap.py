"""Do sheaves of similar tasks share more edges and weights than others do, and than chance does?

The paper compares intersection over union. That number grows with the sizes of the masks, so
each pair comes with what random masks of those very sizes share, drawn from the whole model and
drawn part by part (see `parts`); and a task's sheaves of several seeds are the yardstick of what
"the same" looks like.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int

from discogp_lib.analysis.chance import shared_by_chance, tail
from discogp_lib.analysis.parts import KINDS, Kind, flat_mask, parts_of
from discogp_lib.errors import ConfigError
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.names import PARADIGMS, RELATIONS

PAPER_PAIRS = (
    ("AGA", "DNA"),
    ("ANA", "DNA"),
    ("ANA", "AGA"),
    ("DNA", "DNA i"),
    ("DNA", "DNA a"),
    ("DNA", "DNA ia"),
)
"""The six rows of the paper's table, in its order."""

SIMILARITY = {
    **{
        short: "anaphor" if "anaphor" in name else "determiner" for name, short in PARADIGMS.items()
    },
    "IOI": "IOI",
    **dict.fromkeys(RELATIONS, "facts"),
}
"""Which tasks are alike, by short name."""

EXACT_UP_TO = 20_000
"""Assignments of tasks to classes that are all tried; where there are more, some are drawn."""


def overlap_table(sheaves: Mapping[str, Sheaf]) -> pd.DataFrame:
    """Every pair of sheaves, the paper's six first; one row for edges and one for weights.

    Columns: `a`, `b`, `kind`; `size_a`, `size_b`, `total` (all edges or weights of the model);
    `shared`, `union`, `iou`; by chance, for masks of these sizes: `expected` and `spread` of the
    shared entries, `iou_by_chance`, `ratio` (shared over expected), `z`, `p` (one-sided);
    and with the sizes matched in every part: `expected_matched`, `ratio_matched`, `z_matched`.
    """
    names = list(sheaves)
    first = [pair for pair in PAPER_PAIRS if set(pair) <= set(names)]
    known = {frozenset(pair) for pair in first}
    rest = [pair for pair in combinations(names, 2) if frozenset(pair) not in known]
    pairs = [(names.index(a), names.index(b)) for a, b in (*first, *rest)]
    rows = _compare(list(sheaves.values()), pairs)
    labels = [{"a": names[i], "b": names[j]} for i, j in pairs]
    return pd.DataFrame([labels[n] | row for n, row in rows])


def seed_overlap(
    sheaves: Mapping[str, Sequence[Sheaf]], classes: Mapping[str, str] = SIMILARITY
) -> pd.DataFrame:
    """Every pair of sheaves over tasks and seeds, by how alike their tasks are.

    The columns of `overlap_table`, and `seed_a`, `seed_b` (places in the lists) and `tasks`:
    same, similar (of one class) or different. Two tasks are compared at all pairs of seeds.
    """
    flat = [(task, seed, s) for task, found in sheaves.items() for seed, s in enumerate(found)]
    pairs = list(combinations(range(len(flat)), 2))
    labels = []
    for (a, seed_a, _), (b, seed_b, _) in combinations(flat, 2):
        alike = classes.get(a, a) == classes.get(b, b)
        tasks = "same" if a == b else "similar" if alike else "different"
        labels.append({"a": a, "b": b, "seed_a": seed_a, "seed_b": seed_b, "tasks": tasks})
    rows = _compare([sheaf for _, _, sheaf in flat], pairs)
    return pd.DataFrame([labels[n] | row for n, row in rows])


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over seeds of each pair of tasks (a task with itself: its pairs of seeds)."""
    keys = ["a", "b", "kind", "tasks"]
    values = table.drop(columns=["seed_a", "seed_b", "p"])
    means = values.groupby(keys, sort=False).mean()
    return means.assign(n_pairs=values.groupby(keys, sort=False).size()).reset_index()


def by_likeness(table: pd.DataFrame, value: str = "ratio") -> pd.DataFrame:
    """Mean and standard deviation over pairs of tasks: same, similar and different ones.

    Takes the result of `over_seeds`, so that every pair of tasks counts once.
    """
    groups = table.groupby(["kind", "tasks"], sort=False)[value]
    summary = groups.agg(mean="mean", sd="std", n="size").reset_index()
    order = ["same", "similar", "different"]
    return summary.sort_values(
        ["kind", "tasks"], key=lambda c: c.map(order.index) if c.name == "tasks" else c
    ).reset_index(drop=True)


def paper_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's table: its six pairs, overlap in percent with the count, and ratio to chance."""
    rows = []
    for a, b in PAPER_PAIRS:
        pair = table[(table["a"] == a) & (table["b"] == b)].set_index("kind")
        if pair.empty:
            continue
        row: dict[str, Any] = {"sheaf 1": a, "sheaf 2": b}
        for kind in KINDS:
            one = pair.loc[kind]
            row[f"{kind[:-1]} overlap"] = f"{one['iou']:.2%} ({one['shared']:,.0f})"
            row[f"{kind[:-1]} ratio to chance"] = one["ratio"]
            row[f"{kind[:-1]} ratio, matched"] = one["ratio_matched"]
        rows.append(row)
    return pd.DataFrame(rows)


def memberships(sheaves: Mapping[str, Sheaf], kind: Kind = "edges") -> pd.DataFrame:
    """How many edges or weights are in exactly which sheaves, most first.

    One bool column per sheaf, `count`, and `expected`: the count for random masks of the same
    sizes. Combinations that do not occur, and what is in no sheaf, are left out.
    """
    code = sum(flat_mask(s, kind).long() << i for i, s in enumerate(sheaves.values()))
    counts = torch.bincount(torch.as_tensor(code), minlength=2 ** len(sheaves)).numpy()
    rows = []
    for value in np.flatnonzero(counts[1:]) + 1:
        inside = {name: bool(value >> i & 1) for i, name in enumerate(sheaves)}
        shares = [_density(sheaf, kind) for sheaf in sheaves.values()]
        chances = [p if i else 1 - p for p, i in zip(shares, inside.values(), strict=True)]
        expected = counts.sum() * math.prod(chances)
        rows.append(inside | {"count": int(counts[value]), "expected": float(expected)})
    table = pd.DataFrame(rows, columns=[*sheaves, "count", "expected"])
    return table.sort_values("count", ascending=False, kind="stable").reset_index(drop=True)


class SimilarityTest(NamedTuple):
    """Whether pairs of one class overlap more than pairs of two classes."""

    within: float
    """Mean over pairs of tasks of one class."""
    between: float
    """Mean over pairs of tasks of two classes."""
    difference: float
    p: float
    """Share of assignments of tasks to classes with at least this difference."""
    n_assignments: int
    exact: bool
    """Whether all assignments were tried; `p` cannot be below 1 / n_assignments."""


def similarity_test(
    table: pd.DataFrame,
    *,
    kind: Kind,
    value: str = "ratio",
    classes: Mapping[str, str] = SIMILARITY,
    n_permutations: int = 10_000,
    seed: int = 0,
) -> SimilarityTest:
    """Does overlap track task similarity? A permutation test over which task is in which class.

    Takes `overlap_table` or `over_seeds`; tasks without a class and pairs of a task with itself
    are left out. One-sided, as the paper's claim is. The six tasks of the paper allow only 15
    assignments, so six tasks alone cannot give a p below 1/15.
    """
    rows = table[(table["kind"] == kind) & (table["a"] != table["b"])]
    rows = rows[rows["a"].isin(list(classes)) & rows["b"].isin(list(classes))]
    names = list(dict.fromkeys([*rows["a"], *rows["b"]]))
    first = rows["a"].map(names.index).to_numpy()
    second = rows["b"].map(names.index).to_numpy()
    numbers = list(dict.fromkeys(classes[name] for name in names))
    labels = np.array([numbers.index(classes[name]) for name in names], dtype=np.int64)
    same = labels[first] == labels[second]
    if not same.any() or same.all():
        raise ConfigError(
            "The similarity test needs pairs of tasks of one class and pairs of two classes; "
            f"the tasks given are {', '.join(names) or 'none'}."
        )
    values = rows[value].to_numpy(np.float64)
    counts = np.bincount(labels)
    n_all = math.factorial(len(labels)) // math.prod(math.factorial(c) for c in counts.tolist())
    exact = n_all <= EXACT_UP_TO
    if exact:
        assignments = np.array(list(_arrangements(counts.tolist())))
    else:
        rng = np.random.default_rng(seed)
        drawn = rng.permuted(np.tile(labels, (n_permutations - 1, 1)), axis=1)
        assignments = np.vstack([labels, drawn])  # the one observed counts as one of them
    differences = _differences(assignments[:, first] == assignments[:, second], values)
    within, between = float(values[same].mean()), float(values[~same].mean())
    p = float((differences >= within - between - 1e-12).mean())
    return SimilarityTest(within, between, within - between, p, len(assignments), exact)


def _density(sheaf: Sheaf, kind: Kind) -> float:
    return sheaf.edge_density if kind == "edges" else sheaf.weight_density


def _differences(
    same: Int[np.ndarray, "assignment pair"] | Any, values: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " assignment"]:
    """Mean within minus mean between, for every assignment."""
    n_same = same.sum(1)
    total = same @ values
    result: np.ndarray = total / n_same - (values.sum() - total) / (len(values) - n_same)
    return result


def _arrangements(counts: list[int]) -> Iterator[tuple[int, ...]]:
    """All distinct orders of a multiset, given how often each number occurs."""
    if not any(counts):
        yield ()
    for number, count in enumerate(counts):
        if count:
            fewer = [c - (n == number) for n, c in enumerate(counts)]
            for rest in _arrangements(fewer):
                yield (number, *rest)


def _compare(
    sheaves: Sequence[Sheaf], pairs: Sequence[tuple[int, int]]
) -> list[tuple[int, dict[str, Any]]]:
    """Both rows of every pair, each with the place of the pair in the list."""
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
                    rows.append((n, order, row | _matched(shared, *matched)))
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
        "z": (shared - expected) / spread if spread else math.nan,
        "p": tail(shared, total, a, b),
    }


def _matched(shared: int, expected: float, spread: float) -> dict[str, float]:
    return {
        "expected_matched": expected,
        "ratio_matched": shared / expected if expected else math.nan,
        "z_matched": (shared - expected) / spread if spread > 1e-9 else math.nan,
    }
