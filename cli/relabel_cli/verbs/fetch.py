"""`relabel fetch`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.filesize import decimal as size

from relabel import datasets
from relabel.core.tables import align
from relabel_cli.options import OUTPUT, Mirror, SharedOptions, verb


def fetch(
    common: SharedOptions,
    names: Annotated[list[str] | None, typer.Argument(help="Datasets or assets.")] = None,
    mirror: Mirror = None,
) -> None:
    """Download datasets and assets, and verify known sha256 sums; without a name, list all files."""
    if not names:
        files = datasets.status(common.data, mirror)
        rows = [
            (f.name, f.file + (" (or)" if f.alternative else ""), size(f.bytes) if f.bytes else "?", f.state, f.where)
            for f in files
        ]
        common.show([asdict(f) for f in files], "\n".join(align(rows, right=[2])))
        return
    progress = common.runtime().progress
    for name in names:
        paths = datasets.fetch(name, common.data, mirror, progress)
        manifest = datasets.load_manifest(name)
        facts = {"name": name, "files": [str(path) for path in paths], "licence": manifest.licence}
        common.show(facts, "\n".join([f"{name}: {manifest.licence}", *(f"  {path}" for path in paths)]))


app = verb(fetch, ("data", *OUTPUT))
