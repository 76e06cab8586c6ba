"""Small corpora of tokens, encoded and opened by the source, and CIDEr as explicit loops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.relabel.sources.encodings import encode

from relabel.core.runtime import Runtime
from relabel.corpus import SCHEMA, Corpus
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.cider.relevance import CiderRelevance

Words = list[str]


def tiny_corpus(images: Sequence[Sequence[str]], split: str = "test") -> Corpus:
    """Return a function that builds a corpus from tokens joined by spaces; an empty caption has no tokens."""
    captions = [(m, p, c) for m, image in enumerate(images) for p, c in enumerate(image)]
    columns: dict[str, Any] = {
        "row": range(len(captions)),
        "caption_id": [f"x:{i}" for i in range(len(captions))],
        "image_id": [f"x:{m}" for m, _, _ in captions],
        "image": [m for m, _, _ in captions],
        "split": [split] * len(captions),
        "position": [p for _, p, _ in captions],
        "text": [c for _, _, c in captions],
    }
    table = pa.table({n: pa.array(list(v), SCHEMA.field(n).type) for n, v in columns.items()})
    return replace(Corpus.from_table(table), tokenize=lambda corpus: corpus.texts)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., CiderRelevance]:
    """Return `opened(images or corpus, rows=None, **params)`, which encodes all rows, or `rows`, and opens them."""

    def make(given: Corpus | Sequence[Sequence[str]], rows: range | None = None, **params: Any) -> CiderRelevance:
        corpus = given if isinstance(given, Corpus) else tiny_corpus(given)
        return encode(Cider(CiderParams(**params)), corpus, tmp_path / "encoding", rows, 90, Runtime(threads=2))[0]  # type: ignore[no-any-return]

    return make


def counted(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + k]) for k in range(1, n + 1) for i in range(len(words) - k + 1))


def loop_cider(
    references: Sequence[Words],
    candidate: Words,
    documents: Sequence[Sequence[Words]],
    n: int = 4,
    sigma: float | None = 6.0,
) -> float:
    """Compute CIDEr-D by explicit loops from the formula, or plain CIDEr if sigma is None."""

    def idf(gram: tuple[str, ...]) -> float:
        holding = sum(any(gram in counted(caption, n) for caption in document) for document in documents)
        return math.log(len(documents)) - math.log(max(1, holding))

    total = 0.0
    for reference in references:
        ref, can = counted(reference, n), counted(candidate, n)
        for order in range(1, n + 1):
            norm_ref = math.sqrt(sum((t * idf(w)) ** 2 for w, t in ref.items() if len(w) == order))
            norm_can = math.sqrt(sum((t * idf(w)) ** 2 for w, t in can.items() if len(w) == order))
            if norm_ref == 0 or norm_can == 0:
                continue
            dot = 0.0
            for gram, count in can.items():
                if len(gram) == order and gram in ref:
                    shared = count if sigma is None else min(count, ref[gram])
                    dot += shared * ref[gram] * idf(gram) ** 2
            bigrams = max(0, len(candidate) - 1) - max(0, len(reference) - 1)
            gauss = 1.0 if sigma is None else math.exp(-(bigrams**2) / (2 * sigma**2))
            total += gauss * dot / (norm_ref * norm_can)
    return 10.0 * total / (n * len(references))


@pytest.fixture(name="loop_cider", scope="session")
def _loop_cider() -> Callable[..., float]:
    """Return CIDEr as explicit loops."""
    return loop_cider


@pytest.fixture(name="tiny_corpus", scope="session")
def _tiny_corpus() -> Callable[..., Corpus]:
    """Build a corpus of tokens."""
    return tiny_corpus
