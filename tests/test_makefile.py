"""The make targets, and which environment they run in: decided here without installing anything."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from discogp_lib.paths import REPO
from tools import make_env
from tools.make_env import UNFINISHED, Environment

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, **variables: str) -> str:
    """What make prints; without the variables of a make that runs this test."""
    kept = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(
        command, cwd=REPO, env=kept | variables, capture_output=True, text=True, check=True
    )
    return done.stdout


def phony_targets() -> list[str]:
    (line,) = re.findall(r"^\.PHONY: (.*)$", (REPO / "Makefile").read_text(), re.MULTILINE)
    return line.split()


def test_help_is_the_default_and_describes_every_target_in_one_line():
    text = make()
    assert text == make("help")
    for target in phony_targets():
        assert re.search(rf"^  make {target} +\w+", text, re.MULTILINE), target
    for variable in ("PROFILE", "SEEDS", "DEVICE", "JOBS", "TASKS", "METHODS", "PYTHON"):
        assert re.search(rf"^  {variable} +\w+", text, re.MULTILINE), variable


def test_every_target_is_phony_and_documented():
    rules = re.findall(r"^([a-z-]+):(.*)$", (REPO / "Makefile").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in rules) == sorted(phony_targets())
    assert all("## " in rest for _, rest in rules)


def test_reproduce_passes_on_only_what_was_set():
    assert re.search(r"-m discogp_lib reproduce\s*$", make("-n", "reproduce").replace("\\\n", ""))
    text = make("-n", "reproduce", "PROFILE=mini", "SEEDS=0 1", "JOBS=3", "TASKS=ioi pararel/P36")
    options = text.replace("\\\n", "").split("reproduce")[-1].split()
    assert " ".join(options) == "--profile mini --seeds 0 1 --jobs 3 --tasks ioi pararel/P36"


def test_a_misspelt_variable_is_refused():
    with pytest.raises(subprocess.CalledProcessError) as refused:
        make("-n", "reproduce", "TAKS=ioi")
    assert "there is no variable TAKS; there are PROFILE SEEDS" in refused.value.stderr


@pytest.mark.parametrize("target", ["test", "nbval"])
def test_the_smoke_profile_is_computed_before_notebooks_read_it(target: str):
    text = make("-n", target)
    assert text.index("sweep --profile smoke --jobs 2") < text.index("--nbval")


@pytest.mark.parametrize("target", ["reproduce", "test", "nbval", "lint", "bench", "lab"])
def test_targets_prepare_the_environment_first(target: str):
    assert "tools/make_env.py" in make("-n", target).splitlines()[0]


def test_ci_calls_make_test():
    script = REPO / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make --no-print-directory test" in script.read_text()


# --- which environment ---------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with the two files that decide what is installed."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").write_text("[project]")
    (checkout / "requirements.lock").write_text("numpy==2.4.6")
    return checkout


def make_environment(directory: Path, python: str = sys.executable) -> Path:
    """A directory that looks like an environment: its Python is the one that runs the tests."""
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    (directory / "bin" / "python").chmod(0o755)
    return directory


def test_without_an_active_environment_it_is_venv(root: Path):
    assert make_env.choose({}, None, root) == Environment(root / ".venv", ours=True)


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_active_environment_is_used(root: Path, tmp_path: Path, variable: str):
    active = make_environment(tmp_path / "active")
    assert make_env.choose({variable: str(active)}, None, root) == Environment(active, ours=False)


def test_conda_base_is_left_alone(root: Path, tmp_path: Path):
    base = make_environment(tmp_path / "miniconda3")
    shell = {"CONDA_PREFIX": str(base), "CONDA_DEFAULT_ENV": "base"}
    assert make_env.choose(shell, None, root).ours


def test_virtual_environment_comes_before_conda(root: Path, tmp_path: Path):
    virtual, conda = (make_environment(tmp_path / name) for name in ("virtual", "conda"))
    shell = {"VIRTUAL_ENV": str(virtual), "CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "x"}
    assert make_env.choose(shell, None, root).directory == virtual


def test_active_venv_of_this_checkout_is_our_own(root: Path):
    make_environment(root / ".venv")
    assert make_env.choose({"VIRTUAL_ENV": str(root / ".venv")}, None, root).ours


def test_environment_that_is_gone_is_passed_over(root: Path, tmp_path: Path):
    assert make_env.choose({"VIRTUAL_ENV": str(tmp_path / "gone")}, None, root).ours


def test_environment_of_another_checkout_is_left_alone(root: Path, tmp_path: Path):
    active, other = make_environment(tmp_path / "active"), tmp_path / "other"
    other.mkdir()
    make_env.write_stamp(Environment(active, ours=False), "complete", other)
    shell = {"VIRTUAL_ENV": str(active)}
    assert make_env.choose(shell, None, root).ours
    assert str(other) in make_env.objection(active, root)
    other.rmdir()  # once the other checkout is deleted, its environment is free
    assert make_env.choose(shell, None, root).directory == active


def test_old_python_is_passed_over(root: Path, tmp_path: Path):
    old = make_environment(tmp_path / "old")
    (old / "bin" / "python").write_text("#!/bin/sh\necho 3 9\n")
    assert make_env.choose({"VIRTUAL_ENV": str(old)}, None, root).ours
    assert "no Python 3.11 or newer" in make_env.objection(old, root)


def test_given_python_comes_before_the_active_environment(root: Path, tmp_path: Path):
    active = make_environment(tmp_path / "active")
    system = tmp_path / "python-of-the-system"
    system.write_text("#!/bin/sh\necho\n")
    system.chmod(0o755)
    assert make_env.choose({"VIRTUAL_ENV": str(active)}, str(system), root).ours


def test_given_python_inside_an_environment_stands_for_it(root: Path, tmp_path: Path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "theirs"], check=True)
    chosen = make_env.choose({}, str(tmp_path / "theirs" / "bin" / "python"), root)
    assert chosen == Environment(tmp_path / "theirs", ours=False)


def test_python_that_is_too_old_ends_in_a_sentence(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is needed"):
        make_env.interpreter(str(tmp_path / "no-such-python"))


# --- what is to be done --------------------------------------------------------------------------


def test_nothing_is_done_when_nothing_changed(root: Path):
    environment = Environment(make_environment(root / ".venv"), ours=True)
    wanted = make_env.fingerprint(environment, root)
    make_env.write_stamp(environment, wanted, root)
    assert make_env.plan(environment, wanted, None) == "nothing"
    for name in ("pyproject.toml", "requirements.lock"):
        (root / name).write_text("something else")
        changed = make_env.fingerprint(environment, root)
        assert changed != wanted
        assert make_env.plan(environment, changed, None) == "install"


def test_half_made_venv_is_made_again(root: Path):
    environment = Environment(root / ".venv", ours=True)
    assert make_env.plan(environment, "hash", None) == "make"  # not there at all
    (root / ".venv").mkdir()
    assert make_env.plan(environment, "hash", None) == "make"  # interrupted before its Python
    shutil.rmtree(root / ".venv")
    make_environment(root / ".venv")
    make_env.write_stamp(environment, UNFINISHED, root)
    assert make_env.plan(environment, "hash", None) == "make"  # interrupted while installing


def test_environment_of_the_user_is_never_deleted(root: Path, tmp_path: Path):
    environment = Environment(make_environment(tmp_path / "theirs"), ours=False)
    assert make_env.plan(environment, "hash", None) == "install"
    make_env.write_stamp(environment, UNFINISHED, root)
    assert make_env.plan(environment, "hash", None) == "install"


def test_venv_made_by_hand_is_completed_not_deleted(root: Path):
    environment = Environment(make_environment(root / ".venv"), ours=True)
    assert make_env.plan(environment, "hash", None) == "install"


def test_another_python_makes_venv_again(root: Path, tmp_path: Path):
    environment = Environment(make_environment(root / ".venv"), ours=True)
    make_env.write_stamp(environment, "hash", root)
    other = tmp_path / "python3.99"
    other.write_text("#!/bin/sh\necho 3 99\n")
    other.chmod(0o755)
    assert make_env.plan(environment, "hash", sys.executable) == "nothing"
    assert make_env.plan(environment, "hash", str(other)) == "make"


def test_damaged_stamp_counts_as_none(root: Path):
    environment = Environment(make_environment(root / ".venv"), ours=True)
    environment.stamp.write_text("{")
    assert make_env.read_stamp(environment) == {}


@pytest.mark.parametrize(
    ("failure", "state"), [(SystemExit, "before"), (KeyboardInterrupt, UNFINISHED)]
)
def test_failed_update_is_tried_again_and_an_interrupted_one_made_anew(
    root: Path, monkeypatch, failure: type, state: str
):
    """pip undoes what it could not do; what a signal leaves behind is unknown."""
    environment = Environment(make_environment(root / ".venv"), ours=True)
    make_env.write_stamp(environment, "before", root)

    def fail(_: Environment) -> None:
        assert json.loads(environment.stamp.read_text())["state"] == UNFINISHED
        raise failure

    monkeypatch.setattr(make_env, "install", fail)
    with pytest.raises(failure):
        make_env.build(environment, None)
    assert make_env.read_stamp(environment)["state"] == state


def test_make_env_is_understood_by_old_pythons():
    """So that it can say what is wrong with them."""
    import ast

    ast.parse((REPO / "tools" / "make_env.py").read_text(), feature_version=(3, 8))
