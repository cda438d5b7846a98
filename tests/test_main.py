"""The command line: every command explains itself, and mistakes end in one sentence."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from discogp_lib import __main__ as command_line
from discogp_lib.__main__ import main, parser
from discogp_lib.paths import REPO
from discogp_lib.schedule import Outcome
from tests.quick import P36, install


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch.setattr)


def commands() -> list[str]:
    (actions,) = [action for action in parser()._actions if action.choices]
    return list(actions.choices)


def test_the_commands_of_the_design_are_there():
    assert {"run", "sweep", "report", "reproduce"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "usage: python -m discogp_lib" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("run --profile quick --task P99", "has no task 'P99'; it has P36, P103."),
        ("sweep --profile quick --tasks IOI", "has no task 'IOI'"),
        ("sweep --profile quick --methods magic", "There is no method 'magic'"),
        ("reproduce --profile quick --tasks IOI", "has no task 'IOI'"),
        ("sweep --profile quick --executor slurm --minutes 5", "5 minutes leaves a job no time"),
        ("sweep --profile quick --executor slurm --sbatch mem", "takes KEY=VALUE"),
        ("sweep --profile quick --executor slurm --gpus-per-task -1", "gpus_per_task must be at"),
        ("sweep --profile quick --executor slurm --poll -1", "poll is a number of seconds above"),
        ("sweep --profile quick --executor slurm --poll nan", "poll is a number of seconds above"),
        ("sweep --profile quick --partition big", "--partition is for SLURM; add --executor"),
        ("sweep --profile quick --sbatch --poll 1", "--sbatch, --poll is for SLURM"),
        ("sweep --profile quick --gpus-per-task 0", "--gpus-per-task is for SLURM"),
        ("sweep --profile quick --executor slurm --device cpu", "--device: SLURM decides"),
        ("sweep --profile quick --executor slurm --jobs 2 --device cpu", "--device and --jobs: SL"),
        ("run --profile quick --task P36 --device foo", "The device 'foo' cannot be used here"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("discogp: ")
    assert sentence in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "fly",
        "run",
        "run --task P36 --seed x",
        "sweep --jobs 0",
        "report --what",
        "report --device cpu",
    ],
)
def test_a_wrong_call_says_how_to_call(arguments: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert "usage: python -m discogp_lib" in capsys.readouterr().err


def test_without_slurm_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", "")
    assert main(["sweep", "--profile", "quick", "--executor", "slurm"]) == 2
    assert "There is no sbatch here" in capsys.readouterr().err


def test_failed_runs_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def half(runs, **_):
        return [Outcome(run, None if run.seed else "no luck", 1.0) for run in runs]

    monkeypatch.setattr(command_line, "sweep", half)
    assert main(["sweep", "--profile", "quick", "--tasks", "P36", "--methods", "discogp"]) == 1
    said = capsys.readouterr().out
    assert said == f"1 runs done, 1 failed\n  {P36} discogp seed 0: no luck\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "Permission denied (/x)"),
        (OSError("no answer\nfrom the hub"), "no answer from the hub"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(
    error: OSError,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def refused(*_, **__):
        raise error

    monkeypatch.setattr(command_line, "sweep", refused)
    assert main(["sweep", "--profile", "quick"]) == 2
    said = capsys.readouterr().err
    assert said == f"discogp: {sentence}; put that right and call it again, and it goes on.\n"


def test_ctrl_c_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "sweep", interrupted)
    assert main(["sweep", "--profile", "quick"]) == 130
    assert capsys.readouterr().err == "discogp: interrupted; call it again and it goes on.\n"


def test_a_run_and_a_report(capsys: pytest.CaptureFixture[str]):
    assert main(["report", "--profile", "quick"]) == 0
    assert "Nothing has been run" in capsys.readouterr().out
    assert main(["run", "--profile", "quick", "--task", "P36"]) == 0
    assert main(["report", "--profile", "quick"]) == 0
    assert "P36" in capsys.readouterr().out


def test_it_is_a_module_that_can_be_run():
    command = [sys.executable, "-m", "discogp_lib", "sweep", "--profile", "none"]
    ended = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "invalid choice: 'none'" in ended.stderr
