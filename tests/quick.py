"""A reproduction of seconds: a profile of a few tiny searches and notebooks that only read them.

Run as a program it takes commands from its standard input, one JSON list per line, and carries
each out in a process of its own; so tests can kill real processes without paying for the imports
every time.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

from discogp_lib.config import SearchConfig
from discogp_lib.profiles import Profile

P36 = "pararel/P36"

QUICK = Profile(
    name="quick",
    model="mini",
    tasks=(P36, "pararel/P103"),
    methods=("magnitude", "discogp"),
    seeds=(0, 1),
    search=SearchConfig(
        steps=4, evaluate_every=2, batch_size=4, dev_prompts=8, weight_logit=1.0, edge_logit=1.0
    ),
    variant_tasks=(),
    about="a test",
)

TABLE = """\
import json, pathlib, time
root = pathlib.Path({root!r})
(root / "reading").write_text("")
time.sleep({sleep})
rows = []
for path in sorted((root / "results" / PROFILE / "runs").rglob("record.json")):
    record = json.loads(path.read_text())
    test = record["metrics"]["test"]
    rows.append([record["task"], record["method"], record["seed"], test["accuracy"], test["kl"]])
(root / "results" / PROFILE / "tables").mkdir(exist_ok=True)
(root / "results" / PROFILE / "tables" / "all.csv").write_text(json.dumps(rows, indent=1))
print(len(rows), "runs of", len(TASKS), "tasks")"""

FIGURE = """\
import pathlib
root = pathlib.Path({root!r})
(root / "drawing").write_text("")
folder = root / "figures" / PROFILE
folder.mkdir(parents=True, exist_ok=True)
table = (root / "results" / PROFILE / "tables" / "all.csv").read_text()
(folder / "all.svg").write_text(f"<svg>{{len(table)}}</svg>")"""


def install(root: Path, change: Callable[[Any, str, Any], None] = setattr) -> None:
    """Make the library keep its results under `root` and know the quick profile."""
    from discogp_lib import __main__, checklist, manifest, profiles, reproduce, runs, stamps

    for module in (__main__, checklist, manifest, reproduce, runs, stamps):
        change(module, "RESULTS", root / "results")
    for module in (checklist, manifest, reproduce, stamps):
        change(module, "FIGURES", root / "figures")
    for module in (manifest, reproduce):
        change(module, "REPO", root)
    change(reproduce, "NOTEBOOKS", root / "notebooks")
    # The notebooks here import nothing, and the tests may run while the library is being edited.
    change(reproduce, "library_hash", lambda: "the library")
    change(profiles, "PROFILES", {**profiles.PROFILES, "quick": QUICK})
    for module in (__main__, reproduce):
        change(module, "PROFILES", profiles.PROFILES)


def write_notebook(path: Path, *cells: str, parameters: str = 'PROFILE = "quick"') -> None:
    """A notebook with a parameters cell and these cells."""
    first = nbformat.v4.new_code_cell(parameters, id="c0", metadata={"tags": ["parameters"]})
    rest = [nbformat.v4.new_code_cell(text, id=f"c{n}") for n, text in enumerate(cells, 1)]
    path.parent.mkdir(exist_ok=True)
    notebook = nbformat.v4.new_notebook(cells=[first, *rest])
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["kernelspec"] = kernel
    nbformat.write(notebook, path)


def write_notebooks(root: Path, sleep: float = 0.0) -> None:
    """A notebook that makes a table from the run store, and one that draws it."""
    table = TABLE.format(root=str(root), sleep=sleep)
    parameters = 'PROFILE = "smoke"\nTASKS = []'
    write_notebook(root / "notebooks" / "01_table.ipynb", table, parameters=parameters)
    write_notebook(root / "notebooks" / "02_figure.ipynb", FIGURE.format(root=str(root)))


def serve(log: Path) -> None:
    """Carry out commands in children; prints a child's process id, then how it ended."""
    from discogp_lib import masks
    from discogp_lib.__main__ import main

    masks.COMPILE_FROM = sys.maxsize
    for line in sys.stdin:
        root, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            install(Path(root))
            sys.stdout.reconfigure(line_buffering=True)
            os._exit(main(arguments))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
