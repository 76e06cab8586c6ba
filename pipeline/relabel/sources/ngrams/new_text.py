"""Sparse rows of texts that are not in the corpus."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.sources.ngrams.index import features_with_norms
from relabel.sources.ngrams.structures import Features, Weighting


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """N-gram ids of words that come from outside; see `Grams` for how ids ascend.

    Attributes
    ----------
    codes : dict of str to int
        Id of each word.
    keys : (V - W,) int64
        prefix * W + last of every longer n-gram, ascending.
    """

    codes: dict[str, int]
    keys: NDArray[np.int64]

    @classmethod
    def open(cls, path: Path) -> Vocabulary:
        """Read `vocabulary.parquet`."""
        words = pq.read_table(path, columns=["ngram"], filters=[("order", "=", 1)])["ngram"].to_pylist()
        table = pq.read_table(path, columns=["prefix", "last"], filters=[("order", ">", 1)])
        prefix, last = (table[name].to_numpy().astype(np.int64) for name in ("prefix", "last"))
        return cls({word: i for i, word in enumerate(words)}, prefix * len(words) + last)

    def find(self, ngram: tuple[str, ...]) -> int:
        """Return an n-gram's id, -1 if the vocabulary lacks it."""
        found = self.codes.get(ngram[0], -1)
        for word in ngram[1:]:
            code = self.codes.get(word, -1)
            if found < 0 or code < 0:
                return -1
            key = found * len(self.codes) + code
            place = int(np.searchsorted(self.keys, key))
            found = place + len(self.codes) if place < len(self.keys) and self.keys[place] == key else -1
        return found


def new_features(words: list[str], vocabulary: Vocabulary, weighting: Weighting, unseen_idf: float) -> Features:
    """Make the one row of a new text.

    Parameters
    ----------
    words : list of str
    vocabulary : Vocabulary
    weighting : Weighting
    unseen_idf : float
        idf of an n-gram that the vocabulary lacks: it can match nothing but counts in the norm.
    """
    orders = len(weighting.starts) - 1
    squared = np.zeros((1, orders))
    known: dict[int, int] = {}
    for order in range(orders):
        for ngram, count in Counter(zip(*(words[i:] for i in range(order + 1)), strict=False)).items():
            found = vocabulary.find(ngram)
            squared[0, order] += (count * (weighting.idf[found] if found >= 0 else unseen_idf)) ** 2
            if found >= 0:
                known[found] = count
    ids = np.array(sorted(known), np.int32)
    counts = np.array([known[i] for i in sorted(known)], np.int32)
    return features_with_norms(np.array([0, len(ids)]), ids, counts, np.array([len(words)], np.int32), squared)
