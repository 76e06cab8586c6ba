"""tune: the model that a source takes."""

from __future__ import annotations

from pathlib import Path

from relabel.errors import UsageError
from relabel.sources.base import SourceParams
from relabel.stages.captions import fetch, ingest
from relabel.stages.job import note
from relabel.stages.project import Project
from relabel.store.manifest import MANIFEST, Manifest


def tune_cbow(project: Project) -> tuple[Manifest, bool]:
    """Train word vectors on the corpus. See relabel.tuning.cbow."""
    from relabel.tuning import cbow

    return cbow.tune_cbow(project.config.tune.cbow, project.corpus, project.word2vec, project.runtime)


def tune_bert_sts(project: Project, out: Path | None = None) -> tuple[Manifest, bool]:
    """Tune a cross-encoder on STS-B. See relabel.tuning.bert_sts."""
    from relabel.tuning import bert_sts

    return bert_sts.tune_bert_sts(project.config.tune.bert_sts, out or project.cross_encoder, project.runtime)


def tune_sbert(project: Project, out: Path) -> tuple[Manifest, bool]:
    """Fine-tune a sentence encoder on human scores. See relabel.tuning.sbert.

    Raises
    ------
    UsageError
        If the corpus is not COCO.
    """
    from relabel.tuning import sbert

    if project.config.ingest.prefix != "coco":
        raise UsageError(f"people judged COCO's captions, not {project.config.ingest.dataset}'s")
    sbert.check_folder(out)
    return sbert.tune_sbert(project.config.tune.sbert, project.corpus, out, project.runtime)


def needs_cross_encoder(params: SourceParams) -> bool:
    """Whether a label takes the cross-encoder that is tuned here."""
    return params.source == "bert_sts" and getattr(params, "model", "") == "tuned"


def needs_word2vec(params: SourceParams) -> bool:
    """Whether a label takes the word vectors that are trained here."""
    return params.source == "cbow" and getattr(params, "vectors", "") == "word2vec"


def models(project: Project, label: str) -> None:
    """Make the model that a label takes, if it is one that is made here.

    Captions that are some of another project's take that one's: a label, and a fuse of it, is the same in both.
    """
    project = project.whole or project
    if needs_word2vec(project.config.params(label)):
        if not (project.layout.corpus / MANIFEST).exists():
            fetch(project)
            note(project, ingest(project), project.layout.corpus)
        note(project, tune_cbow(project), project.word2vec)
    if needs_cross_encoder(project.config.params(label)):
        note(project, tune_bert_sts(project), project.cross_encoder)
