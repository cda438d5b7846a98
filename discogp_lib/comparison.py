"""Methods side by side: the paper's tables, from the records of runs.

Everything here takes a frame with one row per run (`report.records_frame`) and returns tables.
A value is a mean over seeds with its 95 % interval. The best method of a task is set in bold only
if its interval lies clear of every other method's; one seed has no interval, so nothing is bold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from discogp_lib.errors import RunError
from discogp_lib.plots.style import method_name
from discogp_lib.profiles import ALL_METHODS, get_profile
from discogp_lib.report import over_seeds
from discogp_lib.runs import Record, Run, compute, load_record
from discogp_lib.tasks import SHORT_NAMES

VALUES = (
    "accuracy",
    "balanced_accuracy",
    "kl",
    "complement_accuracy",
    "complement_balanced_accuracy",
    "weight_density",
    "edge_density",
    "train_accuracy",
    "agreement",
    "kl_paper",
    "full_accuracy",
)
"""What the tables hold of each run; test prompts where it does not say `train`."""

SHARES = {name for name in VALUES if not name.startswith("kl")}
"""Shown in per cent."""

LOWER_IS_BETTER = {"kl", "kl_paper", "weight_density", "edge_density"}

COMPARED: dict[str, tuple[str, ...]] = {
    "weight_density": ("discogp", "weight_pruning"),
    "edge_density": ("discogp", "edge_pruning"),
}
"""Densities are compared between methods that choose them; the others are given DiscoGP's."""

AT_ITS_DENSITY = ("acdc", "eap", "eap_ig", "random", "random_matched", "magnitude")
"""Methods that are given the densities DiscoGP reached on the same task and seed."""

CONTROLS = ("discogp@shuffled", "discogp@untrained")
"""Searches without what they should depend on: the right labels, the trained model."""

HEADERS = {
    "accuracy": "Sheaf acc. (%)",
    "balanced_accuracy": "Balanced (%)",
    "train_accuracy": "Train acc. (%)",
    "kl": "KL (nats)",
    "complement_accuracy": "Comp. acc. (%)",
    "complement_balanced_accuracy": "Comp. balanced (%)",
    "weight_density": "Weights (%)",
    "edge_density": "Edges (%)",
}
VARIANT_NAMES = {
    "mean": "mean ablation",
    "interchange": "interchange ablation",
    "shuffled": "shuffled labels",
    "untrained": "untrained model",
}
AVERAGE = "PARAREL"
"""The name of the mean over relations."""


def stored(runs: Sequence[Run]) -> tuple[list[Record], str]:
    """The records of these runs, and how many there are and which are missing.

    Runs of the mini model are computed where they are missing. In a larger model they take hours:
    there only what the store has is given.
    """
    small = bool(runs) and get_profile(runs[0].profile).is_small
    found = [compute(run, progress=False) if small else load_record(run) for run in runs]
    missing = [str(run) for run, record in zip(runs, found, strict=True) if record is None]
    if len(missing) == len(runs):
        raise RunError(
            "None of the runs asked for is in the store; python -m discogp_lib sweep computes them."
        )
    text = f"{len(runs) - len(missing)} of {len(runs)} runs are in the store"
    more = f" and {len(missing) - 12} more" if len(missing) > 12 else ""
    tail = f"; not run: {', '.join(missing[:12])}{more}." if missing else "."
    return [record for record in found if record is not None], text + tail


def select(frame: pd.DataFrame, runs: Iterable[Run]) -> pd.DataFrame:
    """The rows of these runs, under the short name of the task they are about.

    A control may have searched a changed task of another name.
    """
    wanted = {(run.task, run.method, run.seed) for run in runs}
    keys = zip(frame["task"], frame["method"], frame["seed"], strict=True)
    chosen = frame[[key in wanted for key in keys]].copy()
    names = list(dict.fromkeys(SHORT_NAMES.values()))
    chosen["short_name"] = pd.Categorical(chosen["task"].map(SHORT_NAMES), names, ordered=True)
    return chosen.sort_values(["short_name", "method", "seed"]).reset_index(drop=True)


def main_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per task and method: mean and interval over seeds of everything in `VALUES`.

    Where there are several relations, their mean follows as one more task.
    """
    table = over_seeds(frame, list(VALUES))
    table["short_name"] = table["short_name"].astype(str)
    average = over_relations(frame)
    if not average.empty:
        mean = over_seeds(average, list(VALUES))
        table = pd.concat([table, mean], ignore_index=True)
    table["method"] = table["method"].astype(str)
    tasks = list(dict.fromkeys(table["short_name"]))
    pairs = zip(table["short_name"], table["method"], strict=True)
    keys = [(tasks.index(task), *_place(method)) for task, method in pairs]
    return table.iloc[sorted(range(len(keys)), key=keys.__getitem__)].reset_index(drop=True)


def over_relations(frame: pd.DataFrame) -> pd.DataFrame:
    """For each method and seed with all relations of the frame, the mean over them."""
    facts = frame[frame["task"].str.startswith("pararel/")]
    n_relations = facts["task"].nunique()
    if n_relations < 2:
        return facts.iloc[:0]
    groups = facts.groupby(["method", "seed"], observed=True)
    mean = groups[list(VALUES)].mean()[groups["task"].nunique() == n_relations]
    return mean.reset_index().assign(short_name=AVERAGE)


def best(table: pd.DataFrame, column: str) -> pd.Series:
    """Whether a row is the best of its task, and its interval clear of all others'.

    A method with one seed has no interval: the others are held against its value, and it is
    never the best itself.
    """
    sign = -1 if column in LOWER_IS_BETTER else 1
    ends = ["high", "low"] if sign < 0 else ["low", "high"]
    mean, low, high = (sign * table[name] for name in (column, *(f"{column}_{e}" for e in ends)))
    high = high.fillna(mean)
    rivals = COMPARED.get(column)
    among = table["method"].isin(rivals) if rivals else pd.Series(True, table.index)
    winners = []
    for _, rows in table[among].groupby("short_name", sort=False):
        places: list[Any] = list(rows.index)
        top = max(places, key=mean.__getitem__)
        others = [high[place] for place in places if place != top]
        if others and low[top] > max(others):
            winners.append(top)
    return pd.Series(table.index.isin(winners), table.index)


def for_readers(table: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table as the paper sets it, a line per task and method; and which cells are bold."""
    shown = pd.DataFrame(
        {
            "Task": table["short_name"].where(~table["short_name"].duplicated(), ""),
            "Method": table["method"].map(name_of),
            **{HEADERS[c]: [_shown(row, c) for row in table.to_dict("records")] for c in columns},
        }
    )
    bold = pd.DataFrame(False, shown.index, shown.columns)
    for column in columns:
        if column in ("accuracy", "train_accuracy", "kl", *COMPARED):
            bold[HEADERS[column]] = best(table, column)
    return shown, bold


def by_method(table: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One value with a line per task and a column per method; and which cells are bold."""
    cells = table.assign(shown=[_shown(row, column) for row in table.to_dict("records")])
    cells["best"] = best(table, column)
    order = list(dict.fromkeys(table["short_name"]))
    methods = sorted(set(table["method"]), key=_place)
    shown, bold = (
        cells.pivot(index="short_name", columns="method", values=values)
        .reindex(index=order, columns=methods)
        .rename(columns=name_of)
        .rename_axis(index="Task", columns=None)
        .reset_index()
        for values in ("shown", "best")
    )
    bold["Task"] = False
    return shown, bold.fillna(False).astype(bool)


def _place(method: str) -> tuple[int, str]:
    """Where a method stands in tables: the paper's first, controls last."""
    order = [*ALL_METHODS, *CONTROLS]
    return order.index(method) if method in order else len(order), method


def name_of(method: str) -> str:
    """A method's or a variant's name for readers."""
    base, _, variant = method.partition("@")
    if base == "random_matched":
        return "random, matched"
    name = method_name(base)
    return f"{name}, {VARIANT_NAMES.get(variant, variant)}" if variant else name


def _shown(row: Mapping[Any, Any], column: str) -> str:
    """Mean and half of its interval, where there is one."""
    scale, digits = (100, 2 if "density" in column else 1) if column in SHARES else (1, 3)
    half = (row[f"{column}_high"] - row[f"{column}_low"]) / 2
    spread = "" if pd.isna(half) else f" ± {scale * half:.{digits}f}"
    return f"{scale * row[column]:.{digits}f}{spread}"


# -- at what cost -----------------------------------------------------------------------------


def costs(frame: pd.DataFrame) -> pd.DataFrame:
    """For each method the CPU seconds of a run, and the least memory a process that did one held.

    A process that does many runs reports the largest of them so far, so the least is a bound.
    """
    groups = frame.groupby("method", observed=True)
    return pd.DataFrame(
        {
            "runs": groups.size(),
            "median_cpu_seconds": groups["cpu_seconds"].median(),
            "largest_cpu_seconds": groups["cpu_seconds"].max(),
            "peak_memory_mb_at_most": groups["peak_memory_mb"].min(),
        }
    ).reset_index()


def tuning(records: Iterable[Record]) -> pd.DataFrame:
    """How each greedy run came to its density: what was asked, what was got, by which threshold."""
    columns = ["short_name", "method", "seed", "asked_density", "edge_density", "threshold"]
    columns += ["trials", "masks_evaluated", "status", "run"]
    rows = []
    for record in records:
        found, config = record.data["found"], record.data["inputs"]["config"]
        if "threshold" not in found:
            continue
        rows.append(
            {
                "short_name": record.data["short_name"],
                "method": record.run.method,
                "seed": record.run.seed,
                "asked_density": config["edge_density"],
                "edge_density": record.test["edge_density"],
                "threshold": found["threshold"],
                "trials": len(found.get("trials", [])) or None,
                "masks_evaluated": found.get("evaluated"),
                "status": found.get("status", "reached"),
                "run": f"{record.run.task}/{record.run.method}/seed{record.run.seed}",
            }
        )
    return pd.DataFrame(rows, columns=columns)


def trials(records: Iterable[Record]) -> pd.DataFrame:
    """Every threshold that ACDC's tuning tried, in the order tried."""
    rows = [
        {"short_name": r.data["short_name"], "method": r.run.method, "seed": r.run.seed, **trial}
        for r in records
        for trial in r.data["found"].get("trials", [])
    ]
    return pd.DataFrame(rows)
