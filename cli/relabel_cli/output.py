"""Tables and lines that verbs print; reports of judgements render themselves."""

from __future__ import annotations

import io
import shutil
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.filesize import decimal as size

from relabel.core.errors import FailedRowsError
from relabel.core.tables import WIDTH, duration

# A verb prints the results of one stage, and the others take seconds to import.
if TYPE_CHECKING:
    from relabel.datasets import FileStatus
    from relabel.stages.correlate import EvaluationResult
    from relabel.stages.dry_run import PlannedStep
    from relabel.stages.nearest import Hit
    from relabel.stages.verify import Findings


def nearest_table(query: str, hits: Mapping[str, Sequence[Hit]]) -> str:
    """Lay out the nearest captions, one column per label; `=` marks captions of the same image."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"nearest to: {query}"), title_justify="left", show_lines=True)
    table.add_column("", justify="right")
    for label in hits:
        table.add_column(label, ratio=1, overflow="fold")
    # Labels may have found different numbers of captions.
    for rank in range(max(map(len, hits.values()), default=0)):
        cells = []
        for label_hits in hits.values():
            hit = label_hits[rank] if rank < len(label_hits) else None
            if hit is None:
                cells.append(Text(""))
            else:
                mark = "= " if hit.same_image else ""
                cells.append(Text(f"{mark}{hit.score:.3f}  {' '.join(hit.text.split())}  ({hit.caption_id})"))
        table.add_row(str(rank + 1), *cells)
    return plain(table) + "\n= a caption of the same image"


def plain(table: Any, width: int | None = None) -> str:
    """Render a rich table as text, by default as wide as the terminal (or $COLUMNS)."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width or terminal_width(), highlight=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def terminal_width() -> int:
    """Return the columns of the terminal, or $COLUMNS; `tables.WIDTH` if standard output is no terminal."""
    return shutil.get_terminal_size((WIDTH, 40)).columns


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """Align cells; the last column is wrapped beside the others if the terminal is too narrow."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for i in range(len(rows[0])):
        last = i == len(rows[0]) - 1
        table.add_column(justify="right" if i in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # In a pipe, a row stays one line for other programs.
    return plain(table, shutil.get_terminal_size((10_000, 40)).columns)


def fetch_table(files: Sequence[FileStatus]) -> str:
    """List the files of all datasets, each with its state and its path or source."""
    rows = [(f.name, f.file + (" (or)" if f.alternative else ""), size(f.bytes), f.state, f.where) for f in files]
    return columns(rows, right=[2])


def corpus_text(report: dict[str, Any]) -> str:
    """Describe a corpus, one fact per line."""
    from relabel.corpus.report import report_lines

    return columns(report_lines(report))


def neighbours_text(facts: Mapping[str, Any]) -> str:
    """Describe a table of neighbours and its recall."""
    recall = facts["recall"]
    quality = "exact"
    if recall is not None:
        quality = f"recall@{recall['at']} {recall['value']:.4f} against exact, on {recall['queries']:,} queries"
    return f"  {facts['width']:,} neighbours of each of {facts['queries']:,} {facts['of']}; {quality}"


def verify_text(findings: Findings) -> str:
    """List the problems, one file per line, then the amount that was read."""
    lines = [*map(str, findings.problems), *findings.unfinished]
    read = f"{findings.artefacts:,} artefacts and {findings.fetched:,} fetched files"
    read += f": {findings.files:,} files read, {size(findings.bytes)}"
    state = f"{len(findings.problems):,} problems" if findings.problems else "all as written"
    return "\n".join([*lines, f"{read}; {state}"])


def plan_text(steps: Sequence[PlannedStep]) -> str:
    """List the steps of a run with their state, and the bytes and time of those that are still to be done."""
    cells = [
        (
            step.stage,
            step.name,
            step.state,
            "" if step.rows is None else f"{step.rows:,}",
            "" if step.bytes is None else f"{'' if step.state == 'done' else '~'}{size(step.bytes)}",
            "" if step.seconds is None else f"~{duration(step.seconds)}",
            step.out,
        )
        for step in steps
    ]
    # Unknown sizes and times count as 0: the totals are lower bounds.
    to_do = [step for step in steps if step.state != "done"]
    total_size = ("~" if to_do else "") + size(sum(step.bytes or 0 for step in to_do))
    timed = [step.seconds for step in to_do if step.seconds is not None]
    total_time = ("~" if timed else "") + duration(sum(timed))
    header = ("stage", "name", "state", "rows", "size", "time", "where")
    table = columns([header, *cells, ("still", "", "", "", total_size, total_time, "")], right=[3, 4, 5])
    return f"{table}\n~ is approximate, of 2 cores of an AMD EPYC without downloads; empty cells are unknown"


def report_outcome(result: EvaluationResult) -> None:
    """List written files and failed labels on stderr; exit with the code of the first failure."""
    width = max(map(len, result.paths), default=0)
    for description, path in result.paths.items():
        typer.echo(f"{description:{width}}  {path}", err=True)
    for label, error in result.problems:
        state = "lacks rows" if isinstance(error, FailedRowsError) else "is left out"
        typer.echo(f"error: {label} {state}: {error}", err=True)
    if result.problems:
        raise typer.Exit(result.problems[0][1].exit_code)
