"""Tables on stdout that are not judgements: what `nearest` and `fetch --list` found."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from relabel.correlate import Outcome
from relabel.datasets import FileStatus
from relabel.dry_run import Step
from relabel.errors import FailedRowsError
from relabel.nearest import Hit
from relabel.verify import Findings


def nearest_table(asked: str, hits: Mapping[str, Sequence[Hit]]) -> str:
    """Lay out each source's nearest captions side by side, one column a label; `=` marks captions of the same image."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"nearest to: {asked}"), title_justify="left", show_lines=True)
    table.add_column("", justify="right")
    for label in hits:
        table.add_column(label, ratio=1, overflow="fold")
    for place in range(max(map(len, hits.values()), default=0)):
        cells = []
        for found in hits.values():
            hit = found[place] if place < len(found) else None
            if hit is None:
                cells.append(Text(""))
            else:
                mark = "= " if hit.same_image else ""
                cells.append(Text(f"{mark}{hit.score:.3f}  {' '.join(hit.text.split())}  ({hit.caption_id})"))
        table.add_row(str(place + 1), *cells)
    return plain(table) + "\n= a caption of the same image"


def plain(table: Any) -> str:
    """Render a rich table as text, as wide as the terminal (or $COLUMNS)."""
    import shutil

    from rich.console import Console

    out = io.StringIO()
    width = shutil.get_terminal_size((120, 40)).columns
    Console(file=out, width=width, highlight=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def fetch_table(rows: Sequence[FileStatus]) -> str:
    """List every file of every dataset: what is here, and where the rest can be had."""
    said = {
        "present": "here",
        "damaged": "damaged; fetch again",
        "local": "to fetch, no network needed",
        "remote": "to download",
        "missing": "missing",
    }
    names = [r.name if i == 0 or rows[i - 1].name != r.name else "" for i, r in enumerate(rows)]
    cells = [
        (name, r.file + (" (or)" if r.alternative else ""), size(r.bytes), said[r.state], r.where)
        for name, r in zip(names, rows, strict=True)
    ]
    widths = [max(len(c[i]) for c in cells) for i in range(4)]
    lines = [f"{c[0]:{widths[0]}}  {c[1]:{widths[1]}}  {c[2]:>{widths[2]}}  {c[3]:{widths[3]}}  {c[4]}" for c in cells]
    return "\n".join(lines)


def size(count: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def corpus_text(report: dict[str, Any]) -> str:
    """Say what a corpus holds, a fact a line."""
    from relabel.corpus_report import report_lines

    lines = report_lines(report)
    width = max(len(title) for title, _ in lines)
    return "\n".join(f"{title:{width}}  {line}" for title, line in lines)


def neighbours_text(facts: Mapping[str, Any]) -> str:
    """Say what a table of neighbours holds and how good it is."""
    recall = facts["recall"]
    good = "exact"
    if recall is not None:
        good = f"recall@{recall['at']} {recall['value']:.4f} against exact, on {recall['queries']:,} queries"
    return f"  {facts['width']:,} neighbours of each of {facts['queries']:,} {facts['of']}; {good}"


def verify_text(findings: Findings) -> str:
    """Say what is wrong, a line a file; then how much was read."""
    lines = [*map(str, findings.problems), *findings.unfinished]
    read = f"{findings.artefacts:,} artefacts and {findings.fetched:,} fetched files"
    read += f": {findings.files:,} files read, {size(findings.bytes)}"
    state = f"{len(findings.problems):,} problems" if findings.problems else "all as written"
    return "\n".join([*lines, f"{read}; {state}"])


def plan_text(steps: Sequence[Step]) -> str:
    """List the stages of a run: what is done, and what the rest will take."""
    cells = [
        (
            step.stage,
            step.name,
            step.state,
            "" if step.rows is None else f"{step.rows:,}",
            "" if step.bytes is None else f"{'' if step.exact else '~'}{step.bytes:,}",
            duration(step.seconds) if step.seconds else "",
            step.out,
        )
        for step in steps
    ]
    to_do = [step for step in steps if step.state != "done"]
    size, seconds = sum(step.bytes or 0 for step in to_do), sum(step.seconds or 0 for step in to_do)
    rows = [("stage", "name", "state", "rows", "bytes", "time", "where"), *cells]
    rows.append(("still", "", "", "", f"{size:,}", duration(seconds), ""))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = [
        "  ".join((f"{row[i]:>{widths[i]}}" if i in (3, 4, 5) else f"{row[i]:{widths[i]}}") for i in range(6))
        + f"  {row[6]}"
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def duration(seconds: float) -> str:
    """Write a time for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def finish(outcome: Outcome) -> None:
    """Say on stderr where everything lies and which labels are lacking; the exit code is that of the first of these."""
    import typer

    width = max(map(len, outcome.places), default=0)
    for what, place in outcome.places.items():
        typer.echo(f"{what:{width}}  {place}", err=True)
    for label, error in outcome.problems:
        state = "lacks rows" if isinstance(error, FailedRowsError) else "is left out"
        typer.echo(f"error: {label} {state}: {error}", err=True)
    if outcome.problems:
        raise typer.Exit(outcome.problems[0][1].exit_code)
