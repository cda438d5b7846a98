"""What a profile has measured, and what the paper has printed, in the same shape.

The judges ask an `Evidence` and do not care which it is: so a claim of the paper is judged by the
very rule on its own tables too. What is missing is None, never a guess.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import pandas as pd

from discogp_lib.analysis.overlap import seed_overlap
from discogp_lib.analysis.recall import layer_counts
from discogp_lib.claims import paper
from discogp_lib.paths import RESULTS
from discogp_lib.profiles import get_profile
from discogp_lib.report import records_frame
from discogp_lib.runs import Run
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks.names import PARADIGMS, RELATIONS, SHORT_NAMES

BLIMP = tuple(PARADIGMS.values())
PAIRS = (*BLIMP, "IOI")
"""Tasks with two answers."""
FACTS = tuple(RELATIONS)


class Evidence(ABC):
    """Everything that a judge may ask for."""

    name: str
    """The profile, or the paper."""
    model: str

    @property
    @abstractmethod
    def records(self) -> pd.DataFrame:
        """The columns of `report.records_frame` that are known, and `kept_accuracy`, the accuracy
        as a share of the full model's; may be empty."""

    @property
    @abstractmethod
    def chance(self) -> dict[str, float]:
        """By task, the accuracy of a guess."""

    @property
    def compositions(self) -> pd.DataFrame | None:
        """Unions of two: `task`, `joined`, `seed` and the accuracies `composed`, `original`, and
        with random masks `random`, `matched` (in [0, 1])."""
        return None

    @property
    def overlaps(self) -> pd.DataFrame | None:
        """Pairs of agreement sheaves: `a`, `b`, `kind`, `seed_a`, `seed_b`, `iou`, and what else
        `analysis.overlap.seed_overlap` tells."""
        return None

    @property
    def cosines(self) -> pd.DataFrame | None:
        """Kinds of task by ablation (mean, interchange, random)."""
        return None

    @property
    def recall(self) -> pd.DataFrame | None:
        """`analysis.recall.recall_table` of the relations' sheaves."""
        return None


class PaperEvidence(Evidence):
    """The paper's own tables."""

    name = "the paper's tables"
    model = "gpt2"

    @cached_property
    def records(self) -> pd.DataFrame:
        """Its main, mean-ablation and PARAREL tables."""
        return paper.as_records()

    @property
    def chance(self) -> dict[str, float]:
        """As its captions say."""
        return {**dict.fromkeys(PAIRS, 0.5), **dict.fromkeys(FACTS, 0.0)}

    @cached_property
    def compositions(self) -> pd.DataFrame:
        """Its composition table."""
        cells = self._cells(paper.COMPOSITION)
        alone = cells[cells["row"] == "original"].set_index("task")["value"] / 100
        joined = cells[cells["row"] != "original"]
        return pd.DataFrame(
            {
                "task": joined["task"],
                "joined": joined["row"],
                "seed": 0,
                "composed": joined["value"] / 100,
                "original": joined["task"].map(alone),
            }
        )

    @cached_property
    def overlaps(self) -> pd.DataFrame:
        """Its overlap table."""
        cells = self._cells(paper.OVERLAP)
        kinds = cells["column"].map(lambda name: "edges" if name.startswith("edge") else "weights")
        cells = cells.assign(kind=kinds, a=cells["task"], b=cells["row"])
        cells["is"] = cells["unit"].map({"%": "iou", "count": "shared"})
        wide = cells.pivot(index=["a", "b", "kind"], columns="is", values="value").reset_index()
        return wide.assign(iou=wide["iou"] / 100, seed_a=0, seed_b=0)

    @cached_property
    def cosines(self) -> pd.DataFrame:
        """Its table of cosine similarities."""
        return self._cells(paper.COSINES).pivot(index="task", columns="column", values="value")

    def _cells(self, table: str) -> pd.DataFrame:
        return paper.numbers()[paper.numbers()["table"] == table]


class MeasuredEvidence(Evidence):
    """The run store of a profile, and what the other notebooks wrote from it."""

    def __init__(self, profile: str) -> None:
        self.name = profile
        self.model = get_profile(profile).model

    @cached_property
    def records(self) -> pd.DataFrame:
        """One row per finished run."""
        frame = records_frame(self.name)
        if frame.empty:
            return pd.DataFrame(columns=["short_name", "method", "seed"])
        return frame.assign(
            short_name=frame["task"].map(SHORT_NAMES),
            method=frame["method"].astype(str),
            kept_accuracy=frame["accuracy"] / frame["full_accuracy"],
        )

    @cached_property
    def chance(self) -> dict[str, float]:
        """One half for pairs; for relations one in the number of answers (notebook 01)."""
        relations = self.table("pararel_relations")
        if relations is None:
            return dict.fromkeys(PAIRS, 0.5)
        known = dict(zip(relations["relation"], 1 / relations["answers"], strict=True))
        return known | dict.fromkeys(PAIRS, 0.5)

    def table(self, name: str) -> pd.DataFrame | None:
        """A table that a notebook wrote for this profile."""
        path = RESULTS / self.name / "tables" / f"{name}.csv"
        return pd.read_csv(path) if path.exists() else None

    def sheaves(self, short_names: tuple[str, ...]) -> dict[str, dict[int, Sheaf]]:
        """DiscoGP's sheaves by task and seed, those that have been found."""
        by_short = {short: name for name, short in SHORT_NAMES.items()}
        runs = self.records[self.records["method"] == "discogp"]
        return {
            task: {
                seed: Sheaf.load(Run(self.name, by_short[task], "discogp", seed).sheaf_path)
                for seed in runs["seed"][runs["short_name"] == task]
            }
            for task in short_names
            if task in set(runs["short_name"])
        }

    @cached_property
    def overlaps(self) -> pd.DataFrame | None:
        """Pairs of tasks and seeds."""
        table = seed_overlap(self.sheaves(BLIMP))
        return None if table.empty else table

    @cached_property
    def compositions(self) -> pd.DataFrame | None:
        """Unions of two sheaves and their controls, from the table of notebook 04."""
        table = self.table("composition_by_seed")
        return None if table is None else table[table["size"] == 2]

    @cached_property
    def cosines(self) -> pd.DataFrame | None:
        """Means over all tokens of the prompts, from the table of notebook 07."""
        table = self.table("similarity")
        if table is None:
            return None
        columns = ["mean", "interchange", "random"]
        return table[table["tokens"] == "all"].set_index("task")[columns]

    @cached_property
    def recall(self) -> pd.DataFrame | None:
        """Counts by layer of every relation's sheaves, one relation in memory at a time."""
        tables = [
            layer_counts(sheaf).assign(relation=task, seed=seed)
            for task in FACTS
            for sheaves in self.sheaves((task,)).values()
            for seed, sheaf in sheaves.items()
        ]
        return pd.concat(tables, ignore_index=True) if tables else None
