"""What a notebook was made from, so that a second call does nothing and a change reruns it.

A stamp holds one hash over everything that went in (the notebook's cells, its parameters, the
modules of the library that it imports directly or through others, the run records, the tables of
earlier notebooks) and the hash of every file that came out. Stamps are not committed: on a fresh
clone everything is made anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from discogp_lib.paths import FIGURES, PACKAGE, REPO, RESULTS, atomic_path
from discogp_lib.runs import Run, file_sha256

NAME = PACKAGE.name


class Stamp:
    """The stamp of one step of a profile."""

    def __init__(self, profile: str, step: str) -> None:
        self.path = RESULTS / profile / ".made_from" / f"{step}.json"
        self.root = RESULTS.parent

    def read(self) -> dict[str, Any]:
        """What is known of the last time; nothing if that cannot be read."""
        try:
            return dict(json.loads(self.path.read_text()))
        except (OSError, ValueError):
            return {}

    @property
    def outputs(self) -> dict[str, str]:
        """Hash by path of what came out, paths from the root of the repository."""
        return self.read().get("outputs", {})

    def holds(self, inputs: str, overwritten: Iterable[str] = ()) -> bool:
        """Whether the same went in and all that came out is still there as it was.

        Files that a later step has `overwritten` are its business.
        """
        stamp = self.read()
        if stamp.get("inputs") != inputs:
            return False
        files = {name: stamp["outputs"][name] for name in set(stamp["outputs"]) - {*overwritten}}
        return all(_is_file_with(self.root / name, sha256) for name, sha256 in files.items())

    def write(self, inputs: str, outputs: Iterable[Path]) -> None:
        """Note what went in and what came out."""
        files = {str(path.relative_to(self.root)): file_sha256(path) for path in sorted(outputs)}
        with atomic_path(self.path) as temporary:
            temporary.write_text(json.dumps({"inputs": inputs, "outputs": files}, indent=1) + "\n")


def _is_file_with(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256


def written_files(profile: str) -> dict[Path, tuple[int, int]]:
    """The tables and figures of a profile, with what changes when one is written again."""
    files = [*(RESULTS / profile / "tables").rglob("*"), *(FIGURES / profile).rglob("*")]
    kept = (path for path in files if path.is_file() and path.suffix != ".part")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in kept}


def notebook_hash(
    notebook: Path, parameters: dict[str, Any], runs: Sequence[Run], earlier: Iterable[Stamp]
) -> str:
    """Identity of everything that a notebook's output depends on."""
    cells = [(c.cell_type, c.source) for c in nbformat.read(notebook, as_version=4).cells]
    code = "\n".join(source for kind, source in cells if kind == "code")
    parts = [json.dumps(parameters, sort_keys=True), json.dumps(cells)]
    parts += [file_sha256(path) for path in library_files(code)]
    parts += [file_sha256(path) for path in sorted((REPO / "paper").glob("*.csv"))]
    parts.append(records_hash(runs))
    for stamp in earlier:
        parts += [f"{k} {v}" for k, v in sorted(stamp.outputs.items()) if "/tables/" in k]
    return _sha256(parts)


def records_hash(runs: Sequence[Run]) -> str:
    """Identity of the records of these runs, as far as they are there."""
    paths = [run.record_path for run in sorted(runs, key=str)]
    return _sha256(f"{path.name} {file_sha256(path)}" for path in paths if path.exists())


def library_hash() -> str:
    """Identity of the whole library and its data files."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file())
    return _sha256(file_sha256(path) for path in files if "__pycache__" not in path.parts)


def _sha256(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def library_files(code: str) -> list[Path]:
    """The files of the library that a piece of code depends on, modules and their data.

    A package's data are the files beside its modules and in folders there that are no packages.
    """
    todo, modules = _imports(code, NAME), set[str]()
    while todo:
        name = todo.pop()
        if name not in modules:
            modules.add(name)
            path = _module_path(name)
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            todo |= _imports_of(path, package) | ({package} if package else set())
    paths = {_module_path(name) for name in modules}
    folders = {path.parent for path in paths}
    return sorted(paths | {file for folder in folders for file in _data_files(folder)})


def _data_files(folder: Path) -> list[Path]:
    found = []
    for path in folder.iterdir():
        if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
            found += [file for file in path.rglob("*") if file.is_file()]
        elif path.is_file() and path.suffix != ".py":
            found.append(path)
    return found


@cache
def _imports_of(path: Path, package: str) -> frozenset[str]:
    return frozenset(_imports(path.read_text(), package))


def _imports(code: str, package: str) -> set[str]:
    """Modules of the library that a text imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(_without_magic(code))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package.split(".")[: -node.level + 1 or None], base]).rstrip(".")
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    ours = {name for name in names if name == NAME or name.startswith(f"{NAME}.")}
    return {name for name in ours if _module_path(name).is_file()}


def _without_magic(code: str) -> str:
    """Notebook code without the lines that are not Python."""
    lines = code.splitlines()
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in lines)


def _module_path(name: str) -> Path:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
