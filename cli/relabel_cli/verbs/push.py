"""`relabel push`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import verb


def push(
    common: GlobalOptions,
    folder: Annotated[Path, typer.Argument(help="Artefact, or folder of artefacts.")],
    url: Annotated[str, typer.Argument(help="Target, as in s3://bucket/labels: any file system of fsspec.")],
) -> None:
    """Copy artefacts to an object store or another remote file system."""
    from relabel.stages.transfer import push as copies

    for transfer in copies(folder, url, common.runtime()):
        common.show(transfer.summary(), transfer.describe())


app = verb(push)
