"""`relabel tune`: one file a source."""

from __future__ import annotations

from relabel_cli.bridge import group
from relabel_cli.verbs import tune_bert_sts, tune_cbow, tune_fuse, tune_sbert


def tune() -> None:
    """Make the model that a source takes."""


app = group(tune, cbow=tune_cbow.app, bert_sts=tune_bert_sts.app, fuse=tune_fuse.app, sbert=tune_sbert.app)
