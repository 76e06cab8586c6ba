"""Small corpora and word vectors, and encodings and searches of them, made in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.runtime import SILENT, Progress, Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import SCHEMA, Corpus
from relabel.sources.base import Encoding, Source
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest
from relabel.store.workdir import Step, Work, make_step

Vectors = dict[str, NDArray[np.float64]]


class Counted(Progress):
    """Progress that keeps the amounts that tasks report."""

    def __init__(self) -> None:
        self.amounts: list[int] = []

    def advance(self, n: int) -> None:
        self.amounts.append(n)


def in_images(texts: Sequence[str], each: int) -> list[Sequence[str]]:
    """Return the texts as the captions of images with `each` captions."""
    return [texts[start : start + each] for start in range(0, len(texts), each)]


def corpus_of(images: Iterable[Sequence[str]], split: str = "test") -> Corpus:
    """Return images of captions `c:0-0`, `c:0-1`, ..., which may be empty; its PTB tokens are its texts."""
    places = [(m, p, text) for m, image in enumerate(images) for p, text in enumerate(image)]
    records = [(row, f"c:{m}-{p}", f"c:{m}", m, split, p, text) for row, (m, p, text) in enumerate(places)]
    table = pa.table(dict(zip(SCHEMA.names, map(list, zip(*records, strict=True)), strict=True)), schema=SCHEMA)
    return replace(Corpus.from_table(table), tokenize=lambda corpus: corpus.texts)


def write_vectors(path: Path, words: Sequence[str], seed: int = 0) -> Vectors:
    """Draw a vector of width 7 per word, and write them in GloVe's format."""
    vectors = np.random.default_rng(seed).normal(size=(len(words), 7)).round(4)
    path.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(words, vectors.tolist(), strict=True)))
    return dict(zip(words, vectors.astype(np.float32).astype(np.float64), strict=True))


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


def best_by_pairs(relevance: Relevance, search: Search, pooling: Pooling | None = None) -> tuple[Rows, Scores]:
    """Score every candidate of each query by `pairs` and sort by (-score, row), as the oracle of every finder."""
    rows = np.empty((len(search.queries), search.width), np.int32)
    scores = np.empty(rows.shape)
    for q in range(len(rows)):
        copies = search.queries.take(np.full(len(search.candidates), q))
        score = relevance.pairs(copies, search.candidates, pooling)
        itself = search.candidates == search.exclude[q]
        order = np.lexsort((search.candidates, -score, itself))[: search.width]
        rows[q], scores[q] = search.candidates[order], score[order]
    return rows, scores


def assert_same(found: tuple[Rows, Scores], expected: tuple[Rows, Scores]) -> None:
    """Check rows and the bits of scores."""
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
