"""tune: the model that a source takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.sources.base import SourceParams
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import log_status
from relabel.stages.project import Project
from relabel.stages.variants import model_guard
from relabel.store.manifest import MANIFEST, Manifest, read_manifest


def tune_cbow(project: Project) -> tuple[Manifest, bool]:
    """Train word vectors on the corpus. See relabel.sources.cbow.tune."""
    from relabel.sources.cbow import tune

    params, guard = project.config.tune.cbow, model_guard(project, "cbow", "Edit params.yaml")
    return tune.tune_cbow(params, project.corpus, project.word2vec, project.runtime, guard)


def tune_bert_sts(project: Project, out: Path | None = None) -> tuple[Manifest, bool]:
    """Tune a cross-encoder on STS-B. See relabel.sources.bert_sts.tune."""
    from relabel.sources.bert_sts import tune

    params, guard = project.config.tune.bert_sts, model_guard(project, "bert_sts")
    return tune.tune_bert_sts(params, out or project.cross_encoder, project.runtime, guard)


def tune_sbert(project: Project, out: Path) -> tuple[Manifest, bool]:
    """Fine-tune a sentence encoder on human scores. See relabel.sources.sbert.tune.

    Raises
    ------
    UsageError
        If the corpus is not COCO.
    """
    from relabel.sources.sbert import tune

    if project.namespace != "coco":
        raise UsageError(f"people judged COCO's captions, not {project.config.ingest.dataset}'s")
    params, guard = project.config.tune.sbert, model_guard(project, "sbert")
    return tune.tune_sbert(params, project.corpus, out, project.runtime, guard)


def needs_word2vec(params: SourceParams) -> bool:
    """Whether a label takes the word vectors that are trained here."""
    return "cbow" in params.tuned_models()


def check_word2vec(project: Project, label: str) -> None:
    """Make sure that the word vectors of a label, if they are trained here, were trained on the dataset as it is.

    Raises
    ------
    MissingError
        If there are none, with the command that trains them.
    CheckError
        If they were trained on other captions.
    """
    if not needs_word2vec(project.config.params(label)) or word2vec_is_current(project):
        return
    name, where, command = (
        project.training_dataset,
        str(project.word2vec),
        f"`relabel tune cbow --dataset {project.training_dataset}`",
    )
    if not (project.word2vec / MANIFEST).exists():
        todo = f"Train them with {command}, or set `vectors` to glove or to a file."
        raise MissingError(f"no word vectors of {name} here", where=where, todo=todo)
    what = f"word vectors trained on other captions than those of {name}, or damaged"
    raise CheckError(what, where=where, todo=f"Train them again with {command}.")


def word2vec_is_current(project: Project) -> bool:
    """Return whether there are word vectors, trained on the captions of the dataset as they are."""
    try:
        trained = read_manifest(project.word2vec, "word_vectors")
        corpus = read_manifest((project.parent or project).layout.corpus, "corpus")
    except (MissingError, CheckError):
        return False
    return bool(trained.inputs.get("corpus") == corpus.facts["digest"])


def ensure_models(project: Project, label: str) -> None:
    """Make the model that a label takes, if it is one that is made here.

    Captions that are some of another project's take that one's: a label, and a fuse of it, is the same in both.
    """
    project = project.parent or project
    for name in project.config.params(label).tuned_models():
        tune, folder = _TUNED[name]
        log_status(project, tune(project), folder(project))


def _tune_cbow(project: Project) -> tuple[Manifest, bool]:
    """Train word vectors, on a corpus that is ingested first if it is not there."""
    if not (project.layout.corpus / MANIFEST).exists():
        fetch_and_ingest(project)
    return tune_cbow(project)


_TUNED: dict[str, tuple[Callable[[Project], tuple[Manifest, bool]], Callable[[Project], Path]]] = {
    "cbow": (_tune_cbow, lambda project: project.word2vec),
    "bert_sts": (tune_bert_sts, lambda project: project.cross_encoder),
}
"""By name: a stage that makes a model labels take, and the model's folder."""
