"""Contract: the repr of an object in a notebook has at most three lines of 80 columns with its identifying facts,
and prints no table or array.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources import SOURCES, source_class
from relabel.sources.cosine import VectorRelevance
from relabel.sources.relevance import Relevance
from relabel_train.examples import write_lookup
from relabel_train.lookup import open_lookup


def small_corpus(images: int = 1500) -> Corpus:
    split = {0: "train", 1: "val"}
    return Corpus.from_captions(
        Caption(f"c:{m}-{i}", f"i:{m}", split[m % 2], "a dog") for m in range(images) for i in range(2)
    )


def test_a_corpus_states_its_captions_images_and_splits() -> None:
    assert repr(small_corpus()) == "<Corpus: 3,000 captions of 1,500 images (train 1,500, val 1,500)>"


def test_a_relevance_states_its_rows_pooling_and_failed_rows() -> None:
    corpus, vectors = small_corpus(), np.ones((1500, 4), np.float32)
    relevance = VectorRelevance(corpus, range(1500), "max", vectors, lambda text: vectors[0], np.array([3], np.int32))
    assert repr(relevance) == "<VectorRelevance: 1,500 captions (rows 0 to 1,499), 1 failed, pooling max>"


def test_every_relevance_is_described_in_this_way() -> None:
    def below(kind: type[Relevance]) -> Iterator[type[Relevance]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    for name in SOURCES:
        source_class(name)
    kinds = [kind for kind in below(Relevance) if kind.__module__.startswith("relabel.")]
    assert len(kinds) >= 6
    assert {kind.__repr__ for kind in kinds} == {Relevance.__repr__}


def test_a_lookup_states_its_label_size_range_and_neighbours(tmp_path: Path) -> None:
    lookup = open_lookup(write_lookup(tmp_path / "lookup"))
    assert repr(lookup) == (
        "<Lookup example (sbert), all: 6 captions of 3 images, relevance -1 to 1, pooling max, 5 neighbours, "
        f"{tmp_path.resolve() / 'lookup'}>"
    )
