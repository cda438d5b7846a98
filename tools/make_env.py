"""Prepare the Python environment that every make target runs in.

    python tools/make_env.py          build or update it, do nothing when nothing changed
    python tools/make_env.py --where  only print the path of its Python

Which environment: an interpreter given with PYTHON= that lives in a virtual or conda environment;
else, without PYTHON=, the active virtual environment or the active conda environment, unless that
is conda's base, which stays as it is; else `.venv` beside the Makefile. An active environment with
a Python older than 3.11, or one that another checkout of this project was installed into, is left
alone too.

A stamp inside the environment says what was installed. It reads "unfinished" while work is under
way, so a `.venv` whose making was interrupted is recognised and made again from nothing. Only the
standard library is used, in syntax that old versions of Python understand well enough to say that
they are too old.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWER_PYTHONS = ("python3.13", "python3.12", "python3.11")
EXTRAS = "test,slurm,gguf"
STAMP = ".discogp-env.json"
UNFINISHED = "unfinished"


class Environment(NamedTuple):
    """Where the packages go, and whether the directory is this project's own `.venv`."""

    directory: Path
    ours: bool

    @property
    def python(self) -> Path:
        """The interpreter to run everything with."""
        return self.directory / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """The file that says what was installed."""
        return self.directory / STAMP


def say(text: str) -> None:
    """Talk to the user; standard output is for the path."""
    print(f"make env: {text}", file=sys.stderr, flush=True)


def choose(environ: dict[str, str], given: str | None, root: Path = ROOT) -> Environment:
    """The environment to use, from the variables of the shell and the PYTHON= that was given."""
    if given:
        candidates = [environment_of(given)]
    else:
        in_base = environ.get("CONDA_DEFAULT_ENV") == "base"
        conda = None if in_base else environ.get("CONDA_PREFIX")
        active = (Path(name) for name in (environ.get("VIRTUAL_ENV"), conda) if name)
        candidates = [directory for directory in active if not objection(directory, root)]
    for directory in candidates:
        if directory and directory.resolve() != root / ".venv":
            return Environment(directory, False)
    return Environment(root / ".venv", True)


def objection(directory: Path, root: Path = ROOT) -> str:
    """Why an active environment must not be installed into; nothing when it may be."""
    environment = Environment(directory, False)
    if version_of(str(environment.python)) < OLDEST:
        return f"{directory} has no Python 3.11 or newer"
    project = read_stamp(environment).get("project", str(root))
    if project != str(root) and Path(project).is_dir():
        return f"{directory} belongs to {project}"
    return ""


def environment_of(python: str) -> Path | None:
    """The virtual or conda environment that `python` lives in; None for a system's own."""
    code = (
        "import os, sys; own = sys.prefix != sys.base_prefix or"
        " os.path.isdir(os.path.join(sys.prefix, 'conda-meta'))"
        " and os.path.basename(os.path.dirname(sys.prefix)) == 'envs';"
        " print(sys.prefix if own else '')"
    )
    prefix = ask(python, code)
    return Path(prefix) if prefix else None


def version_of(python: str) -> tuple[int, ...]:
    """The version of an interpreter as numbers; () when it does not run."""
    answer = ask(python, "import sys; print(*sys.version_info[:2])")
    return tuple(int(part) for part in answer.split())


def ask(python: str, code: str) -> str:
    """What a line of code prints in another interpreter; nothing when that does not run."""
    try:
        done = subprocess.run(
            [python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode().strip()


def interpreter(given: str | None) -> str:
    """The Python to make `.venv` with: the one given, the one running this, or a newer one."""
    candidates = [given] if given else [sys.executable, *NEWER_PYTHONS]
    for python in candidates:
        if version_of(python) >= OLDEST:
            return python
    raise SystemExit(
        f"make env: {' and '.join(candidates)} cannot be used: Python 3.11 or newer is needed; "
        "install one and name it, for example make env PYTHON=/opt/python3.12/bin/python3"
    )


def fingerprint(environment: Environment, root: Path = ROOT) -> str:
    """A hash of what decides the content of the environment."""
    parts = [str(environment.python), str(root), EXTRAS]
    parts += [(root / name).read_text() for name in ("pyproject.toml", "requirements.lock")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_stamp(environment: Environment) -> dict[str, str]:
    """The stamp, or nothing when there is none or it cannot be read."""
    try:
        return dict(json.loads(environment.stamp.read_text()))
    except (OSError, ValueError):
        return {}


def write_stamp(environment: Environment, state: str, root: Path = ROOT) -> None:
    """Note in the environment what was installed into it, or that this is under way."""
    part = environment.stamp.with_suffix(".part")
    part.write_text(json.dumps({"state": state, "project": str(root)}))
    os.replace(part, environment.stamp)


def plan(environment: Environment, wanted: str, given: str | None) -> str:
    """What is to be done: "nothing", "install" (again) or "make" (from nothing)."""
    state = read_stamp(environment).get("state")
    works = os.access(environment.python, os.X_OK)
    if environment.ours and given:  # another Python than .venv was made with
        works = works and version_of(given) == version_of(str(environment.python))
    if works and state == wanted:
        return "nothing"
    if environment.ours and (not works or state == UNFINISHED):
        return "make"
    return "install"


def build(environment: Environment, given: str | None) -> None:
    """Bring the environment up to date."""
    wanted = fingerprint(environment)
    task = plan(environment, wanted, given)
    if task == "nothing":
        return
    before = read_stamp(environment).get("state", "")
    if task == "make":
        python = interpreter(given)
        say(f"making {environment.directory} with {python}; this takes a few minutes, once")
        shutil.rmtree(environment.directory, ignore_errors=True)
        environment.directory.mkdir()
        write_stamp(environment, UNFINISHED)
        run([python, "-m", "venv", str(environment.directory)])
    else:
        say(f"installing what changed into {environment.directory}")
        write_stamp(environment, UNFINISHED)
    try:
        install(environment)
    except SystemExit:
        if task == "install":  # pip refused and left things as they were: no reason to start anew
            write_stamp(environment, before)
        raise
    write_stamp(environment, wanted)
    say("done")


def install(environment: Environment) -> None:
    """Install the project and its dependencies at the tested versions."""
    pip = [str(environment.python), "-m", "pip"]
    if not ask(str(environment.python), "import pip; print(pip.__version__)"):
        run([str(environment.python), "-m", "ensurepip"])
    options = ["--quiet", "--disable-pip-version-check", "-c", str(ROOT / "requirements.lock")]
    run([*pip, "install", *options, "-e", f"{ROOT}[{EXTRAS}]"])


def run(command: list[str]) -> None:
    """Run a command with its output beside ours; stop with a sentence when it fails."""
    code = subprocess.call(command, stdout=sys.stderr)
    if code:
        raise SystemExit(f"make env: '{' '.join(command)}' failed ({code}); see above, then repeat")


def main() -> None:
    """Build or update the environment, or only say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--where", action="store_true", help="only print the path of its Python")
    parser.add_argument("--python", help="the interpreter that the user asked for")
    options = parser.parse_args()
    environment = choose(dict(os.environ), options.python)
    if options.where:
        print(environment.python)
        return
    active = os.environ.get("VIRTUAL_ENV")
    if environment.ours and active and objection(Path(active)):
        say(f"using .venv and not the active environment: {objection(Path(active))}")
    with open(ROOT / "pyproject.toml") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once: the second waits and finds it done
        build(environment, options.python)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nmake env: interrupted; the next call starts afresh") from None
