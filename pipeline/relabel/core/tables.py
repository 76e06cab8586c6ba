"""Rendering of tables as aligned text, Markdown, LaTeX (booktabs), HTML and CSV; formatting of durations and counts."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from relabel.core.errors import MissingError
from relabel_train.html import html_table

Style = Literal["text", "csv", "md", "latex"]


@dataclass(frozen=True)
class Table:
    """A table of formatted cells.

    `title`: quantity, data and unit of the figures.
    `header`: column names. The first column is aligned left, the others right.
    `notes`: sentences below the table.
    `images`: for each row, the image ids that an HTML page can show in the cells; "" for a cell without an image.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    images: tuple[tuple[str, ...], ...] = ()


WIDTH = 100
"""Default line width of the title and notes of a plain-text table, in characters."""


def text(table: Table, width: int = WIDTH) -> str:
    """Render a table as aligned plain text, with title and notes wrapped at `width` characters."""
    header, *rows = align([table.header, *table.rows], right=range(1, len(table.header)))
    lines = [header, "-" * max(map(len, (header, *rows))), *rows]
    notes = [textwrap.fill(note, width, initial_indent="  ", subsequent_indent="  ") for note in table.notes]
    return "\n\n".join("\n".join(part) for part in ([textwrap.fill(table.title, width)], lines, notes) if part)


def markdown(table: Table) -> str:
    """Render a table as GitHub Markdown: a heading, the table, and its notes as a list."""
    lines = [[cell.replace("|", r"\|") or " " for cell in line] for line in (table.header, *table.rows)]
    header, *rows = (f"| {' | '.join(line)} |" for line in lines)
    rule = f"|---{'|---:' * (len(table.header) - 1)}|"
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([f"### {table.title}", "", header, rule, *rows, *([""] if notes else []), *notes])


_LATEX = {ord(c): rf"\{c}" for c in "&%$#_{}"}
_LATEX |= str.maketrans({"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})


def latex(table: Table) -> str:
    r"""Render a table as a `table` environment with booktabs rules. The preamble needs ``\usepackage{booktabs}``."""
    lines = [" & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in (table.header, *table.rows)]
    body = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{table.title.translate(_LATEX)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {note.translate(_LATEX)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(body)


def html(table: Table) -> str:
    """Render a table as HTML for a notebook."""
    return html_table(table.title, table.rows, table.header, table.notes)


def to_pandas(table: Any) -> Any:
    """Convert records or an Arrow table to a pandas.DataFrame. Raises MissingError if pandas is not installed."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingError("pandas is not installed", hint="Run `pip install pandas`.") from error
    return table.to_pandas() if hasattr(table, "to_pandas") else pandas.DataFrame(table)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Render records as CSV. The header has the keys of all records; missing values and None are empty."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue().rstrip("\n")


def align(lines: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Pad cells to the widths of their columns and join them with two spaces; columns in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    formats = [f"{'>' if i in right else '<'}{width}" for i, width in enumerate(widths)]
    return ["  ".join(map(format, line, formats)).rstrip() for line in lines]


def duration(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds: `1:02:03`."""
    return str(timedelta(seconds=round(seconds)))


def plural(count: int, one: str, many: str) -> str:
    """Format a count with a noun in singular or plural: `1 caption is`, `1,204 captions are`."""
    return f"{count:,} {one if count == 1 else many}"
