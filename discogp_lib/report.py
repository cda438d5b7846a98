"""Records as data frames: what the notebooks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from discogp_lib.intervals import half_width
from discogp_lib.profiles import ALL_METHODS, get_profile
from discogp_lib.runs import Record, Run, compute, finished, load_record
from discogp_lib.sheaf import Sheaf
from discogp_lib.tasks import SHORT_NAMES


def records_frame(profile: str) -> pd.DataFrame:
    """One row per finished run: what was run and its evaluation on train and test."""
    rows = []
    for record in finished(profile):
        data = record.data
        row = {key: data[key] for key in ("task", "short_name", "method", "seed", "model")}
        row["run"] = f"{record.run.task}/{record.run.method}/seed{record.run.seed}"
        row |= dict(record.test.items())
        row |= {f"train_{name}": value for name, value in data["metrics"]["train"].items()}
        row |= {f"{name}_seconds": value for name, value in data["seconds"].items()}
        row |= {
            "status": data["found"].get("status", ""),
            "raw_weight_density": data["found"].get("raw_weight_density"),
            "raw_edge_density": data["found"].get("raw_edge_density"),
            "peak_memory_mb": data["peak_memory_mb"],
        }
        rows.append(row)
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    frame["short_name"] = pd.Categorical(
        frame["short_name"], [SHORT_NAMES[name] for name in SHORT_NAMES], ordered=True
    )
    variants = sorted(set(frame["method"]) - set(ALL_METHODS))
    frame["method"] = pd.Categorical(frame["method"], [*ALL_METHODS, *variants], ordered=True)
    return frame.sort_values(["short_name", "method", "seed"]).reset_index(drop=True)


def paths_frame(records: Sequence[Record]) -> pd.DataFrame:
    """The ways of searches: one row per look at dev prompts (`SearchResult.curve`)."""
    frames = [
        pd.DataFrame(record.data["found"]["curve"]).assign(
            task=SHORT_NAMES[record.run.task], method=record.run.method, seed=record.run.seed
        )
        for record in records
    ]
    return pd.concat(frames, ignore_index=True)


def over_seeds(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Mean over seeds of each task and method, with the 95 % interval (Student's t).

    One seed gives no interval over seeds; its `_low` and `_high` are empty.
    """
    groups = frame.groupby(["short_name", "method"], observed=True)
    table = pd.DataFrame({"seeds": groups.size()})
    for column in columns:
        mean, n = groups[column].mean(), groups[column].count()
        half = half_width(groups[column].std(), n)
        table[column] = mean
        table[f"{column}_low"], table[f"{column}_high"] = mean - half, mean + half
    return table.reset_index()


def stored_sheaves(
    profile: str,
    tasks: Sequence[str],
    seeds: Sequence[int] | None = None,
    method: str = "discogp",
) -> dict[str, dict[int, Sheaf]]:
    """The sheaves of a profile by the short name of the task and by seed.

    seeds: those of the profile by default, which may be more for some tasks than for others.

    Those of the mini model are computed where they are missing, in seconds. A search in a larger
    model takes hours: there only what the store has is given, and tasks without any are left out
    (`coverage` says which).
    """
    small = get_profile(profile).is_small
    found: dict[str, dict[int, Sheaf]] = {}
    for task, seed in _asked(profile, tasks, seeds):
        run = Run(profile, task, method, seed)
        record = compute(run, progress=False) if small else load_record(run)
        if record is not None:
            found.setdefault(SHORT_NAMES[task], {})[seed] = record.sheaf()
    return found


def _asked(
    profile: str, tasks: Sequence[str], seeds: Sequence[int] | None
) -> list[tuple[str, int]]:
    return [(task, n) for task in tasks for n in seeds or get_profile(profile).seeds_of(task)]


def coverage(
    found: Mapping[str, Mapping[int, Sheaf]],
    profile: str,
    tasks: Sequence[str],
    seeds: Sequence[int] | None = None,
) -> str:
    """How many of the runs asked for there are, and the names of those that are missing."""
    asked = [(SHORT_NAMES[task], seed) for task, seed in _asked(profile, tasks, seeds)]
    missing = [f"{task} seed {seed}" for task, seed in asked if seed not in found.get(task, {})]
    text = f"{len(asked) - len(missing)} of {len(asked)} runs are in the store"
    return f"{text}; not run: {', '.join(missing)}." if missing else f"{text}."


def report(profile: str) -> str:
    """A plain table: means over seeds."""
    frame = records_frame(profile)
    if frame.empty:
        return f"Nothing has been run for the profile {profile!r} yet."
    columns = [
        "accuracy",
        "kl",
        "complement_balanced_accuracy",
        "weight_density",
        "edge_density",
        "cpu_seconds",
    ]
    groups = frame.groupby(["short_name", "method"], observed=True)
    table = groups[columns].mean()
    table["seeds"] = groups.size()
    return table.round(4).to_string()
