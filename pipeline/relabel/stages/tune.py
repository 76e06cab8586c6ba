"""tune: the models that sources use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relabel.core.errors import MissingError, UsageError
from relabel.sources.base import GATE, INT8
from relabel.sources.bert_sts import BertSts
from relabel.sources.sbert import Sbert
from relabel.sources.words.params import TUNED
from relabel.stages.ingest import fetch_and_ingest
from relabel.stages.job import Job, section_values
from relabel.stages.project import Project
from relabel.store.artefact import Recipe, check_place
from relabel.store.manifest import MANIFEST, Spec


def tune_word2vec(project: Project) -> Job:
    """Prepare to train word vectors on the corpus. Labels find them by the dataset, so they have no --out."""
    from relabel.sources.cbow.tune import tune_word2vec

    return model_job(project, "word2vec", tune_word2vec(project.config.tune.word2vec, project.corpus, project.runtime))


def tune_bert_sts(project: Project, out: Path | None = None) -> Job:
    """Prepare to train a cross-encoder on STS-B, which is fetched if it is missing."""
    from relabel.datasets import fetch
    from relabel.sources.bert_sts.tune import find_stsb_files

    # A folder that is no place for a model is refused before the download.
    job = cross_encoder(project, out)
    try:
        find_stsb_files(project.runtime)
    except MissingError:
        fetch("stsb", project.runtime.data, None, project.runtime.progress)
    return job


def cross_encoder(project: Project, out: Path | None = None) -> Job:
    """Return the job of `tune_bert_sts`, whose data may be absent."""
    from relabel.sources.bert_sts.tune import tune_bert_sts

    return model_job(project, "bert_sts", tune_bert_sts(project.config.tune.bert_sts, project.runtime), out)


def tune_sbert(project: Project, out: Path | None = None) -> Job:
    """Prepare to fine-tune a sentence encoder on human scores."""
    from relabel.sources.sbert.tune import tune_sbert

    check_human_scores(project)
    recipe = tune_sbert(project.config.tune.sbert, project.corpus, project.runtime)
    return model_job(project, "sbert", recipe, out)


def check_human_scores(project: Project) -> None:
    """Raise unless people have scored captions of the dataset."""
    if project.namespace != "coco":
        problem = f"people have scored captions of coco, not those of {project.config.ingest.dataset}"
        raise UsageError(problem, todo="Add `--dataset coco`; the model labels any captions.")


def model_job(project: Project, name: str, recipe: Recipe, out: Path | None = None) -> Job:
    """Return the job of a model that the block `tune.NAME` of the parameter file describes.

    `out`: by default the folder in which labels find it.
    """
    out = out or model_folder(project, name)
    # Before the inputs of the model are looked for.
    check_place(out, Spec(recipe.kind, recipe.name, {}, {}))
    return Job(project, out, recipe, project.command(f"tune {name}"), section_values(project.config, f"tune.{name}"))


def int8_encoder(project: Project, label: str) -> Job:
    """Prepare to quantise the sentence encoder of a label, on captions of the dataset that needs it first."""
    source = project.config.source(label)
    assert isinstance(source, Sbert)
    recipe = source.int8_recipe(project.corpus, project.config.ingest.dataset, project.runtime)
    return Job(project, model_folder(project, INT8, label), recipe, project.command("encode", label=label))


def gate_threshold(project: Project, label: str) -> Job:
    """Prepare to choose the threshold of a label's gate on COCO's captions; labels of any dataset use it."""
    source, out = project.config.source(label), model_folder(project, GATE, label)
    assert isinstance(source, BertSts)
    if not (out / MANIFEST).exists():
        check_human_scores(project)
    recipe = source.threshold_recipe(project.config.parts(label), project.corpus, project.runtime)
    return Job(project, out, recipe, project.command("encode", label=label))


def check_model(project: Project, name: str, label: str) -> None:
    """Raise unless a label's model of `SourceParams.tuned_models` is that of the current captions and parameters."""
    project = project.parent or project
    # Where another source lacks its model, it says so itself; it does not know the dataset of word vectors.
    if name == "word2vec" or (model_folder(project, name, label) / MANIFEST).exists():
        (cross_encoder(project) if name == "bert_sts" else tuned_model(project, name, label)).open()


def tuned_model(project: Project, name: str, label: str) -> Job:
    """Prepare to make a label's model of `SourceParams.tuned_models`.

    A project whose captions are a subset of another project's uses the models of its parent, so that a label, and a
    fuse of it, is the same in both.
    """
    project = project.parent or project
    if name == "bert_sts":
        return tune_bert_sts(project)
    # Word vectors need a corpus, and so does a calibration.
    if not project.folder("corpus", MANIFEST).exists():
        fetch_and_ingest(project)
    makers = {INT8: int8_encoder, GATE: gate_threshold}
    return makers[name](project, label) if name in makers else tune_word2vec(project)


def model_folder(project: Project, name: str, label: str = "") -> Path:
    """Return the folder in which labels find the model of a block of `tune`, or the int8 model of a label."""
    data = project.runtime.data
    if name in (INT8, GATE):
        source: Any = project.config.source(label)
        return Path(source.int8_folder(data) if name == INT8 else source.gate_folder(data))
    places = {"word2vec": f"{TUNED}/{(project.parent or project).config.ingest.dataset}", "sbert": "sbert-cxc"}
    return data / places.get(name, name)
