"""`relabel tune`."""

from __future__ import annotations

from typing import Literal

import typer

from relabel_cli.bridge import verb
from relabel_cli.common import Common


def tune(
    common: Common,
    source: Literal["cbow"] = typer.Argument(help="The source whose model is made: cbow (word vectors)."),
    on: str | None = typer.Option(None, "--on", help="Dataset whose corpus it is trained on; --dataset says the same."),
) -> None:
    """Make the model that a source takes."""
    from relabel import stages

    project = common.project({"ingest.dataset": on or common.dataset})
    manifest, built = stages.tune(project, source)
    common.show(manifest.facts, stages.status(built, manifest, project.word2vec))


app = verb(tune)
