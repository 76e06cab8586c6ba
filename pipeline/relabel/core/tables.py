"""Tables as aligned text, Markdown, LaTeX (booktabs) and CSV, and the durations and sizes in their cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Style = Literal["text", "csv", "md", "latex"]


@dataclass(frozen=True)
class Table:
    """A table of formatted cells.

    Attributes
    ----------
    title : str
        Quantity, data and unit of the figures.
    header : tuple of str
        The first column is flush left, all others are flush right.
    rows : tuple of tuple of str
    notes : tuple of str
        Sentences below the table.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def text(table: Table, width: int = 100) -> str:
    """Render aligned plain text; notes are wrapped at `width`."""
    import textwrap

    header, *rows = align((table.header, *table.rows), right=range(1, len(table.header)))
    rule = "-" * max(map(len, (header, *rows)))
    wrapper = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    notes = [wrapper.fill(note) for note in table.notes]
    return "\n".join([table.title, "", header, rule, *rows, *([""] if notes else []), *notes])


def markdown(table: Table) -> str:
    """Render GitHub's Markdown: a heading, a table, notes as a list."""
    header, *rows = (markdown_row([cell or " " for cell in line]) for line in (table.header, *table.rows))
    rule = "|" + "|".join(["---", *["---:"] * (len(table.header) - 1)]) + "|"
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([f"### {table.title}", "", header, rule, *rows, *([""] if notes else []), *notes])


def markdown_row(cells: Sequence[str]) -> str:
    """Render one row of a Markdown table; `|` within a cell is escaped."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def latex(table: Table) -> str:
    r"""Render a `table` environment with booktabs rules; the preamble needs ``\usepackage{booktabs}``."""
    lines = [" & ".join(map(_escape, line)) + r" \\" for line in (table.header, *table.rows)]
    body = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(table.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {_escape(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(body)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Render records as CSV: one header with the keys of all records; missing values and None are empty."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in record.items()} for record in records)
    return out.getvalue().rstrip("\n")


def align(lines: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Pad cells to the widths of their columns and join them by two spaces.

    Parameters
    ----------
    lines : sequence of sequence of str
        Rows of equally many cells.
    right : container of int
        Columns that are flush right. All others are flush left.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    )
    return ["  ".join(cells).rstrip() for cells in padded]


def duration(seconds: float) -> str:
    """Format a duration: `12 s`, `3 min 20 s`, `1.5 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{seconds / 3600:.1f} h"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {c: rf"\{c}" for c in "&%$#_{}"}


def _escape(cell: str) -> str:
    return "".join(_LATEX.get(c, c) for c in cell)
