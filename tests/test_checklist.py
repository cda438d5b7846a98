"""The checklist links what is there and marks what is not."""

import re
from pathlib import Path

import pytest

from discogp_lib.checklist import PAPER, Item, index, write_index
from tests.quick import install, write_notebook

ITEMS = (
    Item("Table 1", "Something counted", "01", ("counts",)),
    Item("Figure 1", "Something drawn", "02", ("counts",), ("drawing",)),
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, monkeypatch.setattr)
    (tmp_path / "results/quick/tables").mkdir(parents=True)
    (tmp_path / "figures/quick").mkdir(parents=True)
    return tmp_path


def test_what_is_missing_is_marked(root: Path):
    text = index("quick", ITEMS)
    assert "2 of 2 are missing." in text
    assert "| Table 1 | Something counted | **missing** counts (not there) | **missing** |" in text


def test_what_is_there_is_linked(root: Path):
    (root / "results/quick/tables/counts.md").write_text("")
    (root / "figures/quick/drawing.png").write_text("")
    (root / "figures/quick/more.png").write_text("")
    (root / "results/quick/notebooks").mkdir()
    for name in ("01_data", "02_figures"):
        write_notebook(root / f"results/quick/notebooks/{name}.ipynb")
    path = write_index("quick", ITEMS)
    text = path.read_text()
    assert "Each has a counterpart" in text
    assert "Further figures: [more]" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) == 6
    assert all((path.parent / link).is_file() for link in links)


def test_every_table_and_figure_of_the_paper_is_listed():
    numbers = " ".join(item.number for item in PAPER)
    found = {int(n) for n in re.findall(r"\d+", re.sub(r"Figure \d+", "", numbers))}
    assert found == set(range(1, 13))
    assert re.findall(r"Figure (\d+)", numbers) == ["1", "2", "3", "4"]
    assert all(item.tables or item.figures for item in PAPER)
