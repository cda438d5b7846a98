"""The tables of methods, by hand on a few runs."""

import pandas as pd
import pytest

from discogp_lib import comparison, runs
from discogp_lib.comparison import (
    best,
    by_method,
    for_readers,
    main_table,
    over_relations,
)
from discogp_lib.errors import RunError
from discogp_lib.runs import Record, Run

AGA, P30, P36 = "blimp/anaphor_gender_agreement", "pararel/P30", "pararel/P36"


def frame(rows: list[tuple[str, str, int, float]]) -> pd.DataFrame:
    """Runs by task, method, seed and accuracy; everything else is the same in all."""
    table = pd.DataFrame(rows, columns=["task", "method", "seed", "accuracy"])
    same = {name: 0.5 for name in comparison.VALUES if name != "accuracy"}
    table = table.assign(**same, short_name="?", cpu_seconds=2.0, peak_memory_mb=table.index + 10.0)
    table["run"] = table["task"] + "/" + table["method"]
    return table


RUNS = frame(
    [
        *[(AGA, "discogp", s, a) for s, a in enumerate((0.98, 0.99, 1.0))],
        *[(AGA, "acdc", s, a) for s, a in enumerate((0.89, 0.90, 0.91))],
        *[(AGA, "eap", s, a) for s, a in enumerate((0.80, 0.90, 1.00))],
        (AGA, "discogp@shuffled", 0, 0.5),
        *[(P30, "discogp", s, a) for s, a in enumerate((0.7, 0.8, 0.9))],
        *[(P36, "discogp", s, a) for s, a in enumerate((0.5, 0.6, 0.7))],
        (P36, "acdc", 0, 0.65),
    ]
)
ALL = [Run("p", t, m, s) for t, m, s in zip(RUNS.task, RUNS.method, RUNS.seed, strict=True)]
TABLE = main_table(comparison.select(RUNS, ALL))


def row(task: str, method: str) -> pd.Series:
    return TABLE[(TABLE.short_name == task) & (TABLE.method == method)].iloc[0]


def test_a_control_stands_under_the_task_it_is_about():
    chosen = comparison.select(RUNS, [Run("p", AGA, "discogp@shuffled", 0)])
    assert chosen.short_name.tolist() == ["AGA"]
    assert chosen.accuracy.tolist() == [0.5]


def test_means_and_intervals_over_seeds():
    found = row("AGA", "discogp")
    half = 4.302653 * 0.01 / 3**0.5  # Student's t with two degrees of freedom
    assert found.accuracy == pytest.approx(0.99)
    assert found.accuracy_high == pytest.approx(0.99 + half, abs=1e-6)
    assert found.seeds == 3
    assert pd.isna(row("AGA", "discogp@shuffled").accuracy_low)


def test_the_mean_over_relations_needs_all_of_them():
    mean = over_relations(RUNS)
    assert mean.method.tolist() == ["discogp"] * 3
    assert mean.accuracy.tolist() == pytest.approx([0.6, 0.7, 0.8])
    assert row("PARAREL", "discogp").accuracy == pytest.approx(0.7)
    assert over_relations(RUNS[RUNS.task != P30]).empty


def test_bold_needs_an_interval_clear_of_all_others():
    task = TABLE[TABLE.short_name == "AGA"].reset_index(drop=True)
    assert not best(task, "accuracy").any()  # EAP's wide interval reaches DiscoGP's
    without = task[task.method != "eap"].reset_index(drop=True)
    assert without.method[best(without, "accuracy")].tolist() == ["discogp"]


def test_one_seed_is_never_best_and_alone_nobody_is():
    alone = TABLE[(TABLE.short_name == "AGA") & (TABLE.method == "discogp")].reset_index(drop=True)
    assert not best(alone, "accuracy").any()
    one = frame([(AGA, "discogp", 0, 1.0), (AGA, "acdc", 0, 0.1)])
    assert not best(main_table(one), "accuracy").any()


def test_less_is_better_for_kl_and_only_free_methods_compare_densities():
    rows = frame([(AGA, m, s, 1.0) for m in ("discogp", "edge_pruning", "random") for s in (0, 1)])
    rows["kl"] = [0.1, 0.1, 0.3, 0.3, 0.2, 0.2]
    rows["edge_density"] = [0.2, 0.2, 0.3, 0.3, 0.1, 0.1]
    table = main_table(rows)
    assert table.method[best(table, "kl")].tolist() == ["discogp"]
    assert table.method[best(table, "edge_density")].tolist() == ["discogp"]


def test_cells_for_readers():
    shown, bold = for_readers(TABLE, ["accuracy", "kl"])
    assert shown.columns.tolist() == ["Task", "Method", "Sheaf acc. (%)", "KL (nats)"]
    assert shown.Task.tolist()[:4] == ["AGA", "", "", ""]
    assert shown["Sheaf acc. (%)"][0] == "99.0 ± 2.5"
    assert shown["Sheaf acc. (%)"][3] == "50.0"
    assert shown["Method"][3] == "DiscoGP, shuffled labels"
    assert bold.shape == shown.shape
    wide, wide_bold = by_method(TABLE, "accuracy")
    assert wide.columns.tolist() == ["Task", "DiscoGP", "ACDC", "EAP", "DiscoGP, shuffled labels"]
    assert wide.Task.tolist() == ["AGA", "P30", "P36", "PARAREL"]
    assert pd.isna(wide["ACDC"][1])
    assert wide_bold.dtypes.eq(bool).all()


def test_costs_take_the_least_of_the_peaks():
    found = comparison.costs(RUNS).set_index("method")
    assert found.loc["acdc", "runs"] == 4
    assert found.loc["acdc", "peak_memory_mb_at_most"] == 13


def test_the_tuning_is_read_from_the_records():
    trial = {"threshold": 1e-4, "start": None, "edges": 5, "edge_density": 0.05, "kl": 0.1}
    data = {
        "short_name": "AGA",
        "found": {"threshold": 2e-4, "trials": [trial, trial], "evaluated": 9, "status": "reached"},
        "inputs": {"config": {"edge_density": 0.04}},
        "metrics": {"test": {"edge_density": 0.05}},
    }
    searched = {**data, "found": {"curve": []}}
    records = [Record(Run("p", AGA, "acdc", 1), data), Record(ALL[0], searched)]
    tuned = comparison.tuning(records)
    assert tuned[["asked_density", "edge_density", "threshold", "trials"]].values.tolist() == [
        [0.04, 0.05, 2e-4, 2]
    ]
    assert tuned.run.tolist() == [f"{AGA}/acdc/seed1"]
    assert len(comparison.trials(records)) == 2


def test_a_large_model_is_not_run_by_a_notebook(monkeypatch, tmp_path):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    monkeypatch.setattr(comparison, "compute", never)
    with pytest.raises(RunError, match="None of the runs"):
        comparison.stored([Run("smollm2", "ioi", "acdc", 0)])
    there = Record(Run("smollm2", "ioi", "eap", 0), {})
    monkeypatch.setattr(comparison, "load_record", {there.run: there}.get)
    records, text = comparison.stored([there.run, Run("smollm2", "ioi", "acdc", 0)])
    assert records == [there]
    assert text == "1 of 2 runs are in the store; not run: ioi acdc seed 0."
    with pytest.raises(AssertionError, match="computed"):
        comparison.stored([Run("mini", "ioi", "acdc", 0)])
