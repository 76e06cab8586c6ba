"""Tables and lines that verbs print; reports of judgements render themselves."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relabel.core.errors import FailedRowsError
from relabel.core.tables import WIDTH, align, duration
from relabel_cli.streams import write_message

# A verb prints the results of one stage, and the others take seconds to import.
if TYPE_CHECKING:
    from relabel.datasets import FileStatus
    from relabel.stages.correlate import EvaluationResult
    from relabel.stages.dry_run import PlannedStep
    from relabel.stages.nearest import Hit
    from relabel.stages.verify import Findings


_LEAST_WIDTH = 40
"""Columns below which wrapped text is hard to read."""


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


def plain(table: Any) -> str:
    """Render a rich table as text, as wide as the terminal (or $COLUMNS)."""
    from rich.console import Console

    # The console picks boxes that the encoding of stdout has.
    out = io.TextIOWrapper(io.BytesIO(), encoding=sys.stdout.encoding or "utf-8", errors="backslashreplace")
    Console(file=out, width=terminal_width(), highlight=False, color_system=None).print(table)
    out.seek(0)
    return "\n".join(line.rstrip() for line in out.read().splitlines())


def terminal_width() -> int:
    """Return the columns of the terminal, or $COLUMNS; `tables.WIDTH` if standard output is no terminal."""
    return shutil.get_terminal_size((WIDTH, 40)).columns


def fit(lines: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Align cells; on a terminal that is too narrow, the last column is wrapped beside the others or below them."""
    rows = align(lines, right)
    # In a pipe, a row stays one line for other programs.
    width = shutil.get_terminal_size((sys.maxsize, 40)).columns
    if len(lines[0]) < 2 or max(map(len, rows)) <= width:
        return rows
    wrapper = textwrap.TextWrapper(width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    heads = fit([[*line[:-1]] for line in lines], right)
    if len(heads) > len(lines):
        # The other columns are too wide, too: the cells are joined, without columns.
        pairs = (("  ".join(line[:2]), *wrapper.wrap("  ".join(line[2:]))) for line in lines)
        return [text for pair in pairs for text in pair]
    indent = max(map(len, heads)) + 2
    if width - indent < _LEAST_WIDTH:
        return [text for head, line in zip(heads, lines, strict=True) for text in (head, *wrapper.wrap(line[-1]))]
    wrapper.initial_indent, wrapper.subsequent_indent = "", " " * indent
    wrapped = []
    for head, line in zip(heads, lines, strict=True):
        # The head stands in the place of the first line's indent.
        first, *more = wrapper.wrap(" " * indent + line[-1]) or [""]
        wrapped += [f"{head:{indent}}{first[indent:]}".rstrip(), *more]
    return wrapped


def fetch_table(files: Sequence[FileStatus]) -> str:
    """List the files of all datasets, each with its state and its path or source."""
    states = {
        "present": "present",
        "damaged": "damaged; fetch again",
        "local": "to fetch, no network needed",
        "remote": "to download",
        "missing": "missing",
    }
    # The name of a dataset stands at its first file only.
    names = [f.name if i == 0 or files[i - 1].name != f.name else "" for i, f in enumerate(files)]
    cells = [
        (name, f.file + (" (or)" if f.alternative else ""), size(f.bytes), states[f.state], f.where)
        for name, f in zip(names, files, strict=True)
    ]
    return "\n".join(fit(cells, right=[2]))


def size(count: float) -> str:
    """Format a number of bytes in decimal units."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def corpus_text(report: dict[str, Any]) -> str:
    """Describe a corpus, one fact per line."""
    from relabel.corpus.report import report_lines

    return "\n".join(fit(report_lines(report)))


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
    lines = fit([header, *cells, ("still", "", "", "", total_size, total_time, "")], right=[3, 4, 5])
    notes = []
    if timed:
        notes.append("~ is approximate. Times are typical of 2 cores of an AMD EPYC and leave out downloads.")
    if any(step.bytes is None or step.seconds is None for step in to_do):
        notes.append("Empty cells are unknown and not in the sums.")
    return "\n".join([*lines, *(textwrap.fill(note, terminal_width()) for note in notes)])


def report_outcome(result: EvaluationResult) -> None:
    """List written files and failed labels on stderr; exit with the code of the first failure."""
    import typer

    width = max(map(len, result.paths), default=0)
    for description, path in result.paths.items():
        write_message(f"{description:{width}}  {path}")
    for label, error in result.problems:
        state = "lacks rows" if isinstance(error, FailedRowsError) else "is left out"
        write_message(f"error: {label} {state}: {error}")
    if result.problems:
        raise typer.Exit(result.problems[0][1].exit_code)
