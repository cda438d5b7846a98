"""Does overlap track how alike two tasks are? Tested by dealing the tasks out to classes anew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from discogp_lib.analysis.parts import KINDS, Kind
from discogp_lib.errors import ConfigError
from discogp_lib.tasks.names import PARADIGMS, RELATIONS

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


class SimilarityTest(NamedTuple):
    """Whether pairs of one class overlap more than pairs of two classes."""

    within: float
    """Mean over pairs of tasks of one class."""
    between: float
    """Mean over pairs of tasks of two classes."""
    difference: float
    p: float
    """Share of assignments of tasks to classes with at least this difference."""
    least_p: float
    """The smallest p there can be with so few tasks."""
    n_assignments: int
    exact: bool
    """Whether all assignments were tried."""


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
    first = np.array([names.index(name) for name in rows["a"]], dtype=np.int64)
    second = np.array([names.index(name) for name in rows["b"]], dtype=np.int64)
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
    together = assignments[:, first] == assignments[:, second]
    differences = _differences(together, values)
    within, between = float(values[same].mean()), float(values[~same].mean())
    p = float((differences >= within - between - 1e-12).mean())
    least = float((together == same).all(1).mean())
    return SimilarityTest(within, between, within - between, p, least, len(assignments), exact)


def similarity_tests(
    table: pd.DataFrame,
    groups: Mapping[str, Sequence[str]],
    *,
    values: Sequence[str] = ("iou", "ratio", "ratio_matched"),
) -> pd.DataFrame:
    """`similarity_test` for several groups of tasks, edges and weights, and several measures.

    groups: names of tasks under the name of each group. Where a group has no pairs of one class
    or none of two, its row says so by missing numbers.
    """
    rows: list[dict[str, Any]] = []
    for group, tasks in groups.items():
        chosen = table[table["a"].isin(list(tasks)) & table["b"].isin(list(tasks))]
        for kind in KINDS:
            for value in values:
                try:
                    result = similarity_test(chosen, kind=kind, value=value)._asdict()
                except ConfigError:
                    result = {}
                rows.append({"tasks": group, "kind": kind, "measure": value} | result)
    return pd.DataFrame(rows, columns=["tasks", "kind", "measure", *SimilarityTest._fields])


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
