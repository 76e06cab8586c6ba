"""The stages as plain functions: fetch, ingest, tune, encode, judge. `relabel.run` walks them in order.

Each is idempotent: finished work is found by its fingerprint and not repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from relabel.config import Config
from relabel.corpus import Corpus
from relabel.errors import CheckError, MissingError, UsageError
from relabel.layout import Layout
from relabel.runtime import Runtime
from relabel.sources.base import Relevance, SourceParams
from relabel.store.artefact import build
from relabel.store.manifest import MANIFEST, Draft, Manifest, open_artefact, read_manifest
from relabel.store.work import Work

if TYPE_CHECKING:
    from relabel.judge.eccv import Gate


@dataclass(frozen=True)
class Project:
    """Parameters, what a run may use, and where everything lies."""

    config: Config
    runtime: Runtime
    labels: Path = Path("labels")

    @cached_property
    def layout(self) -> Layout:
        """Folders of this dataset."""
        return Layout(self.labels / self.config.ingest.dataset)

    @property
    def word2vec(self) -> Path:
        """Word vectors trained here."""
        return self.runtime.data / "word2vec"

    @cached_property
    def corpus(self) -> Corpus:
        """The ingested corpus."""
        return Corpus.open(self.layout.corpus)

    def splits(self, split: str) -> tuple[str, ...]:
        """Names of the splits that `split` means: itself, or those the corpus has for `all`."""
        return tuple(self.corpus.splits) if split == "all" else (split,)


FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to what is fetched for it, where no path is given."""


def fetch(project: Project, mirror: Path | None = None) -> None:
    """Get the captions of the dataset, unless they are the user's own.

    Raises
    ------
    UsageError
        If no captions are known for the dataset and no path is given.
    MissingError, CheckError
        See relabel.datasets.fetch.
    """
    from relabel.datasets import fetch

    params = project.config.ingest
    if params.path is not None:
        return
    if params.dataset not in FETCHED:
        what, known = f"no captions are known for dataset {params.dataset}", ", ".join(FETCHED)
        raise UsageError(what, todo=f"Give ingest.path, or use {known}.")
    fetch(FETCHED[params.dataset], project.runtime.data, mirror, project.runtime.progress)


def ingest(project: Project) -> tuple[Manifest, bool]:
    """Make the corpus. See relabel.ingest."""
    from relabel.ingest import ingest

    return ingest(project.config.ingest, project.layout.corpus, project.runtime)


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


def prepare(project: Project, label: str, judged: bool = True) -> Manifest:
    """Build all that a label needs, then its encoding and, if asked, its judgement; return the last one's manifest."""
    if not (project.layout.corpus / MANIFEST).exists():
        fetch(project)
        note(project, ingest(project), project.layout.corpus)
    models(project, label)
    job = encode(project, label, project.config.judge.split)
    made = job.run()
    note(project, made, job.out)
    if judged:
        job = judge(project, label)
        made = job.run()
        note(project, made, job.out)
    return made[0]


@dataclass(frozen=True)
class Job:
    """An artefact to be built: where, from what, and how."""

    out: Path
    draft: Draft
    fill: Callable[[Work], None]

    def run(self) -> tuple[Manifest, bool]:
        """Build it, unless it is there."""
        return build(self.out, self.draft, self.fill)


def encode(project: Project, label: str, split: str) -> Job:
    """Prepare to encode the captions of a split with the source of a label.

    Raises
    ------
    UsageError
        If there is no such label or split.
    MissingError
        If the corpus or an asset of the source is not there.
    """
    source, corpus, runtime = project.config.source(label), project.corpus, project.runtime
    rows = corpus.rows(project.splits(split))
    size = project.config.encode.rows_per_shard
    semantic = source.semantic(corpus, rows, runtime) | {"rows": [rows.start, rows.stop], "rows_per_shard": size}

    def fill(work: Work) -> None:
        work.facts |= {
            "label": label,
            "kind": source.kind,
            "rows": [rows.start, rows.stop],
            "split": split,
            "bounds": list(source.bounds),
            "symmetric": source.symmetric,
            "orientation": "rows are images (reference sets), columns are captions",
        }
        source.encode(corpus, rows, size, work, runtime)

    return Job(
        project.layout.encoding(split, label), Draft("encoding", label, semantic, {"corpus": corpus.digest}), fill
    )


def encoded(project: Project, label: str, split: str) -> Manifest:
    """Read the manifest of an encoding, made of this corpus under these parameters.

    Raises
    ------
    MissingError
        If it is not there.
    CheckError
        If it was made of another corpus or under other parameters.
    """
    job, todo = encode(project, label, split), f"Run `relabel encode --label {label} --split {split}`."
    try:
        manifest = read_manifest(job.out, "encoding")
    except MissingError as error:
        raise MissingError(error.what, where=error.where, todo=todo) from error
    if manifest.fingerprint != job.draft.fingerprint:
        raise CheckError("encoded from another corpus or under other parameters", where=str(job.out), todo=todo)
    return manifest


def open_label(project: Project, label: str, split: str) -> Relevance:
    """Open an encoding for answers.

    Raises
    ------
    MissingError, CheckError
        As `encoded`; and CheckError if a file is not what the manifest says.
    """
    manifest = encoded(project, label, split)
    folder = project.layout.encoding(split, label)
    open_artefact(folder, "encoding")
    return project.config.source(label).open(project.corpus, folder, manifest, project.runtime)


def judge(project: Project, label: str) -> Job:
    """Prepare to score CxC's human-judged pairs with a label, and to rank ECCV Caption with it (test split).

    A source that scores pair by pair ranks only what the gate (`judge.gate`) finds best; with no gate it is not ranked.

    Raises
    ------
    UsageError
        If the corpus is not COCO.
    MissingError
        If the encoding is not there.
    """
    from relabel.judge import human
    from relabel.judge.cxc import score_cxc
    from relabel.judge.eccv import score_eccv
    from relabel.judge.eccv_queries import read_eccv

    config, corpus, params = project.config, project.corpus, project.config.judge
    if config.ingest.prefix != "coco":
        raise UsageError(f"CxC and ECCV Caption judge COCO's captions, not {config.ingest.dataset}'s")
    source, split = config.source(label), params.split
    encoding = encoded(project, label, split)
    inputs = {"corpus": corpus.digest, "encoding": encoding.fingerprint}
    inputs |= {f"cxc {task}": human.sha256(task, split) for task in human.TASKS}
    gate = (params.gate or None) if source.kind == "pairs" else None
    ranked = split == "test" and (source.kind != "pairs" or gate is not None)
    if ranked and gate is not None:
        inputs["gate"] = encoded(project, gate, split).fingerprint
    semantic = {"source": source.name, "pooling": source.params.pooling, **params.model_dump(include=_JUDGED)}

    def fill(work: Work) -> None:
        relevance = open_label(project, label, split)
        progress = project.runtime.progress
        work.facts |= {"label": label, "params": source.params.model_dump(mode="json"), "uses": _uses(encoding)}
        score_cxc(corpus, relevance, source, split, work, progress, include_self=params.include_self)
        if ranked:
            opened = _open_gate(project, gate) if gate else None
            eccv = read_eccv(corpus, project.runtime.data)
            score_eccv(corpus, relevance, source, eccv, work, progress, ties=params.ties, gate=opened)

    return Job(project.layout.judgement(split, label), Draft("judgement", label, semantic, inputs), fill)


def _open_gate(project: Project, gate: str) -> Gate:
    from relabel.judge.eccv import Gate

    params, scale = project.config.judge, max(map(abs, project.config.source(gate).bounds))
    return Gate(gate, open_label(project, gate, params.split), params.gate_top, scale)


def _uses(encoding: Manifest) -> str | None:
    """Name the model or the word vectors that an encoding was made with."""
    facts = encoding.facts
    return facts["vectors"]["name"] if "vectors" in facts else facts.get("model")


_JUDGED = {"split", "include_self", "ties", "gate_top"}


def note(project: Project, made: tuple[Manifest, bool], folder: Path) -> None:
    """Tell the progress what became of a stage."""
    project.runtime.progress.note(status(made[1], made[0], folder))


def status(built: bool, manifest: Manifest, folder: Path) -> str:
    """Say one line about a stage's artefact."""
    seconds = manifest.runtime.get("seconds", 0)
    state = f"built in {seconds:.1f} s" if built else "up to date"
    return f"{manifest.kind} {manifest.name}: {state} ({folder})"
