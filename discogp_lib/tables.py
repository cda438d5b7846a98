"""Writing a table once for machines, once for readers and once for the paper."""

from pathlib import Path

import pandas as pd

from discogp_lib.paths import RESULTS, atomic_path

MISSING = "\N{EN DASH}"
"""What stands for a missing value in the tables for readers."""

_LATEX = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    MISSING: "--",
}


def write_table(
    table: pd.DataFrame,
    profile: str,
    name: str,
    *,
    caption: str,
    decimals: int = 3,
    results: Path = RESULTS,
) -> Path:
    """Write `name`.csv, .md and .tex into the profile's tables; returns the path of the CSV.

    The columns are written as they are and the index is not: reset it first if it says something.
    The CSV keeps six digits, the other two round to `decimals`.
    """
    folder = results / profile / "tables"
    texts = {
        "csv": table.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
        "md": to_markdown(table, caption=caption, decimals=decimals),
        "tex": to_latex(table, caption=caption, label=name, decimals=decimals),
    }
    for suffix, text in texts.items():
        with atomic_path(folder / f"{name}.{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return folder / f"{name}.csv"


def to_markdown(table: pd.DataFrame, *, caption: str = "", decimals: int = 3) -> str:
    """The table in GitHub's Markdown, its caption below; numbers are aligned to the right."""
    lines = [list(map(str, table.columns)), *_cells(table, decimals)]
    escaped = [[cell.replace("|", r"\|").replace("\n", " ") for cell in line] for line in lines]
    rule = ["---:" if numeric else "---" for numeric in _numeric(table)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in [escaped[0], rule, *escaped[1:]])
    return f"{text}\n{caption}\n" if caption else text


def to_latex(table: pd.DataFrame, *, caption: str, label: str, decimals: int = 3) -> str:
    """The table as a LaTeX float with booktabs rules."""
    lines = [list(map(str, table.columns)), *_cells(table, decimals)]
    rows = [" & ".join(map(_escape_latex, line)) + r" \\" for line in lines]
    columns = "".join("r" if numeric else "l" for numeric in _numeric(table))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{_escape_latex(caption)}}}",
            rf"\label{{tab:{label}}}",
            r"\end{table}",
            "",
        ]
    )


def _cells(table: pd.DataFrame, decimals: int) -> list[list[str]]:
    return [[_cell(value, decimals) for value in row] for row in table.itertuples(index=False)]


def _cell(value: object, decimals: int) -> str:
    """One value as text; a missing one is a dash."""
    if pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)


def _numeric(table: pd.DataFrame) -> list[bool]:
    return [pd.api.types.is_numeric_dtype(table[column]) for column in table.columns]


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)
