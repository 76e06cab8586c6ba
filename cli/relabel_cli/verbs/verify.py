"""`relabel verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relabel_cli.options import verb
from relabel_cli.shared_options import OUTPUT, SharedOptions


def verify(
    common: SharedOptions,
    paths: Annotated[list[Path] | None, typer.Argument(help="Folders. [default: those of labels and data]")] = None,
) -> None:
    """Read everything back against its manifest; name every file that differs."""
    from relabel.stages.verify import verify as read_back
    from relabel_cli.output import verify_text

    # With neither folder, the error names that of labels.
    folders = paths or [folder for folder in (common.labels, common.data) if folder.is_dir()] or [common.labels]
    findings = read_back(folders, common.runtime().progress)
    common.show(asdict(findings), verify_text(findings))
    if findings.problems:
        raise typer.Exit(4)


app = verb(verify, ("data", "labels", *OUTPUT))
