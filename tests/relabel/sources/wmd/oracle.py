"""Opened encodings of wmd for a few captions, and distances by a linear program of SciPy, computed from the words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from tests.relabel.sources.encodings import encode

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.wmd import Wmd, WmdParams

GLOVE = "vectors/glove.6B.100d.captions-vocabulary.txt.gz"
Vectors = dict[str, NDArray[np.float64]]
Encode = Callable[..., Any]


def write_vectors(path: Path, words: Sequence[str], seed: int = 0, width: int = 7) -> Vectors:
    """Draw a vector per word and write them in GloVe's format."""
    vectors = np.random.default_rng(seed).normal(size=(len(words), width)).round(4)
    path.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(words, vectors.tolist(), strict=True)))
    return dict(zip(words, vectors.astype(np.float32).astype(np.float64), strict=True))


def corpus_of(texts: Sequence[str], an_image: int = 2) -> Corpus:
    """Return a corpus with a fixed number of captions per image."""
    return Corpus.from_captions([Caption(f"t:{i}", f"t:{i // an_image}", "test", t) for i, t in enumerate(texts)])


def encode_in(folder: Path, corpus: Corpus, rows: range | None = None, size: int = 100, **params: Any) -> Any:
    """Build and open an encoding."""
    source = Wmd(WmdParams(**({"tokenizer": "lower_split"} | params)))
    return encode(source, corpus, folder / "encoding", rows, size, Runtime(data=folder, threads=1))


def by_the_book(left: Sequence[str], right: Sequence[str], vectors: Vectors) -> float:
    """Compute the word mover's distance of two lists of words by an independent solver, without unknown words."""
    a, b = (Counter(w for w in side if w in vectors) for side in (left, right))
    if not a or not b:
        return float("inf")
    cost = np.array([[np.sqrt(((vectors[x] - vectors[y]) ** 2).sum()) for y in b] for x in a])
    weights = [np.array([c[w] / c.total() for w in c]) for c in (a, b)]
    return linear_program(weights[0], weights[1], cost)


def linear_program(supply: NDArray[Any], demand: NDArray[Any], cost: NDArray[np.float64]) -> float:
    """Return the least cost of a transportation problem."""
    m, n = cost.shape
    sums = [*(np.eye(m)[i].repeat(n) for i in range(m)), *(np.tile(np.eye(n)[j], m) for j in range(n))]
    return float(linprog(cost.reshape(-1), A_eq=np.array(sums), b_eq=np.concatenate([supply, demand])).fun)
