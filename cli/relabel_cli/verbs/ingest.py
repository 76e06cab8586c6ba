"""`relabel ingest`."""

from __future__ import annotations

from typing import Annotated, Any

from relabel.corpus.params import IngestParams
from relabel_cli.global_options import GlobalOptions
from relabel_cli.options import Overrides, verb


def ingest(
    options: Annotated[dict[str, Any], Overrides(IngestParams, "ingest", without=("dataset",))], common: GlobalOptions
) -> None:
    """Convert captions of any common format into a corpus."""
    from relabel import stages
    from relabel_cli.output import corpus_text

    project = common.project(options)
    manifest, built = stages.ingest(project)
    status = stages.status_line(built, manifest, project.layout.corpus)
    common.show(manifest.facts, f"{corpus_text(manifest.facts['report'])}\n{status}")


app = verb(ingest)
