"""Contract: cbow is the cosine of mean word vectors, equal to an explicit loop.

Contract: `tune word2vec` trains word2vec on a corpus and writes one file in GloVe's format, with the same bytes on
every run, named after its training data and read by cbow. The context of a word is its image.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.relabel.sources.encodings import Vectors, corpus_of, encode, in_images, write_vectors

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.cbow import Cbow, CbowParams
from relabel.sources.cbow.tune import TuneWord2vecParams, tune_word2vec
from relabel.sources.cosine import VectorRelevance
from relabel.sources.words.params import find_vectors
from relabel.sources.words.vectors import WordVectors, read_word_vectors
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, open_artefact

TEXTS = [
    *("A dog runs", "a dog, unseen, runs", "two cats sleep on a sofa", "qwx zzz"),
    *("a dog runs", "dog dog cats", "two", "Sofa a a a"),
]
PTB = [t.lower().replace(",", "") for t in TEXTS]
WORDS = ["a", "dog", "runs", "two", "cats", "sleep", "on", "sofa"]


CORPUS = replace(corpus_of(in_images(TEXTS, 2)), tokenize=lambda _: PTB)


def encoded(folder: Path, **params: Any) -> tuple[VectorRelevance, Manifest, Vectors]:
    vectors = write_vectors(folder / "words.txt", WORDS)
    source = Cbow(CbowParams(vectors=str(folder / "words.txt"), **params))
    return *encode(source, CORPUS, folder / "encoding"), vectors


def mean_vector(words: list[str], known: Vectors) -> NDArray[np.float64]:
    """Compute the unit mean over all tokens, with unknown tokens as zeros, as the oracle."""
    total = np.zeros(7)
    for word in words:
        for d in range(7):
            total[d] += known[word][d] if word in known else 0.0
    mean = total / max(len(words), 1)
    length = sum(x * x for x in mean) ** 0.5
    return mean / length if length else mean


@pytest.mark.parametrize("tokenizer", ["ptb", "lower_split"])
def test_equals_an_explicit_loop(tokenizer: str, tmp_path: Path) -> None:
    relevance, _, vectors_of = encoded(tmp_path, tokenizer=tokenizer)
    tokens = [t.split() for t in PTB] if tokenizer == "ptb" else [t.lower().split() for t in TEXTS]
    expected = np.array([mean_vector(t, vectors_of) for t in tokens])
    np.testing.assert_allclose(relevance.vectors, expected, atol=1e-7)


SYNONYMS = [
    *(("sofa", "couch", "settee"), ("dog", "puppy", "hound")),
    *(("bike", "bicycle", "cycle"), ("jet", "plane", "liner")),
]
FILLERS = ["a", "the", "of", "on", "red", "big", "near", "some"]


def make_corpus() -> Corpus:
    """Return images of one thing, which every caption calls by one of three names; no two names share a caption."""
    draw, images = random.Random(0), list[Caption]()
    for number in range(6000):
        image, words = number // 4, draw.sample(FILLERS, 3)
        words.insert(draw.randrange(4), draw.choice(SYNONYMS[image % len(SYNONYMS)]))
        split = "test" if image % 10 == 9 else "train"
        images.append(Caption(f"toy:{number}", f"toy:{image}", split, " ".join(words).title()))
    return replace(Corpus.from_captions(images), tokenize=lambda corpus: [text.lower() for text in corpus.texts])


PARAMS: dict[str, Any] = {"width": 12, "epochs": 5}


def tune(out: Path, corpus: Corpus, **params: Any) -> tuple[Manifest, bool]:
    params = PARAMS | params
    return build(out, tune_word2vec(TuneWord2vecParams(**params), corpus, Runtime(), sample=1e-2))  # of few words


def cosine(found: WordVectors, a: str, b: str) -> float:
    x, y = found.vectors[found.index[a]], found.vectors[found.index[b]]
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def test_the_file_is_read_and_recorded_by_cbow(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    corpus = make_corpus()
    manifest, built = tune(tmp_path / "word2vec", corpus)
    assert built
    file = find_vectors(str(tmp_path / "word2vec"), tmp_path)
    assert manifest.name == file.name == "word2vec toy-train 12d"
    assert list(manifest.files) == ["word2vec.toy-train.12d.txt"]
    assert manifest == open_artefact(tmp_path / "word2vec", "word_vectors")
    train = corpus.rows(["train"])
    counts = Counter(w for t in corpus.texts[train.start : train.stop] for w in t.lower().split())
    assert manifest.metadata["tokens"] == counts.total()
    assert manifest.metadata["documents"] == 1350
    table = read_word_vectors(file)
    assert table.index.keys() == counts.keys()
    frequencies = [counts[w] for w in table.index]
    assert frequencies == sorted(frequencies, reverse=True)
    mean = np.array(frequencies) @ table.vectors / sum(frequencies)  # subtracted before writing six digits
    np.testing.assert_allclose(mean, 0, atol=1e-5)
    assert tune(tmp_path / "word2vec", corpus) == (manifest, False)
    assert tune(tmp_path / "word2vec", corpus, seed=2)[0].files != manifest.files


def test_synonyms_share_images_but_no_captions(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    tune(tmp_path, make_corpus())
    found = read_word_vectors(find_vectors(str(tmp_path), tmp_path))
    for (a, b, _), (other, *_) in zip(SYNONYMS, SYNONYMS[1:] + SYNONYMS[:1], strict=True):
        assert cosine(found, a, b) > 0.95
        assert cosine(found, a, other) < 0.75
