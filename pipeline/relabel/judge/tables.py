"""One table model and its renderers: plain text for a terminal or a pipe, Markdown, LaTeX (booktabs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Style = Literal["text", "csv", "md", "latex"]


@dataclass(frozen=True)
class Table:
    """A table as text.

    Attributes
    ----------
    title : str
        Says what is measured, on what, in which unit.
    header : tuple of str
        The first column is flush left, all others flush right.
    rows : tuple of tuple of str
        Cells as they are shown.
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

    lines = (table.header, *table.rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    aligned = [_aligned(line, widths) for line in lines]
    rule = "-" * max(map(len, aligned))
    wrapper = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    notes = [wrapper.fill(note) for note in table.notes]
    return "\n".join([table.title, "", aligned[0], rule, *aligned[1:], *([""] if notes else []), *notes])


def markdown(table: Table) -> str:
    """Render GitHub's Markdown: a heading, a table, notes as a list."""
    lines = [f"| {' | '.join(_cell(c) for c in line)} |" for line in (table.header, *table.rows)]
    rule = "|" + "|".join(["---", *["---:"] * (len(table.header) - 1)]) + "|"
    notes = [f"- {note}" for note in table.notes]
    return "\n".join([f"### {table.title}", "", lines[0], rule, *lines[1:], *([""] if notes else []), *notes])


def latex(table: Table) -> str:
    r"""Render a `table` environment with booktabs rules; the preamble needs ``\usepackage{booktabs}``."""
    lines = [" & ".join(_escape(c) for c in line) + r" \\" for line in (table.header, *table.rows)]
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


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    first, rest = line[0].ljust(widths[0]), [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest]).rstrip()


def _cell(cell: str) -> str:
    return cell.replace("|", r"\|") or " "


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {c: rf"\{c}" for c in "&%$#_{}"}


def _escape(cell: str) -> str:
    return "".join(_LATEX.get(c, c) for c in cell)
