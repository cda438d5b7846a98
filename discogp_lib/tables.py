"""Writing a table once for machines, once for readers and once for the paper."""

from collections.abc import Callable
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
    "±": r"$\pm$",
}


def write_table(
    table: pd.DataFrame,
    profile: str,
    name: str,
    *,
    caption: str,
    decimals: int = 3,
    readers: pd.DataFrame | None = None,
    bold: pd.DataFrame | None = None,
    results: Path = RESULTS,
) -> Path:
    """Write `name`.csv, .md and .tex into the profile's tables; returns the path of the CSV.

    The columns are written as they are and the index is not: reset it first if it says something.
    The CSV keeps six digits, the other two round to `decimals`. `readers` is what the other two
    show where that is not the table itself; `bold` says which of their cells stand out.
    """
    folder = results / profile / "tables"
    shown = table if readers is None else readers
    texts = {
        "csv": table.to_csv(index=False, float_format="%.6g", lineterminator="\n"),
        "md": to_markdown(shown, caption=caption, decimals=decimals, bold=bold),
        "tex": to_latex(shown, caption=caption, label=name, decimals=decimals, bold=bold),
    }
    for suffix, text in texts.items():
        with atomic_path(folder / f"{name}.{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return folder / f"{name}.csv"


def to_markdown(
    table: pd.DataFrame, *, caption: str = "", decimals: int = 3, bold: pd.DataFrame | None = None
) -> str:
    """The table in GitHub's Markdown, its caption below; numbers are aligned to the right."""
    header, *lines = _lines(table, decimals, _escape_markdown, "**{}**", bold)
    rule = ["---:" if numeric else "---" for numeric in _numeric(table)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in [header, rule, *lines])
    return f"{text}\n{caption}\n" if caption else text


def to_latex(
    table: pd.DataFrame,
    *,
    caption: str,
    label: str,
    decimals: int = 3,
    bold: pd.DataFrame | None = None,
) -> str:
    """The table as a LaTeX float with booktabs rules."""
    lines = _lines(table, decimals, _escape_latex, r"\textbf{{{}}}", bold)
    rows = [" & ".join(line) + r" \\" for line in lines]
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


def _lines(
    table: pd.DataFrame,
    decimals: int,
    escape: Callable[[str], str],
    strong: str,
    bold: pd.DataFrame | None,
) -> list[list[str]]:
    """The header and the rows as text, marked up."""
    lines = [[escape(str(name)) for name in table.columns]]
    for i, row in enumerate(table.itertuples(index=False)):
        cells = [escape(_cell(value, decimals)) for value in row]
        if bold is not None:
            marks = bold[list(table.columns)].iloc[i]
            cells = [strong.format(c) if m else c for c, m in zip(cells, marks, strict=True)]
        lines.append(cells)
    return lines


def _cell(value: object, decimals: int) -> str:
    """One value as text; a missing one is a dash."""
    if pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)


def _numeric(table: pd.DataFrame) -> list[bool]:
    return [pd.api.types.is_numeric_dtype(table[column]) for column in table.columns]


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)
