"""Committed notebooks are clean: run in order, no errors, no warnings, no traces of a machine."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from discogp_lib.paths import REPO

LARGEST = 1_000_000
"""Bytes."""

MACHINE = re.compile(r"(?<![\w.])/(?:home|root|Users|tmp|work|var|mnt|opt)/|[A-Z]:\\|site-packages")
WARNING = re.compile(r"\w*Warning\b.*:|\bwarnings\.warn\b")


def committed() -> list[Path]:
    """All notebooks that git knows; without git, all there are."""
    patterns = ["notebooks/*.ipynb", "results/*/notebooks/*.ipynb"]
    listed = subprocess.run(["git", "-C", REPO, "ls-files", *patterns], capture_output=True)
    if listed.returncode == 0:
        found = [REPO / name for name in listed.stdout.decode().split()]
        return [path for path in found if path.exists()]
    return [path for pattern in patterns for path in REPO.glob(pattern)]


def texts(output: NotebookNode) -> list[str]:
    """All that an output says in words."""
    data = output.get("data", {})
    kinds = [kind for kind in data if kind.startswith("text/") or kind == "image/svg+xml"]
    return [output.get("text", ""), *(data[kind] for kind in kinds)]


def problems(notebook: NotebookNode) -> list[str]:
    """What is wrong with a notebook."""
    found = []
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    for number, cell in enumerate(code, 1):
        if cell.execution_count != number:
            found.append(f"cell {number} has execution count {cell.execution_count}")
        for output in cell.outputs:
            said = "\n".join(texts(output))
            if output.output_type == "error":
                found.append(f"cell {number} ends in {output.ename}")
            if output.get("name") == "stderr" or WARNING.search(said):
                found.append(f"cell {number} warns: {said.strip()[:100]}")
            if match := MACHINE.search(said):
                found.append(f"cell {number} tells of a machine: {match[0]}")
    for cell in notebook.cells:
        if match := MACHINE.search(cell.source):
            found.append(f"a cell's source tells of a machine: {match[0]}")
    return found


def test_there_are_notebooks():
    assert {path.name[:2] for path in committed()} >= {"01", "02"}


@pytest.mark.parametrize("path", committed(), ids=lambda path: str(path.relative_to(REPO)))
def test_committed_notebook_is_clean(path: Path):
    assert problems(nbformat.read(path, as_version=4)) == []
    assert path.stat().st_size <= LARGEST


@pytest.mark.parametrize(
    "path", sorted((REPO / "notebooks").glob("[0-9]*.ipynb")), ids=lambda path: path.name
)
def test_notebooks_default_to_smoke_and_can_be_told_otherwise(path: Path):
    cells = nbformat.read(path, as_version=4).cells
    (told,) = [c for c in cells if "parameters" in c.metadata.get("tags", [])]
    assert 'PROFILE = "smoke"' in told.source


def clean() -> NotebookNode:
    outputs = [nbformat.v4.new_output("stream", name="stdout", text="a path: results/smoke/runs")]
    cells = [
        nbformat.v4.new_markdown_cell("Words"),
        nbformat.v4.new_code_cell("print(1)", execution_count=1, outputs=outputs),
        nbformat.v4.new_code_cell(""),
        nbformat.v4.new_code_cell("2", execution_count=2),
    ]
    return nbformat.v4.new_notebook(cells=cells)


def spoil(output: NotebookNode) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[1].outputs.append(output)


def stream(name: str, text: str) -> NotebookNode:
    return nbformat.v4.new_output("stream", name=name, text=text)


SPOILT: dict[str, Callable[[NotebookNode], None]] = {
    "cell 1 ends in KeyError": spoil(nbformat.v4.new_output("error", ename="KeyError", evalue="")),
    "cell 1 warns": spoil(stream("stderr", "loading")),
    "cell 1 warns: FutureWarning": spoil(stream("stdout", "FutureWarning: do not")),
    "cell 1 tells of a machine: /home/": spoil(stream("stdout", "in /home/ann/discogp")),
    "a cell's source tells of a machine": lambda n: n.cells[3].update(source="open('/root/x')"),
    "cell 2 has execution count 5": lambda n: n.cells[3].update(execution_count=5),
    "cell 2 has execution count None": lambda n: n.cells[3].update(execution_count=None),
}


def test_a_clean_notebook_has_no_problems():
    assert problems(clean()) == []


@pytest.mark.parametrize("problem", SPOILT)
def test_each_kind_of_problem_is_found(problem: str):
    notebook = clean()
    SPOILT[problem](notebook)
    (found,) = problems(notebook)
    assert found.startswith(problem)
