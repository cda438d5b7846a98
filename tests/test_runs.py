"""The run store keeps what was computed, notices what is damaged, and never recomputes the rest."""

import fcntl
import json
import shutil
import threading
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

from discogp_lib import profiles, runs
from discogp_lib.__main__ import main
from discogp_lib.errors import ConfigError, RunError
from discogp_lib.evaluate import evaluate
from discogp_lib.methods import METHODS
from discogp_lib.methods.settings import settings_for, subject, variant_names
from discogp_lib.profiles import Profile
from discogp_lib.report import over_seeds, records_frame, report
from discogp_lib.runs import Run, cached_model, cached_task, compute, finished, load_record
from discogp_lib.search import Stage
from discogp_lib.sweep import plan, sweep
from tests import quick

AGA = "blimp/anaphor_gender_agreement"

QUICK = replace(quick.QUICK, tasks=(AGA, "ioi"), variant_tasks=(AGA,))


@pytest.fixture(autouse=True)
def quick_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Profile:
    """A profile of seconds, and a store that is thrown away."""
    monkeypatch.setitem(profiles.PROFILES, "quick", QUICK)
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    return QUICK


def never(*_: object, **__: object) -> None:
    raise AssertionError("computed again")


def test_a_run_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("quick", AGA, "discogp", 0)
    first = compute(run, progress=False)
    monkeypatch.setitem(METHODS, "discogp", never)
    assert compute(run, progress=False).data == first.data
    assert sorted(path.name for path in run.folder.iterdir() if path.name[0] != ".") == [
        "record.json",
        "sheaf.safetensors",
    ]


def test_the_record_is_what_the_sheaf_does() -> None:
    record = compute(Run("quick", AGA, "discogp", 0), progress=False)
    model, task = cached_model("mini"), cached_task(AGA, "mini", 0)
    assert evaluate(model, record.sheaf(), task.test).as_dict() == record.test
    assert record.data["inputs"]["task_sha256"] == task.sha256
    assert record.data["environment"]["torch"]


@pytest.mark.parametrize("method", ["magnitude", "discogp@shuffled"])
def test_the_sheaf_of_a_control_is_made_again(method: str) -> None:
    run = Run("quick", AGA, method, 0)
    record = compute(run, progress=False)
    model = cached_model("mini")
    _, task = subject(method, model, cached_task(AGA, "mini", 0), 0)
    assert evaluate(model, record.sheaf(), task.test).as_dict() == record.test
    assert [path.name for path in run.folder.iterdir() if path.name[0] != "."] == ["record.json"]
    run.record_path.write_text(json.dumps({**record.data, "sheaf_sha256": "0"}))
    altered = load_record(run)
    assert altered is not None
    with pytest.raises(RunError, match=rf"{method} seed 0 is not that of its record; delete"):
        altered.sheaf()


def test_changed_settings_are_computed_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run("quick", AGA, "discogp", 0)
    before = compute(run, progress=False)
    other = replace(QUICK, search=replace(QUICK.search, steps=2))
    monkeypatch.setitem(profiles.PROFILES, "quick", other)
    after = compute(run, progress=False)
    assert before.data["found"]["steps"] == 4
    assert after.data["found"]["steps"] == 2
    assert "was done with another config; it is done again" in capsys.readouterr().out


def test_copies_in_the_store_are_no_runs() -> None:
    run = Run("quick", AGA, "discogp", 0)
    compute(run, progress=False)
    (record,) = finished("quick")
    for other in ("seed7", "seed0.bak"):
        shutil.copytree(run.folder, run.folder.with_name(other))
    shutil.copytree(run.folder, runs.RESULTS / "quick" / "runs" / "backup")
    assert [found.run for found in finished("quick")] == [record.run]


def test_of_an_unknown_method_nothing_is_written() -> None:
    run = Run("quick", AGA, "../nonsense", 0)
    with pytest.raises(ConfigError, match="no method"):
        compute(run, progress=False)
    assert not run.folder.exists()


@pytest.mark.parametrize("name", ["record.json", "sheaf.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "gone", "altered"])
def test_a_damaged_run_is_told_and_done_again(name: str, damage: str) -> None:
    run = Run("quick", AGA, "discogp", 0)
    whole = compute(run, progress=False)
    sheaf = whole.sheaf()
    path = run.folder / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif name == "record.json":
        path.write_text(json.dumps({**json.loads(data), "sheaf_sha256": "0"}))
    else:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    told: list[str] = []
    assert load_record(run, say=told.append) is None
    assert bool(told) == run.record_path.exists()
    again = compute(run, progress=False)
    assert again.sheaf() == sheaf
    assert again.test == whole.test


def test_a_second_writer_waits_for_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("quick", AGA, "discogp", 0)
    run.folder.mkdir(parents=True)
    first = (run.folder / ".lock").open("w")
    fcntl.flock(first, fcntl.LOCK_EX)
    release = threading.Timer(0.5, first.close)
    release.start()
    computed = compute(run)
    assert not release.is_alive()
    assert "waiting" in capsys.readouterr().err
    assert computed.test == load_record(run).test


def test_a_package_that_is_not_installed_does_not_lose_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(runs, "version", absent)
    assert runs.environment(torch.device("cpu"))["discogp"] == "unknown"


def test_seconds_are_those_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("quick", AGA, "discogp", 0)
    every_step = replace(QUICK, search=replace(QUICK.search, checkpoint_every=1))
    monkeypatch.setitem(profiles.PROFILES, "quick", every_step)
    step, hour = Stage.step, 3600.0

    def interrupted(self: Stage, number: int) -> dict[str, float]:
        if number == 3:
            raise KeyboardInterrupt
        for name in ("perf_counter", "process_time"):  # each step takes an hour
            clock = getattr(time, name)
            monkeypatch.setattr(time, name, lambda clock=clock: clock() + hour)
        return step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compute(run, progress=False)
    seconds = compute(run, progress=False).data["seconds"]
    assert {clock: value // hour for clock, value in seconds.items()} == {"wall": 3, "cpu": 3}


def test_controls_change_what_is_searched() -> None:
    mini = cached_model("mini")
    other = compute(Run("quick", AGA, "discogp@untrained", 0), progress=False)
    assert other.data["inputs"]["checkpoint_sha256"] != mini.checkpoint_sha256
    assert other.test["full_accuracy"] < 0.9 < full_accuracy()
    shuffled = compute(Run("quick", AGA, "discogp@shuffled", 0), progress=False)
    assert shuffled.data["inputs"]["task_sha256"] != cached_task(AGA, "mini", 0).sha256
    assert shuffled.data["metrics"]["train"]["full_accuracy"] < 0.75
    assert shuffled.test["full_accuracy"] == full_accuracy()


def full_accuracy() -> float:
    plain = compute(Run("quick", AGA, "discogp", 0), progress=False)
    return float(plain.test["full_accuracy"])


def test_a_budgeted_method_matches_discogp() -> None:
    record = compute(Run("quick", AGA, "magnitude", 0), progress=False)
    matched = load_record(Run("quick", AGA, "discogp", 0))
    assert matched is not None
    difference = record.test["weight_density"] - matched.test["weight_density"]
    assert abs(difference) * record.sheaf().n_weights <= 1


def test_plan_puts_first_what_others_need() -> None:
    methods = [run.method for run in plan("quick")]
    assert methods.index("magnitude") > max(i for i, m in enumerate(methods) if m == "discogp")
    assert sum(m == "discogp" for m in methods) == 4
    searched = {m for m in methods if m.startswith("discogp@")}
    assert searched == {f"discogp@{name}" for name in variant_names(QUICK.search)}
    assert plan("quick", ["AGA"], ["discogp"], [1]) == [Run("quick", AGA, "discogp", 1)]


def test_variants_change_what_they_say() -> None:
    assert settings_for("discogp@sequential", QUICK, None).schedule == "sequential"
    doubled = settings_for("discogp@push2.0", QUICK, None)
    assert doubled.edge_push.largest == 2 * QUICK.search.edge_push.largest
    for name in variant_names(QUICK.search):
        assert settings_for(f"discogp@{name}", QUICK, None) != QUICK.search
    with pytest.raises(ConfigError, match="no method 'discogp@nothing'"):
        settings_for("discogp@nothing", QUICK, None)


def test_a_sweep_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ConfigError("not today")

    monkeypatch.setitem(METHODS, "magnitude", fails)
    lines: list[str] = []
    chosen = plan("quick", ["AGA"], ["magnitude", "discogp"], [0])
    outcomes = sweep(chosen, say=lines.append)
    assert [outcome.error for outcome in outcomes] == [None, "not today"]
    assert "FAILED: not today" in lines[-1]
    assert len(finished("quick")) == 1


def test_report_gives_means_and_intervals() -> None:
    for seed in (0, 1):
        compute(Run("quick", AGA, "discogp", seed), progress=False)
    frame = records_frame("quick")
    table = over_seeds(frame, ["edge_density"])
    a, b = frame["edge_density"]
    assert table.loc[0, "seeds"] == 2
    assert table.loc[0, "edge_density"] == pytest.approx((a + b) / 2)
    # Student's t with one degree of freedom: 12.706 times the standard error |a - b| / 2.
    half = 12.7062 * abs(a - b) / 2
    assert table.loc[0, "edge_density_high"] == pytest.approx((a + b) / 2 + half, rel=1e-4)
    assert "AGA" in report("quick")


def test_nothing_run_yet() -> None:
    assert "Nothing has been run" in report("quick")


def test_command_line_runs_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--profile", "quick", "--task", "AGA"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["report", "--profile", "quick"]) == 0
    assert "AGA" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--profile", "quick", "--task", "P36"], "has no task 'P36'"),
        (["run", "--profile", "quick", "--task", "AGA", "--method", "x"], "no method 'x'"),
        (["sweep", "--profile", "quick", "--methods", "x"], "no method 'x'"),
    ],
)
def test_a_users_mistake_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
