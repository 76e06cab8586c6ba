"""`relabel verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as size

from relabel.stages.verify import verify as read_back
from relabel_cli.options import OUTPUT, SharedOptions, verb


def verify(
    common: SharedOptions,
    paths: Annotated[list[Path] | None, typer.Argument(help="Folders. [default: those of labels and data]")] = None,
) -> None:
    """Compare all files with their manifests, and list every file that differs."""
    # With neither folder, the error names that of labels.
    everything = [common.labels / common.dataset] if common.dataset else [common.labels, common.data]
    folders = paths or [folder for folder in everything if folder.is_dir()] or everything[:1]
    findings = read_back(folders, common.runtime().progress)
    read = f"{findings.artefacts:,} artefacts and {findings.fetched:,} fetched files"
    read += f": {findings.files:,} files read, {size(findings.bytes)}"
    state = f"{len(findings.problems):,} problems" if findings.problems else "no differences"
    common.show(asdict(findings), "\n".join([*map(str, findings.problems), f"{read}; {state}"]))
    if findings.problems:
        raise typer.Exit(4)


app = verb(verify, ("data", "labels", "dataset", *OUTPUT))
