"""tune: the model that a source takes."""

from __future__ import annotations

from typing import Literal

from relabel.sources.base import SourceParams
from relabel.stages.captions import fetch, ingest
from relabel.stages.job import note
from relabel.stages.project import Project
from relabel.store.manifest import MANIFEST, Manifest


def tune(project: Project, source: Literal["cbow"]) -> tuple[Manifest, bool]:
    """Make the model that a source takes: for cbow, word vectors trained on the corpus. See relabel.tuning."""
    from relabel.tuning.cbow import tune_cbow

    make = {"cbow": lambda: tune_cbow(project.config.tune.cbow, project.corpus, project.word2vec, project.runtime)}
    return make[source]()


def needs_word2vec(params: SourceParams) -> bool:
    """Whether a label takes the word vectors that are trained here."""
    return params.source == "cbow" and getattr(params, "vectors", "") == "word2vec"


def models(project: Project, label: str) -> None:
    """Make the model that a label takes, if it is one that is made here."""
    if needs_word2vec(project.config.sources[label]):
        if not (project.layout.corpus / MANIFEST).exists():
            fetch(project)
            note(project, ingest(project), project.layout.corpus)
        note(project, tune(project, "cbow"), project.word2vec)
