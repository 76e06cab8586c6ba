"""tune: the models that sources use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.sources.base import SourceParams
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import differing_model, log_status, model_guard
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
    """Check that a model of `SourceParams.tuned_models` was trained on current captions under current parameters."""
    project = project.parent or project
    folder, dataset = TUNED[name][1](project), project.training_dataset
    train = f"`relabel tune cbow --dataset {dataset}`" if name == "cbow" else f"`relabel tune {name}`"
    if not (folder / MANIFEST).exists():
        # Where a source lacks its model, it says so itself; it does not know the dataset of word vectors.
        if name != "cbow":
            return
        todo = f"Train them with {train}, or set `vectors` to glove or to a file."
        raise MissingError(f"no word vectors of {dataset}", where=str(folder), todo=todo)
    model, cause = read_manifest(folder), ""
    if text := differing_model(model, getattr(project.config.tune, name).model_dump(mode="json")):
        cause = f"under other parameters: {text}"
    if name == "cbow":
        corpus = read_manifest(project.layout.corpus, "corpus")
        if model.inputs.get("corpus") != corpus.facts["digest"]:
            cause = f"on other captions than those of {dataset}"
    if cause:
        raise CheckError(f"{model.name} was trained {cause}", where=str(folder), todo=f"Train again with {train}.")


def word2vec_is_current(project: Project) -> bool:
    """Return whether there are word vectors of the current captions and parameters."""
    try:
        check_model(project, "cbow")
    except (MissingError, CheckError):
        return False
    return True


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
