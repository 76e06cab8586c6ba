"""tune: trains the models that sources use."""

from __future__ import annotations

from pathlib import Path

from relabel.core.errors import MissingError, UsageError
from relabel.sources.words.params import TUNED
from relabel.stages.corpus import open_corpus
from relabel.stages.ingest import fetch_and_ingest, namespace
from relabel.stages.job import Job, section_values
from relabel.stages.session import Session
from relabel.store.artefact import Recipe, check_place
from relabel.store.manifest import MANIFEST, Spec


def word2vec_model(session: Session) -> Job:
    """Prepare to train word vectors on the corpus. Labels locate them by the dataset, so there is only one folder."""
    from relabel.sources.cbow.tune import tune_word2vec

    recipe = tune_word2vec(session.config.tune.word2vec, open_corpus(session), session.runtime)
    return model_job(session, "word2vec", recipe)


def bert_sts_model(session: Session, out: Path | None = None) -> Job:
    """Prepare to train a cross-encoder on STS-B. The data is fetched if it is missing."""
    from relabel.datasets import fetch
    from relabel.sources.bert_sts.tune import find_stsb_files

    # This checks the output folder, so it comes before the download.
    job = cross_encoder(session, out)
    try:
        find_stsb_files(session.runtime)
    except MissingError:
        fetch("stsb", session.runtime.data, None, session.runtime.progress)
    return job


def cross_encoder(session: Session, out: Path | None = None) -> Job:
    """Return the job of `bert_sts_model`, without fetching the data."""
    from relabel.sources.bert_sts.tune import tune_bert_sts

    return model_job(session, "bert_sts", tune_bert_sts(session.config.tune.bert_sts, session.runtime), out)


def sbert_model(session: Session, out: Path | None = None) -> Job:
    """Prepare to fine-tune a sentence encoder on human scores."""
    from relabel.sources.sbert.tune import tune_sbert

    check_human_scores(session)
    recipe = tune_sbert(session.config.tune.sbert, open_corpus(session), session.runtime)
    return model_job(session, "sbert", recipe, out)


def check_human_scores(session: Session) -> None:
    """Raise UsageError unless the captions of the dataset have human scores."""
    if namespace(session) != "coco":
        problem = f"only captions of coco have human scores, not those of {session.config.ingest.dataset}"
        raise UsageError(problem, hint="Add `--dataset coco`. The model can label any captions.")


def model_job(session: Session, name: str, recipe: Recipe, out: Path | None = None) -> Job:
    """Return the job of the model of the section `tune.NAME` of the parameter file.

    `out`: output folder; by default the one in which labels look for the model.
    """
    out = out or model_folder(session, name)
    # Check the output folder first, before the inputs of the model.
    check_place(out, Spec(recipe.kind, recipe.name, {}, {}))
    return Job(session, out, recipe, session.command(f"tune {name}"), section_values(session.config, f"tune.{name}"))


def derived_model(session: Session, label: str) -> Job:
    """Prepare to build the derived model of a label (see `Source.derived_model`)."""
    session = _with_captions(session.parent or session)
    config, runtime = session.config, session.runtime
    model = config.source(label).derived_model(runtime.data)
    assert model is not None, "a label with a derived model"
    if model.judged and not (model.folder / MANIFEST).exists():
        check_human_scores(session)
    recipe = model.recipe(config.parts(label), open_corpus(session), config.ingest.dataset, runtime)
    return Job(session, model.folder, recipe, session.command("encode", label=label))


def tuned_model(session: Session, name: str) -> Job:
    """Prepare to build one of the models of `SourceParams.tuned_models`.

    If the session has a subset of the captions of a parent session, the model of the parent is used. So a label, and
    every fuse of it, is the same in both.
    """
    session = session.parent or session
    return bert_sts_model(session) if name == "bert_sts" else word2vec_model(_with_captions(session))


def _with_captions(session: Session) -> Session:
    """Ingest the captions for a model unless that is done; return their session."""
    if not session.folder("corpus", MANIFEST).exists():
        fetch_and_ingest(session)
    return session


def model_folder(session: Session, name: str) -> Path:
    """Return the folder in which labels look for the model of a section of `tune`."""
    places = {"word2vec": f"{TUNED}/{(session.parent or session).config.ingest.dataset}", "sbert": "sbert-cxc"}
    return session.runtime.data / places.get(name, name)
