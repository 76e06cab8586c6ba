"""Tables rendered as aligned text, Markdown, LaTeX (booktabs) and CSV, and the format of durations."""

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

    `title`: quantity, data and unit of the figures.
    `header`: the first column is flush left. All others are flush right.
    `notes`: sentences below the table.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


WIDTH = 100
"""Characters per line of a table in plain text, unless a terminal has another width."""


def text(table: Table, width: int = WIDTH) -> str:
    """Render a table as aligned plain text of at most `width` characters per line.

    Title and notes are wrapped. The columns of a wider table are divided into blocks below each other, each with the
    first column.
    """
    import textwrap

    lines = (table.header, *table.rows)
    blocks = []
    for columns in _column_blocks([max(map(len, column)) for column in zip(*lines, strict=True)], width):
        header, *rows = align([[line[i] for i in columns] for line in lines], right=range(1, len(columns)))
        blocks.append("\n".join([header, "-" * max(map(len, (header, *rows))), *rows]))
    wrapper = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    notes = ["\n".join(wrapper.fill(note) for note in table.notes)] if table.notes else []
    return "\n\n".join([textwrap.fill(table.title, width, break_on_hyphens=False), *blocks, *notes])


def _column_blocks(widths: Sequence[int], limit: int) -> list[list[int]]:
    """Divide columns into blocks of at most `limit` characters, each with column 0 and at least one other."""
    blocks = [[0]]
    for i in range(1, len(widths)):
        if len(blocks[-1]) > 1 and sum(widths[j] + 2 for j in blocks[-1]) + widths[i] > limit:
            blocks.append([0])
        blocks[-1].append(i)
    return blocks


def markdown(table: Table) -> str:
    """Render a table as GitHub Markdown: a heading, the table, and its notes as a list."""
    header, *rows = (markdown_row([cell or " " for cell in line]) for line in (table.header, *table.rows))
    rule = "|" + "|".join(["---", *["---:"] * (len(table.header) - 1)]) + "|"
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([f"### {table.title}", "", header, rule, *rows, *([""] if notes else []), *notes])


def markdown_row(cells: Sequence[str]) -> str:
    r"""Render one row of a Markdown table, with `|` inside cells escaped."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def latex(table: Table) -> str:
    r"""Render a table as a `table` environment with booktabs rules. The preamble needs ``\usepackage{booktabs}``."""
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
    """Render records as CSV with the keys of all records as its header. Missing values and None are empty."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in record.items()} for record in records)
    return out.getvalue().rstrip("\n")


def align(lines: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Pad cells to the widths of their columns and join them with two spaces.

    `lines`: rows with the same number of cells. `right`: columns that are flush right. All others are flush left.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    )
    return ["  ".join(cells).rstrip() for cells in padded]


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes and seconds, or hours."""
    # The limits apply to the rounded seconds, so that 59.7 s is shown as 1 min 0 s rather than 60 s.
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    return f"{rounded // 60} min {rounded % 60} s" if rounded < 3600 else f"{seconds / 3600:.1f} h"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {c: rf"\{c}" for c in "&%$#_{}"}


def _escape(cell: str) -> str:
    # Character by character, so that the backslashes of one replacement are not escaped by another.
    return "".join(_LATEX.get(c, c) for c in cell)
