"""`relabel init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relabel.corpus.params import dataset_name
from relabel.stages.init import init as write_files
from relabel_cli.options import SharedOptions, verb

DATASET = "coco, flickr30k, or a name for your captions. [default: that of --path, or coco]"


def init(
    common: SharedOptions,
    dataset: Annotated[str | None, typer.Option(help=DATASET)] = None,
    path: Annotated[Path | None, typer.Option(help="Your captions. [default: those of `relabel fetch`]")] = None,
    dvc: Annotated[bool, typer.Option("--dvc", help="Write dvc.yaml as well, for `dvc repro`.")] = False,
    examples: Annotated[bool, typer.Option("--examples", help="Copy examples of training loops as well.")] = False,
) -> None:
    """Write a commented params.yaml into this folder; with --dvc, also dvc.yaml."""
    name = dataset or (dataset_name(str(path)) if path else "coco")
    written = write_files(Path(), name, path, dvc, examples)
    steps = ["git init && dvc init", "dvc repro"] if dvc else ["relabel run --dry-run", "relabel run"]
    common.show(None, "\n".join([f"wrote {', '.join(map(str, written))}; next:", *(f"  {step}" for step in steps)]))


app = verb(init, ())
