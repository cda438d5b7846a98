"""The three forms of a table, by hand."""

import pandas as pd
import pytest

from discogp_lib import tables

TABLE = pd.DataFrame(
    {"task": ["AGA", "a|b_c"], "rows": [400, 12], "share of 100%": [2 / 3, float("nan")]}
)


def test_all_three_files_are_written_and_nothing_else(tmp_path):
    path = tables.write_table(TABLE, "smoke", "audit", caption="All of it.", results=tmp_path)
    folder = tmp_path / "smoke" / "tables"
    assert path == folder / "audit.csv"
    assert sorted(file.name for file in folder.iterdir()) == ["audit.csv", "audit.md", "audit.tex"]
    assert path.read_bytes() == b"task,rows,share of 100%\nAGA,400,0.666667\na|b_c,12,\n"
    pd.testing.assert_frame_equal(pd.read_csv(path), TABLE, rtol=1e-6)


def test_markdown_by_hand():
    assert tables.to_markdown(TABLE, caption="All of it.") == (
        "| task | rows | share of 100% |\n"
        "| --- | ---: | ---: |\n"
        "| AGA | 400 | 0.667 |\n"
        f"| a\\|b_c | 12 | {tables.MISSING} |\n"
        "\nAll of it.\n"
    )


def test_latex_by_hand():
    lines = tables.to_latex(TABLE, caption="50 % & more", label="audit", decimals=1).splitlines()
    assert lines[2] == r"\begin{tabular}{lrr}"
    assert lines[4] == r"task & rows & share of 100\% \\"
    assert lines[6:8] == [r"AGA & 400 & 0.7 \\", r"a|b\_c & 12 & -- \\"]
    assert lines[-3:-1] == [r"\caption{50 \% \& more}", r"\label{tab:audit}"]


def test_bold_cells_and_another_table_for_readers(tmp_path):
    readers = pd.DataFrame({"task": ["AGA", "ANA"], "acc": ["98.5 ± 0.3", "50.0"]})
    bold = pd.DataFrame({"acc": [True, False], "task": [False, False]})
    path = tables.write_table(
        TABLE, "smoke", "main", caption="", readers=readers, bold=bold, results=tmp_path
    )
    assert pd.read_csv(path).columns.tolist() == TABLE.columns.tolist()
    assert path.with_suffix(".md").read_text().splitlines()[2:] == [
        "| AGA | **98.5 ± 0.3** |",
        "| ANA | 50.0 |",
    ]
    latex = path.with_suffix(".tex").read_text().splitlines()
    assert latex[6:8] == [r"AGA & \textbf{98.5 $\pm$ 0.3} \\", r"ANA & 50.0 \\"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tables.write_table(TABLE, "smoke", "audit", caption="", results=tmp_path)
    before = path.read_bytes()

    def broken(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(type(path), "write_text", broken)
    with pytest.raises(OSError, match="no space"):
        tables.write_table(TABLE.head(1), "smoke", "audit", caption="", results=tmp_path)
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.part"))
