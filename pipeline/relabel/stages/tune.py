"""tune: the models that sources use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.sources.base import SourceParams
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import log_status, model_guard
from relabel.stages.project import Project
from relabel.store.manifest import MANIFEST, Manifest, read_manifest


def tune_cbow(project: Project) -> tuple[Manifest, bool]:
    """Train word vectors on the corpus, as `relabel.sources.cbow.tune.tune_cbow`."""
    from relabel.sources.cbow import tune

    # Labels find these vectors by the dataset, so they have no --out.
    params, guard = project.config.tune.cbow, model_guard(project, "cbow", "Edit params.yaml")
    return tune.tune_cbow(params, project.corpus, project.word2vec, project.runtime, guard)


def tune_bert_sts(project: Project, out: Path | None = None) -> tuple[Manifest, bool]:
    """Train a cross-encoder on STS-B, as `relabel.sources.bert_sts.tune.tune_bert_sts`."""
    from relabel.sources.bert_sts import tune

    params, guard = project.config.tune.bert_sts, model_guard(project, "bert_sts")
    return tune.tune_bert_sts(params, out or project.cross_encoder, project.runtime, guard)


def tune_sbert(project: Project, out: Path) -> tuple[Manifest, bool]:
    """Fine-tune a sentence encoder on human scores, as `relabel.sources.sbert.tune.tune_sbert`."""
    from relabel.sources.sbert import tune

    if project.namespace != "coco":
        raise UsageError(f"human scores exist for COCO's captions, not for {project.config.ingest.dataset}'s")
    params, guard = project.config.tune.sbert, model_guard(project, "sbert")
    return tune.tune_sbert(params, project.corpus, out, project.runtime, guard)


def needs_word2vec(params: SourceParams) -> bool:
    """Return whether a label uses the word vectors of `tune_cbow`."""
    return "cbow" in params.tuned_models()


def check_model(project: Project, name: str) -> None:
    """Check that a model of `SourceParams.tuned_models` that learns from captions was trained on the current ones."""
    if name != "cbow" or word2vec_is_current(project):
        return
    dataset, where = project.training_dataset, str(project.word2vec)
    train = f"`relabel tune cbow --dataset {dataset}`"
    if not (project.word2vec / MANIFEST).exists():
        todo = f"Train them with {train}, or set `vectors` to glove or to a file."
        raise MissingError(f"no word vectors of {dataset}", where=where, todo=todo)
    message = f"word vectors trained on other captions than those of {dataset}, or damaged"
    raise CheckError(message, where=where, todo=f"Train them again with {train}.")


def word2vec_is_current(project: Project) -> bool:
    """Return whether there are word vectors that were trained on the current captions of the dataset."""
    try:
        trained = read_manifest(project.word2vec, "word_vectors")
        corpus = read_manifest((project.parent or project).layout.corpus, "corpus")
    except (MissingError, CheckError):
        return False
    return bool(trained.inputs.get("corpus") == corpus.facts["digest"])


def ensure_model(project: Project, name: str) -> None:
    """Train a model of `SourceParams.tuned_models`, unless it is up to date.

    A project whose captions are a subset of another project's uses the models of its parent, so that a label, and a
    fuse of it, is the same in both.
    """
    project = project.parent or project
    tune, folder = TUNED[name]
    log_status(project, tune(project), folder(project))


def _tune_cbow(project: Project) -> tuple[Manifest, bool]:
    """Train word vectors, on a corpus that is ingested first if it does not exist."""
    if not (project.layout.corpus / MANIFEST).exists():
        fetch_and_ingest(project)
    return tune_cbow(project)


TUNED: dict[str, tuple[Callable[[Project], tuple[Manifest, bool]], Callable[[Project], Path]]] = {
    "cbow": (_tune_cbow, lambda project: project.word2vec),
    "bert_sts": (tune_bert_sts, lambda project: project.cross_encoder),
}
"""Name of a model in `SourceParams.tuned_models` to the function that trains it and to its folder."""
