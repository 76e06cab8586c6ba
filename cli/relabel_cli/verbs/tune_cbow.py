"""`relabel tune cbow`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from relabel.tuning.cbow import TuneCbowParams
from relabel_cli.bridge import Overrides, verb
from relabel_cli.common import Common


def cbow(
    options: Annotated[dict[str, Any], Overrides(TuneCbowParams, "tune.cbow")],
    common: Common,
    on: Annotated[
        str | None, typer.Option("--on", help="Dataset whose corpus it is trained on; --dataset says the same.")
    ] = None,
) -> None:
    """Train word vectors on a corpus, for labels of cbow with `vectors: word2vec`."""
    from relabel import stages

    project = common.project(options | {"ingest.dataset": on or common.dataset})
    manifest, built = stages.tune_cbow(project)
    common.show(manifest.facts, stages.status(built, manifest, project.word2vec))


app = verb(cbow)
