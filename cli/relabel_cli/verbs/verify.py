"""`relabel verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as size

from relabel.stages.verify import Findings
from relabel.stages.verify import verify as read_back
from relabel_cli.options import verb
from relabel_cli.shared_options import OUTPUT, SharedOptions


def verify(
    common: SharedOptions,
    paths: Annotated[list[Path] | None, typer.Argument(help="Folders. [default: those of labels and data]")] = None,
) -> None:
    """Read everything back against its manifest; name every file that differs."""
    # With neither folder, the error names that of labels.
    folders = paths or [folder for folder in (common.labels, common.data) if folder.is_dir()] or [common.labels]
    findings = read_back(folders, common.runtime().progress)
    common.show(asdict(findings), verify_text(findings))
    if findings.problems:
        raise typer.Exit(4)


def verify_text(findings: Findings) -> str:
    """List the problems, one file per line, then the amount that was read."""
    lines = [*map(str, findings.problems), *findings.unfinished]
    read = f"{findings.artefacts:,} artefacts and {findings.fetched:,} fetched files"
    read += f": {findings.files:,} files read, {size(findings.bytes)}"
    state = f"{len(findings.problems):,} problems" if findings.problems else "all as written"
    return "\n".join([*lines, f"{read}; {state}"])


app = verb(verify, ("data", "labels", *OUTPUT))
