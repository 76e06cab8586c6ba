"""tune: the models that sources use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relabel.core.errors import MissingError, UsageError
from relabel.sources.base import GATE, INT8
from relabel.sources.bert_sts import BertSts
from relabel.sources.sbert import Sbert
from relabel.sources.words.params import TUNED
from relabel.stages.corpus import open_corpus
from relabel.stages.ingest import fetch_and_ingest, namespace
from relabel.stages.job import Job, section_values
from relabel.stages.session import Session
from relabel.store.artefact import Recipe, check_place
from relabel.store.manifest import MANIFEST, Spec


def word2vec_model(session: Session) -> Job:
    """Prepare to train word vectors on the corpus. Labels find them by the dataset, so they have no --out."""
    from relabel.sources.cbow.tune import tune_word2vec

    recipe = tune_word2vec(session.config.tune.word2vec, open_corpus(session), session.runtime)
    return model_job(session, "word2vec", recipe)


def bert_sts_model(session: Session, out: Path | None = None) -> Job:
    """Prepare to train a cross-encoder on STS-B, which is fetched if it is missing."""
    from relabel.datasets import fetch
    from relabel.sources.bert_sts.tune import find_stsb_files

    # A folder that is no place for a model is refused before the download.
    job = cross_encoder(session, out)
    try:
        find_stsb_files(session.runtime)
    except MissingError:
        fetch("stsb", session.runtime.data, None, session.runtime.progress)
    return job


def cross_encoder(session: Session, out: Path | None = None) -> Job:
    """Return the job of `bert_sts_model`, whose data may be absent."""
    from relabel.sources.bert_sts.tune import tune_bert_sts

    return model_job(session, "bert_sts", tune_bert_sts(session.config.tune.bert_sts, session.runtime), out)


def sbert_model(session: Session, out: Path | None = None) -> Job:
    """Prepare to fine-tune a sentence encoder on human scores."""
    from relabel.sources.sbert.tune import tune_sbert

    check_human_scores(session)
    recipe = tune_sbert(session.config.tune.sbert, open_corpus(session), session.runtime)
    return model_job(session, "sbert", recipe, out)


def check_human_scores(session: Session) -> None:
    """Raise unless people have scored captions of the dataset."""
    if namespace(session) != "coco":
        problem = f"people have scored captions of coco, not those of {session.config.ingest.dataset}"
        raise UsageError(problem, todo="Add `--dataset coco`; the model labels any captions.")


def model_job(session: Session, name: str, recipe: Recipe, out: Path | None = None) -> Job:
    """Return the job of a model that the block `tune.NAME` of the parameter file describes.

    `out`: by default the folder in which labels find it.
    """
    out = out or model_folder(session, name)
    # Before the inputs of the model are looked for.
    check_place(out, Spec(recipe.kind, recipe.name, {}, {}))
    return Job(session, out, recipe, session.command(f"tune {name}"), section_values(session.config, f"tune.{name}"))


def int8_encoder(session: Session, label: str) -> Job:
    """Prepare to quantise the sentence encoder of a label, on captions of the dataset that needs it first."""
    source = session.config.source(label)
    assert isinstance(source, Sbert)
    recipe = source.int8_recipe(open_corpus(session), session.config.ingest.dataset, session.runtime)
    return Job(session, model_folder(session, INT8, label), recipe, session.command("encode", label=label))


def gate_threshold(session: Session, label: str) -> Job:
    """Prepare to choose the threshold of a label's gate on COCO's captions; labels of any dataset use it."""
    source, out = session.config.source(label), model_folder(session, GATE, label)
    assert isinstance(source, BertSts)
    if not (out / MANIFEST).exists():
        check_human_scores(session)
    recipe = source.threshold_recipe(session.config.parts(label), open_corpus(session), session.runtime)
    return Job(session, out, recipe, session.command("encode", label=label))


def check_model(session: Session, name: str, label: str) -> None:
    """Raise unless a label's model of `SourceParams.tuned_models` is that of the current captions and parameters."""
    session = session.parent or session
    # Where another source lacks its model, it says so itself; it does not know the dataset of word vectors.
    if name == "word2vec" or (model_folder(session, name, label) / MANIFEST).exists():
        (cross_encoder(session) if name == "bert_sts" else tuned_model(session, name, label)).open()


def tuned_model(session: Session, name: str, label: str) -> Job:
    """Prepare to make a label's model of `SourceParams.tuned_models`.

    A session whose captions are a subset of another session's uses the models of its parent, so that a label, and a
    fuse of it, is the same in both.
    """
    session = session.parent or session
    if name == "bert_sts":
        return bert_sts_model(session)
    # Word vectors need a corpus, and so does a calibration.
    if not session.folder("corpus", MANIFEST).exists():
        fetch_and_ingest(session)
    makers = {INT8: int8_encoder, GATE: gate_threshold}
    return makers[name](session, label) if name in makers else word2vec_model(session)


def model_folder(session: Session, name: str, label: str = "") -> Path:
    """Return the folder in which labels find the model of a block of `tune`, or the int8 model of a label."""
    data = session.runtime.data
    if name in (INT8, GATE):
        source: Any = session.config.source(label)
        return Path(source.int8_folder(data) if name == INT8 else source.gate_folder(data))
    places = {"word2vec": f"{TUNED}/{(session.parent or session).config.ingest.dataset}", "sbert": "sbert-cxc"}
    return data / places.get(name, name)
