"""`relabel init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel_cli.options import verb


def init(
    dataset: Annotated[str, typer.Option(help="Name of the corpus: coco, flickr30k or your own.")] = "coco",
    path: Annotated[
        Path | None, typer.Option(help="File or folder of your captions; those of `relabel fetch` if not given.")
    ] = None,
    dvc: Annotated[bool, typer.Option("--dvc", help="Write dvc.yaml as well, for `dvc repro`.")] = False,
    examples: Annotated[bool, typer.Option("--examples", help="Copy examples of training loops as well.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show tracebacks.")] = False,  # noqa: ARG001 (read by `verb`)
) -> None:
    """Write a commented params.yaml into this folder; with --dvc, also dvc.yaml."""
    from relabel.stages.ingest import FETCHED
    from relabel.stages.init import init as write_files
    from relabel_cli.streams import write_result

    written = write_files(Path(), dataset, path, dvc, examples)
    steps = ["`relabel run --dry-run` previews the work", "`relabel run`"]
    if dvc:
        steps = ["git init && dvc init    # unless done", "dvc repro"]
    if path is None and dataset not in FETCHED:
        steps.insert(0, "set ingest.path in params.yaml to your captions")
    names = ", ".join(f"{file}/" if file.is_dir() else str(file) for file in written)
    write_result(None, "\n".join([f"wrote {names}", "next:", *(f"  {step}" for step in steps)]), as_json=False)


app = verb(init)
