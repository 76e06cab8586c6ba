"""`relabel fetch`."""

from __future__ import annotations

from typing import Annotated

import typer

from relabel.core.errors import UsageError
from relabel_cli.options import verb
from relabel_cli.shared_options import OUTPUT, Mirror, SharedOptions


def fetch(
    common: SharedOptions,
    names: Annotated[list[str] | None, typer.Argument(help="Datasets or assets; see --list.")] = None,
    mirror: Mirror = None,
    show_list: Annotated[bool, typer.Option("--list", help="List all files with their state and source.")] = False,
) -> None:
    """Download datasets and assets, verified against their sha256."""
    from relabel import datasets
    from relabel_cli.output import fetch_table

    if show_list:
        rows = datasets.status(common.data, mirror)
        common.show([r.__dict__ for r in rows], fetch_table(rows))
        return
    if not names:
        todo = f"Name one of {', '.join(datasets.names())}, or give --list."
        raise UsageError("no dataset or asset is named", todo=todo)
    progress = common.runtime().progress
    for name in names:
        files = datasets.fetch(name, common.data, mirror, progress)
        manifest = datasets.load_manifest(name)
        facts = {"name": name, "files": [str(f) for f in files], "licence": manifest.licence}
        common.show(facts, "\n".join([f"{name}: {manifest.licence}", *(f"  {f}" for f in files)]))


app = verb(fetch, ("data", *OUTPUT))
