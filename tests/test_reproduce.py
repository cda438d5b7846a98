"""From nothing to every table: done once, redone where something changed, and never half done."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discogp_lib.errors import ConfigError, RunError
from discogp_lib.methods import METHODS
from discogp_lib.paths import REPO
from discogp_lib.profiles import Profile
from discogp_lib.reproduce import execute, reproduce
from discogp_lib.sweep import plan, sweep
from tests.quick import P36, install, write_notebook, write_notebooks


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs of the quick profile."""
    root = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        install(root, patch.setattr)
        patch.setattr("discogp_lib.masks.COMPILE_FROM", sys.maxsize)
        assert not [outcome for outcome in sweep(plan("quick")) if outcome.error]
    return root / "results" / "quick" / "runs"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two notebooks."""
    install(tmp_path, monkeypatch.setattr)
    write_notebooks(tmp_path)
    return tmp_path


@pytest.fixture
def root(empty: Path, store: Path) -> Path:
    """The same, with all its runs."""
    shutil.copytree(store, empty / "results" / "quick" / "runs")
    return empty


def once(**narrowed: object) -> list[str]:
    """What one call says."""
    lines: list[str] = []
    reproduce("quick", jobs=1, say=lines.append, **narrowed)
    return lines


def files(root: Path) -> dict[str, int]:
    """When each file that came out was written."""
    kept = [p for folder in ("results", "figures") for p in (root / folder).rglob("*")]
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in kept if p.is_file()}


def test_everything_is_made_and_then_left_alone(empty: Path, monkeypatch: pytest.MonkeyPatch):
    lines = once()
    assert lines[0] == "Profile quick (it was asked for): a test."
    assert lines[1] == "8 runs, 8 of them to be computed."
    assert [line.split()[0] for line in lines[2:10]] == [f"[{n}/8]" for n in range(1, 9)]
    assert all(" left" in line for line in lines[2:9])
    assert lines[10].startswith("01_table.ipynb: executed in")
    rows = json.loads((empty / "results/quick/tables/all.csv").read_text())
    assert len(rows) == 8
    notebook = (empty / "results/quick/notebooks/01_table.ipynb").read_text()
    assert "8 runs of 2 tasks" in notebook
    assert "papermill" not in json.loads(notebook)["metadata"]

    made = files(empty)
    monkeypatch.setattr("discogp_lib.reproduce.execute", never)
    monkeypatch.setattr("discogp_lib.reproduce.sweep", never)
    lines = once()
    assert lines[1:4] == [
        "8 runs, 0 of them to be computed.",
        "01_table.ipynb: up to date",
        "02_figure.ipynb: up to date",
    ]
    assert files(empty) == made


def test_without_stamps_notebooks_are_executed_and_runs_are_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    """A fresh clone has the committed notebooks, but neither stamps nor runs."""
    for name in METHODS:
        monkeypatch.setitem(METHODS, name, never)
    assert executed(once()) == ["01", "02"]
    shutil.rmtree(root / "results/quick/.made_from")
    assert executed(once()) == ["01", "02"]
    shutil.rmtree(root / "results/quick/runs")
    with pytest.raises(RunError, match="8 of 8 runs failed"):
        once()


def never(*_: object, **__: object) -> None:
    raise AssertionError("done again")


def executed(lines: list[str]) -> list[str]:
    return [line[:2] for line in lines if ": executed in" in line]


def test_a_change_reruns_what_depends_on_it(root: Path):
    assert executed(once()) == ["01", "02"]
    write_notebook(
        root / "notebooks/02_figure.ipynb",
        "drawn = True",
    )
    assert executed(once()) == ["02"]
    (root / "results/quick/tables/all.csv").unlink()  # the same table again: 02 is not touched
    assert executed(once()) == ["01"]
    write_notebook(
        root / "notebooks/01_table.ipynb",
        f"open({str(root / 'results/quick/tables/all.csv')!r}, 'w').write('else')",
    )
    assert executed(once()) == ["01", "02"]  # another table: 02 is made from it


def test_narrowed_and_widened(empty: Path):
    assert executed(once(tasks=["P36"], seeds=[0])) == ["01", "02"]
    rows = json.loads((empty / "results/quick/tables/all.csv").read_text())
    assert [row[:3] for row in rows] == [[P36, "discogp", 0], [P36, "magnitude", 0]]
    lines = once(methods=["magnitude"])
    assert lines[1] == "8 runs, 6 of them to be computed."  # with the runs that they match
    with pytest.raises(ConfigError, match="has no task 'IOI'"):
        once(tasks=["IOI"])


def test_of_a_larger_model_everything_in_the_store_is_told(root: Path, monkeypatch):
    """Narrowed is what is computed: tables that grow over days must not shrink in between."""
    monkeypatch.setattr(Profile, "is_small", False)
    notebook = root / "results/quick/notebooks/01_table.ipynb"
    assert executed(once(tasks=["P36"], methods=["discogp"], seeds=[0])) == ["01", "02"]
    assert "8 runs of 0 tasks" in notebook.read_text()  # no names: all of them
    assert executed(once(tasks=["P103"], seeds=[1])) == []
    shutil.rmtree(root / "results/quick/runs/pararel/P103/magnitude/seed1")
    assert executed(once(tasks=["P36"], methods=["discogp"], seeds=[0])) == ["01", "02"]
    assert "7 runs of 0 tasks" in notebook.read_text()


def test_a_notebook_that_needs_other_tasks_is_skipped(root: Path):
    write_notebook(root / "notebooks/04_composition.ipynb", "1 / 0")
    lines = once(tasks=["P36"], seeds=[0])
    skipped = [line for line in lines if "skipped" in line]
    assert skipped == [
        "04_composition.ipynb: skipped, it needs two tasks other than relations, there are fewer"
    ]


def test_a_failure_names_notebook_and_cell_and_the_next_call_goes_on(root: Path):
    notebook = root / "notebooks/02_figure.ipynb"
    good = notebook.read_text()
    write_notebook(notebook, "x = 1", "y = 2\nassert x == y, 'not the same'")
    with pytest.raises(RunError) as failure:
        once()
    assert str(failure.value) == (
        "02_figure.ipynb failed in cell In [4] (y = 2): AssertionError: not the same"
    )
    assert not (root / "results/quick/notebooks/02_figure.ipynb").exists()
    assert not list((root / "results").rglob("*.part"))
    notebook.write_text(good)
    assert executed(once()) == ["02"]


def test_a_kernel_that_dies_is_told(root: Path):
    write_notebook(root / "notebooks/02_figure.ipynb", "import os", "os.kill(os.getpid(), 9)")
    with pytest.raises(RunError, match=r"The kernel of 02_figure.ipynb died, often for want"):
        once()


def test_unknown_parameters_fail(root: Path):
    notebook = root / "notebooks/02_figure.ipynb"
    with pytest.raises(RunError, match=r"has no parameter PROFIEL; it has PROFILE"):
        execute(notebook, root / "out.ipynb", {"PROFIEL": "quick"})
    write_notebook(notebook, parameters="OTHER = 1")
    with pytest.raises(RunError, match="has no parameter PROFILE"):
        once()


def test_a_failed_run_stops_before_the_notebooks(empty: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> None:
        raise ConfigError("not today")

    monkeypatch.setitem(METHODS, "magnitude", fails)
    with pytest.raises(RunError, match=r"4 of 8 runs failed, the first is .* not today"):
        once()
    assert not (empty / "results/quick/notebooks").exists()


def test_manifest_and_index_describe_what_was_made(root: Path):
    once()
    manifest = json.loads((root / "results/quick/manifest.json").read_text())
    assert manifest["seeds"] == [0, 1]
    assert manifest["runs"] == 8
    assert len(manifest["checkpoint_sha256"]) == 1
    assert set(manifest["data_sha256"][P36]) == {"0", "1"}
    assert manifest["config"]["steps"] == 4
    assert {"python", "torch", "papermill"} <= set(manifest["versions"])
    assert manifest["hardware"]["cores"] == os.cpu_count()
    assert set(manifest["files_sha256"]) == {
        "results/quick/tables/all.csv",
        "results/quick/notebooks/01_table.ipynb",
        "results/quick/notebooks/02_figure.ipynb",
        "figures/quick/all.svg",
    }
    index = (root / "results/quick/INDEX.md").read_text()
    assert "Table 2" in index
    assert "**missing**" in index


# --- interrupted ---------------------------------------------------------------------------------


class Server:
    """Carries out commands in processes that can be killed; see quick.py."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log.txt"
        command = [sys.executable, "-m", "tests.quick", str(self.log)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=REPO, **pipes)

    def start(self, root: Path, *arguments: str) -> int:
        self.log.write_text("")
        self.process.stdin.write(json.dumps([str(root), *arguments]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def ended(self) -> int:
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"))
    yield running
    running.process.stdin.close()
    assert running.process.wait(timeout=30) == 0


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited a minute for nothing"
        time.sleep(0.01)


REPRODUCE = ("reproduce", "--profile", "quick", "--jobs", "1", "--device", "cpu")

POINTS: dict[str, Callable[[Path], object]] = {
    "in the first search": lambda root: list(root.rglob("search*")) or list(root.rglob(".lock")),
    "after two runs": lambda root: len(list(root.rglob("record.json"))) >= 2,
    "after seven runs": lambda root: len(list(root.rglob("record.json"))) >= 7,
    "in the first notebook": lambda root: (root / "reading").exists(),
    "in the second notebook": lambda root: (root / "drawing").exists(),
}


@pytest.fixture(scope="module")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reproduction that nothing has disturbed."""
    root = tmp_path_factory.mktemp("whole")
    write_notebooks(root)
    server.start(root, *REPRODUCE)
    assert server.ended() == 0, server.log.read_text()
    return root


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_interrupted_anywhere_it_ends_in_the_same_tables(
    how: signal.Signals, server: Server, whole: Path, tmp_path: Path
):
    torn = tmp_path
    write_notebooks(torn, sleep=0.2)
    ended = []
    for where, reached in POINTS.items():
        child = server.start(torn, *REPRODUCE)
        wait_for(lambda reached=reached: reached(torn))
        os.kill(child, how)
        code, said = server.ended(), server.log.read_text()
        ended.append(code)
        assert "Traceback" not in said, (where, said)
        if how == signal.SIGINT:
            assert code in (130, 0), (where, said)  # 0: it was done before the signal came
            assert ("interrupted; call it again" in said) == (code == 130)
        else:
            assert code in (-signal.SIGKILL, 0)
    assert ended.count(0) <= 1
    server.start(torn, *REPRODUCE)
    assert server.ended() == 0, server.log.read_text()
    for name in ("results/quick/tables/all.csv", "figures/quick/all.svg"):
        assert (torn / name).read_bytes() == (whole / name).read_bytes()
    assert not list(torn.rglob("search*"))
    assert not list(torn.rglob("*.part"))
    server.start(torn, *REPRODUCE)
    assert server.ended() == 0
    assert server.log.read_text().count("up to date") == 2
