"""The paper's numbers beside ours, cell by cell. Compared only where the model is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from discogp_lib.claims import paper
from discogp_lib.claims.evidence import FACTS, MeasuredEvidence
from discogp_lib.claims.verdicts import Interval, Verdict, decide, intervals

TOLERANCE = {
    "accuracy": 2.0,
    "test_accuracy": 5.0,
    "train_accuracy": 2.0,
    "complement_accuracy": 10.0,
    "kl": 0.05,
    "edge_overlap": 5.0,
    "weight_overlap": 5.0,
    "mean": 0.05,
    "interchange": 0.05,
    "random": 0.05,
}
"""By column, in the unit of the paper: how far a number may be off."""
RELATIVE_TOLERANCE = 0.25
"""For densities and counts, relative to the paper's."""

SAME_MODEL = "gpt2"

MEASURED_AS = {
    "accuracy": "accuracy",
    "test_accuracy": "accuracy",
    "train_accuracy": "train_accuracy",
    "kl": "kl_paper",
    "complement_accuracy": "complement_accuracy",
    "weight_density": "raw_weight_density",
    "edge_density": "raw_edge_density",
}
"""Our measure for each of the paper's columns: its scaling of KL, and densities before post-hoc
pruning, as in the authors' tables."""


def numbers_table(evidence: MeasuredEvidence) -> pd.DataFrame:
    """Every number of the paper's tables with ours and a verdict; its text is for `claims_table`.

    Columns: `table`, `task`, `row`, `column`, `unit`, `paper` (as printed), `measured`, `low`,
    `high` (95 % over seeds), `measured as`, `verdict`, `why` (the inconsistency, if any).
    """
    cells: list[Any] = list(paper.numbers()[paper.numbers()["table"] != "text"].itertuples())
    found = [LOOKUPS[cell.table](evidence, cell) for cell in cells]
    ours = intervals({place: one.by_seed for place, one in enumerate(found) if one is not None})
    rows = []
    for place, (cell, one) in enumerate(zip(cells, found, strict=True)):
        mine = ours.get(place)
        rows.append(
            {
                **{
                    name: getattr(cell, name) for name in ("table", "task", "row", "column", "unit")
                },
                "paper": cell.printed,
                "measured": mine.value if mine else None,
                "low": mine.low if mine else None,
                "high": mine.high if mine else None,
                "measured as": one.measure if one else "",
                "verdict": _verdict(cell, mine, evidence.model).value,
                "why": cell.inconsistent,
            }
        )
    return pd.DataFrame(rows).astype(dict.fromkeys(("measured", "low", "high"), float))


class Found(NamedTuple):
    """Ours for one cell: a value per seed, in the unit of the paper, and what it is."""

    by_seed: pd.Series
    measure: str


def _verdict(cell: Any, ours: Interval | None, model: str) -> Verdict:
    """Inconsistent cells are never compared, others only for the paper's model."""
    if cell.inconsistent:
        return Verdict.INCONSISTENT
    if model != SAME_MODEL:
        return Verdict.OTHER_MODEL
    return compare(cell.column, cell.value, ours) if ours else Verdict.NOT_RUN


def compare(column: str, printed: float, ours: Interval) -> Verdict:
    """Reproduced: near enough and in our interval (if there is one); else near enough or not."""
    allowed = TOLERANCE.get(column, RELATIVE_TOLERANCE * abs(printed))
    near = abs(ours.value - printed) <= allowed
    inside = ours.low is None or ours.high is None or ours.low <= printed <= ours.high
    return decide(near and inside, near)


def _from_runs(evidence: MeasuredEvidence, cell: Any) -> Found | None:
    """A cell of the main, mean-ablation or PARAREL tables."""
    runs = evidence.records
    runs = runs[runs["method"] == cell.row]
    average = cell.task == "PARAREL"
    runs = runs[runs["short_name"].isin(FACTS) if average else runs["short_name"] == cell.task]
    measure = MEASURED_AS[cell.column]
    if average and cell.column == "accuracy":
        measure = "train_accuracy"
    if runs.empty or (average and set(runs["short_name"]) != set(FACTS)):
        return None
    if measure not in runs or runs[measure].isna().any():
        measure = measure.removeprefix("raw_")
    by_seed = runs.groupby("seed")[measure].mean().astype(float)
    return Found(by_seed * (1 if cell.unit == "KL" else 100), measure)


def _from_compositions(evidence: MeasuredEvidence, cell: Any) -> Found | None:
    table = evidence.compositions
    if table is None:
        return None
    rows = table[table["task"] == cell.task]
    if cell.row != "original":
        rows = rows[rows["joined"] == cell.row]
    measure = "original" if cell.row == "original" else "composed"
    return Found(100 * rows.groupby("seed")[measure].mean(), measure) if len(rows) else None


def _from_overlaps(evidence: MeasuredEvidence, cell: Any) -> Found | None:
    table = evidence.overlaps
    if table is None:
        return None
    kind = "edges" if cell.column.startswith("edge") else "weights"
    measure = "shared" if cell.unit == "count" else "iou"
    rows = table[(table["kind"] == kind) & (table["seed_a"] == table["seed_b"])]
    pair = {cell.task, cell.row}
    both = [{a, b} == pair for a, b in zip(rows["a"], rows["b"], strict=True)]
    found = rows[both].set_index("seed_a")[measure].astype(float)
    return Found(found * (1 if cell.unit == "count" else 100), measure) if len(found) else None


def _from_cosines(evidence: MeasuredEvidence, cell: Any) -> Found | None:
    table = evidence.cosines
    if table is None or cell.task not in table.index:
        return None
    return Found(pd.Series([float(table.loc[cell.task, cell.column])]), "cosine")


def _from_data(evidence: MeasuredEvidence, cell: Any) -> Found | None:
    table = evidence.table("pararel_relations")
    if table is None:
        return None
    found = table["queries"][table["relation"] == cell.task].astype(float)
    return Found(found, "queries") if len(found) else None


LOOKUPS: dict[str, Callable[[MeasuredEvidence, Any], Found | None]] = {
    **dict.fromkeys((paper.MAIN_TABLE, paper.MEAN_ABLATION, *paper.RELATION_TABLES), _from_runs),
    paper.COMPOSITION: _from_compositions,
    paper.OVERLAP: _from_overlaps,
    paper.COSINES: _from_cosines,
    paper.QUERIES: _from_data,
}
"""Where ours for each of the paper's tables is to be had."""
