"""`relabel ingest`."""

from __future__ import annotations

from relabel.corpus.params import IngestParams
from relabel_cli.options import Overrides, verb
from relabel_cli.shared_options import READ, SharedOptions

NAMES = "path url format namespace in_split tokenizer image_id_column text_column columns image_per_row ids"


def ingest(common: SharedOptions) -> None:
    """Convert captions of any common format into a corpus."""
    from relabel import stages
    from relabel_cli.output import corpus_text

    project = common.project()
    manifest, built = stages.ingest(project).run()
    status = stages.status_line(built, manifest, project.layout.corpus)
    common.show(manifest.facts, f"{corpus_text(manifest.facts['report'])}\n{status}")


app = verb(ingest, (*READ, "replace"), Overrides(IngestParams, NAMES, "ingest"))
