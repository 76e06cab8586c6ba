"""`relabel fetch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.filesize import decimal as size

from relabel import datasets
from relabel.core.tables import align
from relabel.datasets import FileStatus
from relabel_cli.options import verb
from relabel_cli.shared_options import OUTPUT, Mirror, SharedOptions


def fetch(
    common: SharedOptions,
    names: Annotated[list[str] | None, typer.Argument(help="Datasets or assets.")] = None,
    mirror: Mirror = None,
) -> None:
    """Download datasets and assets, verified against their sha256; without a name, list all files."""
    if not names:
        rows = datasets.status(common.data, mirror)
        common.show([r.__dict__ for r in rows], fetch_table(rows))
        return
    progress = common.runtime().progress
    for name in names:
        files = datasets.fetch(name, common.data, mirror, progress)
        manifest = datasets.load_manifest(name)
        facts = {"name": name, "files": [str(f) for f in files], "licence": manifest.licence}
        common.show(facts, "\n".join([f"{name}: {manifest.licence}", *(f"  {f}" for f in files)]))


def fetch_table(files: Sequence[FileStatus]) -> str:
    """List the files of all datasets, each with its state and its path or source."""
    rows = [(f.name, f.file + (" (or)" if f.alternative else ""), size(f.bytes), f.state, f.where) for f in files]
    return "\n".join(align(rows, right=[2]))


app = verb(fetch, ("data", *OUTPUT))
