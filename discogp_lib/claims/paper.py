"""What the paper says, as data: its numbers, its claims, and where it contradicts itself.

The files lie in `paper/`: `numbers.csv` has every number of the tables as printed,
`claims.csv` what the text claims, in our words, and `inconsistencies.csv` what cannot be true at
once, with the cells concerned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from discogp_lib.paths import REPO
from discogp_lib.tasks.names import RELATIONS

PAPER = REPO / "paper"

MAIN_TABLE = "table:main-circuit-results"
RELATION_TABLES = ("table:oqa-full", "table:oqa-full-2")
MEAN_ABLATION = "tab:ma"
COSINES = "tab:edge-intervene-sim"
COMPOSITION = "tab:composition"
OVERLAP = "tab:overlap"
QUERIES = "tab:pararel-relations"
"""The labels of the paper's tables in its LaTeX source."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, or one control of ours that its claims should stand."""

    id: str
    section: str
    """Where in the paper; "control" for what we add."""
    claim: str
    """In our words."""
    rule: str
    """When it counts as reproduced."""
    judge: str
    """Name of the judge, see `judges.JUDGES`."""
    headline: bool
    """Whether it is in the short table."""
    inconsistencies: tuple[str, ...]
    """Ids of what in the paper contradicts it."""


def _read(name: str) -> pd.DataFrame:
    """A file of `paper/`, all text."""
    return pd.read_csv(PAPER / name, dtype=str, keep_default_na=False)


@cache
def numbers() -> pd.DataFrame:
    """Every number of the paper's tables, and some of its text, in its order.

    Columns: `table` (its LaTeX label, or "text"), `task`, `row` (a method; what a sheaf is
    joined or compared with; or the place in the text), `column`, `printed`, `value`, `unit`,
    `bold`, `note`, `inconsistent` (why the value cannot be right, else empty).
    """
    table = _read("numbers.csv").rename(columns={"value": "printed"})
    table.insert(5, "value", table["printed"].astype(float))
    table["bold"] = table["bold"] == "yes"
    found = inconsistencies()
    reasons = [""] * len(table)
    for _, cell in found[found["concerns"] == "value"].iterrows():
        concerned = pd.Series(True, index=table.index)
        for name in ("table", "task", "row", "column"):
            concerned &= table[name].isin(cell[name].split("|"))
        for place in concerned[concerned].index:
            reasons[place] = f"{reasons[place]} {cell['reason']}".strip()
    return table.assign(inconsistent=reasons)


@cache
def inconsistencies() -> pd.DataFrame:
    """Where the paper contradicts itself, its data or its code.

    Columns: `id`, `where`, `table`, `task`, `row`, `column` (the cells, several with "|" between
    them; empty where no cell is wrong), `concerns` (the value of the cell or only that it is
    printed bold), `reason`, `shown_by` (arithmetic on the paper's numbers,
    its data, its code, or its text).
    """
    return _read("inconsistencies.csv")


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the paper's order, then the controls."""
    rows: list[dict[str, Any]] = _read("claims.csv").to_dict("records")  # type: ignore[assignment]
    return tuple(
        Claim(
            **{name: row[name] for name in ("id", "section", "claim", "rule", "judge")},
            headline=row["headline"] == "yes",
            inconsistencies=tuple(row["inconsistencies"].split()),
        )
        for row in rows
    )


def why_inconsistent(claim: Claim) -> str:
    """The reasons of a claim's inconsistencies in one text."""
    table = inconsistencies()
    reasons = table["reason"][table["id"].isin(claim.inconsistencies)]
    return " ".join(dict.fromkeys(reasons))


def as_records() -> pd.DataFrame:
    """The paper's methods and tasks with the columns of `report.records_frame`; shares in [0, 1].

    Relations by their own tables, on test prompts. Where the paper does not tell a measure apart
    from another (accuracy relative to the full model's, class-balanced accuracies) the other
    stands in its place.
    """
    tables = (MAIN_TABLE, MEAN_ABLATION, *RELATION_TABLES)
    cells = numbers()[numbers()["table"].isin(tables)]
    cells = cells[cells["task"] != "PARAREL"]
    scale = cells["unit"].map({"%": 0.01}).fillna(1.0)
    cells = cells.assign(value=cells["value"] * scale)
    wide = cells.pivot(index=["task", "row"], columns="column", values="value").reset_index()
    wide = wide.rename(columns={"task": "short_name", "row": "method"}).rename_axis(columns=None)
    wide["accuracy"] = wide["accuracy"].fillna(wide.pop("test_accuracy"))
    wide["balanced_accuracy"] = wide["kept_accuracy"] = wide["accuracy"]
    wide["complement_balanced_accuracy"] = wide["complement_accuracy"]
    return wide.assign(seed=0)


def relation_means() -> pd.DataFrame:
    """Mean over the twelve relations of the detailed tables: methods by columns, as printed."""
    cells = numbers()[numbers()["table"].isin(RELATION_TABLES)]
    assert set(cells["task"]) == set(RELATIONS)
    return cells.pivot_table(index="row", columns="column", values="value", aggfunc="mean")
