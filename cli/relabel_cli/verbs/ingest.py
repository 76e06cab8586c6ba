"""`relabel ingest`."""

from __future__ import annotations

from relabel import stages
from relabel.core.tables import align
from relabel.corpus.ingest import report_lines
from relabel.corpus.params import IngestParams
from relabel_cli.options import READ, SharedOptions, verb


def ingest(common: SharedOptions) -> None:
    """Convert captions of any common format into a corpus."""
    common.run(stages.ingestion(common.session()), lambda metadata: "\n".join(align(report_lines(metadata["report"]))))


app = verb(ingest, (*READ, "memory", "rebuild"), IngestParams, "ingest")
