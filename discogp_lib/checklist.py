"""Every table and figure of the paper, and what stands for it here: `results/<profile>/INDEX.md`.

What is missing is marked. A counterpart is named by its file without suffix.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from discogp_lib.paths import FIGURES, RESULTS, atomic_path


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper."""

    number: str
    title: str
    notebook: str
    """The number of the notebook that makes its counterpart."""
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


PAPER = (
    Item("Table 1", "Tasks and datasets", "01", ("data_overview", "audit")),
    Item("Table 2", "Performance of all methods", "03", ("main", "main_accuracy", "main_kl")),
    Item("Table 3", "Mean ablation", "07", ("mean_ablation",)),
    Item("Table 4", "Cosine of clean and ablated values", "07", ("similarity",)),
    Item("Table 5", "Composed sheaves", "04", ("composition_composed", "composition_random")),
    Item("Table 6", "Overlap of sheaves", "05", ("overlap_paper_rows", "overlap")),
    Item("Table 7", "Examples of BLiMP, converted", "01", ("data_overview",)),
    Item("Table 8", "IOI templates", "01", ("ioi_templates",)),
    Item("Table 9", "IOI infilling words", "01", ("ioi_words",)),
    Item("Table 10", "PARAREL relations", "01", ("pararel_relations",)),
    Item("Tables 11 and 12", "Performance on each PARAREL relation", "03", ("pararel",)),
    Item("Figure 1", "DiscoGP, sketched", "02", (), ("sheaf", "discovery_curves")),
    Item("Figure 2", "Computation graph and pruning, sketched", "05", (), ("overlap_pair",)),
    Item("Figure 3", "Factual sheaves by layer", "06", (), ("recall", "recall_relations_edges")),
    Item("Figure 4", "Split QKV pruning, sketched", "05", (), ("overlap_maps", "overlap_pair")),
)
"""In the paper's order. What the paper sketches is drawn here from sheaves that were found."""


COMPLETE = "Each has a counterpart; runs that it is without are named in it."


def write_index(profile: str, items: Sequence[Item] = PAPER) -> Path:
    """Write the checklist of a profile; returns its path."""
    path = RESULTS / profile / "INDEX.md"
    with atomic_path(path) as temporary:
        temporary.write_text(index(profile, items), encoding="utf-8")
    return path


def index(profile: str, items: Sequence[Item] = PAPER) -> str:
    """The checklist as Markdown."""
    rows = [_row(profile, item) for item in items]
    missing = sum(not complete for _, complete in rows)
    verdict = COMPLETE if not missing else f"{missing} of {len(rows)} are missing."
    return "\n".join(
        [
            f"# The paper's tables and figures in the profile `{profile}`",
            "",
            f"{verdict} Paper: what the paper calls it. Here: its counterpart, measured by the",
            "notebook in the last column.",
            "",
            "| paper | what | here | notebook |",
            "|---|---|---|---|",
            *(row for row, _ in rows),
            "",
            *_others(profile, items),
        ]
    )


def _row(profile: str, item: Item) -> tuple[str, bool]:
    """One line, and whether everything it names is there."""
    home = RESULTS / profile
    wanted = [(name, home / "tables" / f"{name}.md") for name in item.tables]
    wanted += [(name, FIGURES / profile / f"{name}.png") for name in item.figures]
    cells = [_link(name, path, home) for name, path in wanted]
    found = sorted((home / "notebooks").glob(f"{item.notebook}_*.ipynb"))
    notebook = [_link(path.stem, path, home) for path in found] or ["**missing**"]
    complete = bool(found) and all(path.exists() for _, path in wanted)
    mark = "" if complete else "**missing** "
    row = f"| {item.number} | {item.title} | {mark}{', '.join(cells)} | {', '.join(notebook)} |"
    return row, complete


def _link(name: str, path: Path, home: Path) -> str:
    if not path.exists():
        return f"{name} (not there)"
    return f"[{name}]({Path(os.path.relpath(path, home)).as_posix()})"


def _others(profile: str, items: Sequence[Item]) -> list[str]:
    """What there is beyond the paper."""
    home = RESULTS / profile
    named = {name for item in items for name in (*item.tables, *item.figures)}
    groups = {
        "Further tables": sorted((home / "tables").glob("*.md")),
        "Further figures": sorted((FIGURES / profile).glob("*.png")),
    }
    lines = []
    for title, paths in groups.items():
        links = [_link(path.stem, path, home) for path in paths if path.stem not in named]
        if links:
            lines += [f"{title}: {', '.join(links)}.", ""]
    return lines
