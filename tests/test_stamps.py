"""A notebook depends on the modules that it imports, directly and through others, and no others."""

import shutil
from pathlib import Path

import pytest

from discogp_lib import stamps
from discogp_lib.paths import PACKAGE
from discogp_lib.runs import Run
from discogp_lib.stamps import Stamp, library_files, library_hash, notebook_hash, written_files
from tests.quick import install, write_notebook


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, monkeypatch.setattr)
    return tmp_path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small library: `a` imports `b`, `part.c` imports `d` by a dot; `e` is alone."""
    folder = tmp_path / "lib"
    (folder / "part").mkdir(parents=True)
    (folder / "model").mkdir()
    texts = {
        "__init__.py": "",
        "a.py": "def late():\n    from lib.b import thing",
        "b.py": "import os",
        "d.py": "",
        "e.py": "",
        "data.json": "{}",
        "model/weights.bin": "0",
        "part/__init__.py": "",
        "part/c.py": "from ..d import x",
        "part/words.json": "[]",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(stamps, "PACKAGE", folder)
    monkeypatch.setattr(stamps, "NAME", "lib")
    stamps._imports_of.cache_clear()
    return folder


def names(package: Path, code: str) -> set[str]:
    return {str(path.relative_to(package)) for path in library_files(code)}


DATA = {"data.json", "model/weights.bin"}


def test_imports_are_followed(package: Path):
    assert names(package, "import numpy") == set()
    assert names(package, "import lib") == {"__init__.py", *DATA}
    assert names(package, "%matplotlib inline\nfrom lib import a") == {
        "__init__.py",
        "a.py",
        "b.py",
        *DATA,
    }
    assert names(package, "from lib.part.c import x\n!ls") == {
        "__init__.py",
        "part/__init__.py",
        "part/c.py",
        "part/words.json",
        "d.py",
        *DATA,
    }


def test_the_hash_changes_with_what_matters_only(package: Path, root: Path):
    notebook = root / "notebooks" / "01_a.ipynb"
    run = Run("quick", "pararel/P36", "discogp", 0)
    earlier = Stamp("quick", "00_before")

    def now(parameters: object = 1) -> str:
        stamps._imports_of.cache_clear()
        return notebook_hash(notebook, {"PROFILE": parameters}, [run], [earlier])

    write_notebook(notebook, "from lib import a")
    seen = [now()]
    (package / "e.py").write_text("x = 1")
    assert now() == seen[0]  # not imported
    (package / "b.py").write_text("x = 1")
    seen.append(now())
    (package / "model" / "weights.bin").write_text("1")
    seen.append(now())
    seen.append(now(parameters=2))
    run.folder.mkdir(parents=True)
    run.record_path.write_text("{}")
    seen.append(now())
    table = root / "results" / "quick" / "tables" / "t.csv"
    table.parent.mkdir()
    table.write_text("1")
    earlier.write("", [table])
    seen.append(now())
    write_notebook(notebook, "from lib import a", "2")
    seen.append(now())
    assert len(set(seen)) == len(seen)


def test_the_whole_library_is_hashed(package: Path):
    before = library_hash()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("x")
    assert library_hash() == before
    (package / "part" / "words.json").write_text("[1]")
    assert library_hash() != before


def test_notebooks_depend_on_most_of_the_library_but_not_on_the_command_line():
    stamps._imports_of.cache_clear()
    files = {path.relative_to(PACKAGE).as_posix() for path in library_files("import discogp_lib")}
    assert {"search.py", "model.py", "mini_model/model.safetensors", "tasks/ioi.py"} <= files
    assert not files & {"__main__.py", "slurm.py", "reproduce.py", "manifest.py"}


def test_a_stamp_holds_while_its_files_do(root: Path):
    stamp, table = Stamp("quick", "01"), root / "results" / "quick" / "tables" / "t.csv"
    assert not stamp.holds("in")
    table.parent.mkdir(parents=True)
    table.write_text("1")
    stamp.write("in", [table])
    assert stamp.holds("in")
    assert not stamp.holds("other")
    assert stamp.outputs.keys() == {"results/quick/tables/t.csv"}
    table.write_text("2")
    assert not stamp.holds("in")
    assert stamp.holds("in", overwritten=["results/quick/tables/t.csv"])
    stamp.path.write_text("{")
    assert not stamp.holds("in")
    assert stamp.outputs == {}


def test_a_file_that_is_written_again_is_noticed(root: Path):
    table = root / "results" / "quick" / "tables" / "t.csv"
    table.parent.mkdir(parents=True)
    table.write_text("1")
    before = written_files("quick")
    shutil.copy(table, table.with_suffix(".part"))
    assert written_files("quick") == before
    table.with_suffix(".part").replace(table)
    assert written_files("quick") != before
