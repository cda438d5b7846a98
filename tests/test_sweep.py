"""Many runs side by side: the same results, whoever dies on the way."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from discogp_lib.errors import ConfigError
from discogp_lib.executors import (
    InProcess,
    Workers,
    attempt,
    default_device,
    default_jobs,
    side_by_side,
    spread,
)
from discogp_lib.methods import METHODS
from discogp_lib.profiles import PROFILES, get_profile
from discogp_lib.runs import Run, load_record
from discogp_lib.sweep import plan, resolve_task, sweep
from tests.checkout import Checkout
from tests.quick import P36, install


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, monkeypatch.setattr)
    return tmp_path


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("checkout"))


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def test_every_profile_has_a_plan():
    for name, profile in PROFILES.items():
        runs = plan(name)
        assert len(set(runs)) == len(runs)
        assert {run.task for run in runs} == set(profile.tasks)
        assert {(run.task, run.seed) for run in runs} == {
            (task, seed) for task in profile.tasks for seed in profile.seeds_of(task)
        }


def test_mean_ablation_has_all_seeds_on_ioi():
    runs = plan("mini")
    assert {r.seed for r in runs if (r.task, r.method) == ("ioi", "acdc@mean")} == {0, 1, 2}
    assert {r.seed for r in runs if (r.task, r.method) == ("ioi", "acdc@interchange")} == {0}
    changed = {"ioi", *get_profile("mini").variant_tasks}
    assert {r.task for r in runs if "@" in r.method} == changed
    assert not [run for run in plan("mini", methods=["acdc"]) if "@" in run.method]


def test_tasks_go_by_both_names():
    assert resolve_task(get_profile("mini"), "AGA") == "blimp/anaphor_gender_agreement"
    assert resolve_task(get_profile("mini"), "ioi") == "ioi"
    with pytest.raises(ConfigError, match="has no task 'P99'"):
        resolve_task(get_profile("mini"), "P99")


def test_a_bug_in_one_run_does_not_stop_the_others(quick: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nought")

    good = METHODS["magnitude"]
    monkeypatch.setitem(METHODS, "magnitude", broken)
    lines: list[str] = []
    outcomes = sweep(plan("quick", ["P36"], None, [0]), say=lines.append)
    assert [bool(outcome.error) for outcome in outcomes] == [False, True]
    trace = Run("quick", P36, "magnitude", 0).folder / "error.txt"
    assert outcomes[1].error == f"ZeroDivisionError: by nought (see {trace})"
    assert "in broken" in trace.read_text()
    monkeypatch.setitem(METHODS, "magnitude", good)
    again = sweep(plan("quick", ["P36"], None, [0]), say=lines.append)
    assert [(o.error, o.computed) for o in again] == [(None, False), (None, True)]
    assert not trace.exists()
    assert lines[-1].startswith("[1/1] pararel/P36 magnitude seed 0: accuracy")


def test_a_store_that_cannot_be_written_does_not_stop_the_others(quick: Path):
    runs = plan("quick", ["P36"], ["discogp"])
    runs[0].folder.parent.mkdir(parents=True)
    runs[0].folder.write_text("a file where a folder should be")
    outcomes = sweep(runs, say=lambda line: None)
    assert [bool(outcome.error) for outcome in outcomes] == [True, False]
    assert outcomes[0].error == f"FileExistsError: [Errno 17] File exists: '{runs[0].folder}'"


def test_what_is_in_the_store_is_said_nothing_about(quick: Path):
    runs = plan("quick", ["P36"], ["discogp"], [0])
    sweep(runs, say=lambda line: None)
    lines: list[str] = []
    outcomes = sweep(runs, say=lines.append)
    assert not outcomes[0].computed
    assert lines == []


def test_a_search_left_behind_is_cleared(quick: Path):
    run = Run("quick", P36, "discogp", 0)
    assert attempt(run, "cpu").computed
    (run.folder / "search.0").write_bytes(b"killed between the record and clearing up")
    assert not attempt(run, "cpu").computed
    assert not (run.folder / "search.0").exists()


def test_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch):
    assert [spread("cpu", n) for n in range(2)] == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [spread("cuda", n) for n in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert spread("cuda:1", 0) == "cuda:1"
    assert default_device() == "cuda"
    assert default_jobs("cuda") == 2
    assert default_jobs("cuda:1") == 1


def test_workers_have_a_core_each_of_those_we_may_use(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert default_jobs("cpu") == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert default_jobs("cpu") == 64


def records(checkout: Checkout, profile: str) -> list[Path]:
    return sorted((checkout.root / "results" / profile / "runs").rglob("record.json"))


def test_workers_find_what_one_process_finds(
    checkout: Checkout, quick: Path, monkeypatch: pytest.MonkeyPatch
):
    code, said = checkout.run("sweep", "--profile", "quick", "--seeds", "0", "--jobs", "2")
    assert code == 0, said
    assert [line.split()[0] for line in said.splitlines()[:4]] == [f"[{n}/4]" for n in range(1, 5)]
    assert said.splitlines()[-1] == "4 runs done, 0 failed"
    sweep(plan("quick", None, None, [0]), executor=InProcess(), say=lambda line: None)
    here = {run: load_record(run) for run in plan("quick", None, None, [0])}
    monkeypatch.setattr("discogp_lib.runs.RESULTS", checkout.root / "results")
    for run, record in here.items():
        assert record is not None
        theirs = load_record(run)
        assert theirs is not None
        assert theirs.test == record.test


def workers_of(parent: int) -> list[int]:
    """The worker processes of a sweep that have a run in hand."""
    listed = subprocess.run(["ps", "-eo", "pid,pgid,ppid"], capture_output=True, text=True)
    rows = [list(map(int, line.split())) for line in listed.stdout.splitlines()[1:]]
    server = [pid for pid, group, above in rows if group == parent and above == parent]
    return [pid for pid, group, above in rows if group == parent and above in server]


@pytest.fixture
def busy(checkout: Checkout) -> subprocess.Popen[str]:
    """A sweep of two long searches, each of which has written its first checkpoint."""
    runs = checkout.root / "results" / "slow" / "runs"
    shutil.rmtree(runs, ignore_errors=True)
    process = checkout.start("sweep", "--profile", "slow", "--jobs", "2")
    wait_for(lambda: len(list(runs.rglob("search.0"))) == 2)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_killed_worker_is_told_and_ctrl_c_is_one_sentence(busy: subprocess.Popen[str]):
    workers = workers_of(busy.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    first = busy.stdout.readline()
    killed = r"\[1/2\] pararel/\w+ discogp seed 0 FAILED: its process was killed \(SIGKILL, often"
    assert re.match(killed, first)
    assert busy.poll() is None  # the other search is still at it
    assert workers_of(busy.pid) == workers[1:]
    os.killpg(busy.pid, signal.SIGINT)  # a terminal sends it to all processes of the group
    said, _ = busy.communicate(timeout=60)
    assert said.startswith("discogp: interrupted; call it again and it goes on.\n")
    assert "Traceback" not in said
    assert busy.returncode == 130


def test_a_worker_that_dies_idle_is_replaced():
    with Workers(1) as workers:
        worker = workers._hire()
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.join()
        unknown = Run("smoke", P36, "no such method", 0)
        assert workers.start([unknown]) == [unknown]
        (outcome,) = workers.wait()
    assert "no method 'no such method'" in outcome.error


def test_killed_workers_do_not_outlive_their_parent(busy: subprocess.Popen[str]):
    workers = workers_of(busy.pid)
    assert len(workers) == 2
    os.kill(busy.pid, signal.SIGKILL)
    wait_for(lambda: not [pid for pid in workers if alive(pid)], seconds=20)


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "Z (zombie)" not in status.read_text()


def test_side_by_side_keeps_the_order_and_leaves_this_process() -> None:
    found = side_by_side(process_and, [3, 1, 2])
    assert [item for _, item in found] == [3, 1, 2]
    assert os.getpid() not in {process for process, _ in found}


def process_and(item: int) -> tuple[int, int]:
    return os.getpid(), item


def test_side_by_side_passes_an_error_on() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        side_by_side(int, ["1", "one"])
