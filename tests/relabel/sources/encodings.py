"""Encodings and searches, made in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relabel.core.runtime import SILENT, Progress, Runtime
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus
from relabel.sources.base import Encoding, Source
from relabel.sources.finder import Finder
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest
from relabel.store.workdir import Step, Work, make_step


class Counted(Progress):
    """Progress that keeps the amounts that tasks report."""

    def __init__(self) -> None:
        self.amounts: list[int] = []

    def advance(self, n: int) -> None:
        self.amounts.append(n)


def make_steps(steps: Iterable[Step], work: Work) -> None:
    """Make the missing files of all steps."""
    for step in steps:
        make_step(step, work, SILENT)


def encode(
    source: Source[Any],
    corpus: Corpus,
    out: Path,
    rows: range | None = None,
    size: int = 100,
    runtime: Runtime | None = None,
) -> tuple[Any, Manifest]:
    """Build an encoding of all rows, or of some, with `size` rows per shard; return its relevance and manifest."""
    rows, runtime = rows or range(len(corpus)), runtime or Runtime(threads=1)

    def fill(work: Work) -> None:
        work.metadata |= {"rows": [rows.start, rows.stop], "split": "all"}
        make_steps(source.steps(corpus, rows, size, work, runtime), work)

    def config() -> dict[str, Any]:
        return source.fingerprint_params(corpus, rows, runtime) | {"rows": [rows.start, rows.stop], "size": size}

    manifest, _ = build(out, Recipe("encoding", source.spec.name, config, {"corpus": corpus.digest}, fill))
    return source.open(Encoding(corpus, out, manifest, runtime)), manifest


def find(finder: Finder, folder: Path, queries: range | None = None) -> tuple[Rows, Scores]:
    """Search for all queries, or some, in a new or existing work folder."""
    folder.mkdir(parents=True, exist_ok=True)
    work = Work(folder)
    if step := finder.build(work):
        make_step(step, work, SILENT)
    return finder.find(work, range(len(finder.search.queries)) if queries is None else queries, lambda _: None)
