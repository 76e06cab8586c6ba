"""The corpus of a session, opened once per command, and the splits to label."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from relabel.core.errors import MissingError
from relabel.corpus import Corpus
from relabel.corpus.params import PUBLISHED_FORMATS
from relabel.corpus.readers import open_input
from relabel.stages.ingest import caption_params, check_captions, row_ids
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST, read_manifest


def open_corpus(session: Session) -> Corpus:
    """Return the ingested corpus. Raises CheckError if the captions or parameters have changed since then.

    The captions are hashed for this check, but only once per command, unless they are ingested again.
    """
    folder, dataset = session.folder("corpus"), session.config.ingest.dataset
    command = session.command("ingest", path=None if dataset in PUBLISHED_FORMATS else "PATH")
    if not (folder / MANIFEST).exists():
        hint = f"Build it with {command}."
        if ingested := sorted(folder.parent.name for folder in session.labels.glob("*/corpus")):
            hint = f"Select a dataset with --dataset: {', '.join(ingested)}. {hint}"
        raise MissingError(f"no corpus of dataset {dataset}", where=str(folder), hint=hint)
    opened = session.notes.corpora
    key = folder, session.config.ingest.model_dump_json(), read_manifest(folder, "corpus").identity
    if key not in opened:
        check_captions(session)
        corpus = Corpus.open(folder, session.runtime.progress, command)
        opened[key] = replace(corpus, read_ids=partial(row_ids, session))
    return opened[key]


def read_captions(session: Session) -> Corpus:
    """Return the ingested corpus, or read the captions without writing anything if they were not ingested."""
    if (session.folder("corpus") / MANIFEST).exists():
        return open_corpus(session)
    return Corpus.from_captions(open_input(caption_params(session), session.runtime).read())


def label_splits(session: Session, split: str | None = None) -> tuple[str, ...]:
    """Return the splits to label: by default `judge.split` for a benchmark, and all splits for other data.

    Benchmarks are used to compare labels on the judged split first, and other captions for training.
    """
    corpus, judged = open_corpus(session), session.config.judge.split
    if split is None and (corpus.namespace not in PUBLISHED_FORMATS or judged not in corpus.splits):
        return tuple(corpus.splits)
    return (split or judged,)


def training_split(corpus: Corpus) -> str:
    """Return the split for training: train if it exists, otherwise the only split, or all."""
    if "train" in corpus.splits:
        return "train"
    return next(iter(corpus.splits)) if len(corpus.splits) == 1 else "all"
