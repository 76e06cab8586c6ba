"""`relabel pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import verb


def pull(
    common: GlobalOptions,
    url: Annotated[str, typer.Argument(help="Artefact, or folder of artefacts: any file system of fsspec.")],
    folder: Annotated[Path, typer.Argument(help="Target.")],
) -> None:
    """Copy artefacts from an object store or another remote file system, and verify them."""
    from relabel.stages.transfer import pull as copies

    for transfer in copies(url, folder, common.runtime()):
        common.show(transfer.summary(), transfer.describe())


app = verb(pull)
