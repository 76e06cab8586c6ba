"""Contract: cbow is the cosine of mean word vectors, equal to an explicit loop. Words without a vector change nothing;
captions without any have a zero vector and relevance 0; both are counted.

Contract: `tune cbow` trains word2vec on a corpus and writes one file in GloVe's format, with the same bytes on every
run, named after its training data and read by cbow. The default context of a word is its image.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.relabel.sources.encodings import encode

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources.base import Encoding
from relabel.sources.cbow import Cbow, CbowParams, load_tagger
from relabel.sources.cbow.tune import TuneCbowParams, tune_cbow
from relabel.sources.cosine import VectorRelevance
from relabel.sources.words.params import find_vectors
from relabel.sources.words.vectors import WordVectors, read_word_vectors
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, open_artefact

TEXTS = [
    "A dog runs",
    "a dog, unseen, runs",
    "two cats sleep on a sofa",
    "qwx zzz",
    "a dog runs",
    "dog dog cats",
    "two",
    "Sofa a a a",
]
PTB = [t.lower().replace(",", "") for t in TEXTS]
WORDS = ["a", "dog", "runs", "two", "cats", "sleep", "on", "sofa"]


def corpus() -> Corpus:
    captions = [Caption(f"t:{i}", f"t:{i // 2}", "test", t) for i, t in enumerate(TEXTS)]
    return replace(Corpus.from_captions(captions), tokenize=lambda _: PTB)


def glove(folder: Path, seed: int = 0) -> tuple[Path, dict[str, NDArray[np.float64]]]:
    vectors = np.random.default_rng(seed).normal(size=(len(WORDS), 7)).round(4)
    path = folder / f"glove.{seed}.7d.txt"
    path.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(WORDS, vectors.tolist(), strict=True)))
    return path, dict(zip(WORDS, vectors, strict=True))


def encoded(
    folder: Path, captions: Corpus, rows: range | None = None, rows_per_shard: int = 100, **params: Any
) -> tuple[VectorRelevance, Manifest]:
    runtime = Runtime(data=folder / "data", threads=1)
    return encode(Cbow(CbowParams(**params)), captions, folder / "encoding", rows, rows_per_shard, runtime)


def mean_vector(words: list[str], known: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
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
    path, vectors_of = glove(tmp_path)
    relevance, _ = encoded(tmp_path, corpus(), vectors=str(path), tokenizer=tokenizer)
    tokens = [t.split() for t in PTB] if tokenizer == "ptb" else [t.lower().split() for t in TEXTS]
    expected = np.array([mean_vector(t, vectors_of) for t in tokens])
    np.testing.assert_allclose(relevance.vectors, expected, atol=1e-7)
    n = len(TEXTS)
    every = np.arange(n, dtype=np.int32)
    block = relevance.block(References.single(every), every, "first")
    np.testing.assert_allclose(block, expected @ expected.T, atol=1e-6)
    assert -1 - 1e-6 <= block.min() <= block.max() <= 1 + 1e-6
    references = corpus().references(range(n // 2))
    for pooling, reduce in (("first", lambda x: x[0]), ("max", max), ("mean", np.mean)):
        computed = relevance.block(references, every, pooling)  # type: ignore[arg-type]
        loop = [[reduce([expected[r] @ expected[j] for r in references[i]]) for j in every] for i in range(n // 2)]
        np.testing.assert_allclose(computed, loop, atol=1e-6)


def test_captions_without_a_known_word_have_relevance_zero_and_are_counted(tmp_path: Path) -> None:
    path, _ = glove(tmp_path)
    relevance, manifest = encoded(tmp_path, corpus(), vectors=str(path))
    assert not relevance.vectors[3].any()
    every = np.arange(len(TEXTS), dtype=np.int32)
    assert not relevance.block(References.single(every), every)[3].any()
    metadata = manifest.metadata
    assert metadata["without_vector"] == 1
    assert metadata["warnings"][0] == "1 captions have no known word: their relevance is 0"
    assert metadata["oov"] == {
        "tokens": 3,
        "of_tokens": sum(len(t.split()) for t in PTB),
        "rate": round(3 / sum(len(t.split()) for t in PTB), 6),
        "words": 3,
        "of_words": len({w for t in PTB for w in t.split()}),
        "most_frequent": [["unseen", 1], ["qwx", 1], ["zzz", 1]],
    }


def test_a_new_text_scores_as_a_caption(tmp_path: Path) -> None:
    path, _ = glove(tmp_path)
    captions = corpus()
    relevance, manifest = encoded(tmp_path, captions, range(2), vectors=str(path), tokenizer="lower_split")
    complete, _ = encoded(tmp_path / "whole", captions, vectors=str(path), tokenizer="lower_split")
    at = np.arange(2, dtype=np.int32)
    for row, text in enumerate(TEXTS):  # `sofa` and other words do not occur in the encoded rows
        np.testing.assert_allclose(relevance.query(text, at), complete.vectors[:2] @ complete.vectors[row], atol=1e-7)
    assert not relevance.query("qwx \udc80", at).any()
    source = Cbow(CbowParams(vectors=str(path), tokenizer="lower_split"))
    reopened = source.open(Encoding(captions, tmp_path / "encoding", manifest, Runtime()))
    glove(tmp_path, seed=1)[0].replace(path)
    with pytest.raises(CheckError, match="not the word vectors that the encoding was made with"):
        reopened.query("a new dog", at)


class FakeSpacy(ModuleType):
    """Tagger that marks `dog`, `cats` and `sofa` as nouns; knows one model, and one that does not tag."""

    __version__ = "0"

    def __init__(self) -> None:
        super().__init__("spacy")

    def load(self, name: str, exclude: tuple[str, ...]) -> SimpleNamespace:
        if name not in ("tagger", "blank"):
            raise OSError(f"[E050] Can't find model {name!r}")
        meta = {"name": name, "version": "1.0"}
        names = ["tagger"] if name == "tagger" else ["tok2vec"]
        return SimpleNamespace(meta=meta, pipe_names=names, pipe=self.pipe, make_doc=self.make_doc)

    @classmethod
    def make_doc(cls, text: str) -> Any:
        """Split a text without tags."""
        return [SimpleNamespace(lower_=t.lower_, is_space=t.is_space, pos_="") for t in next(cls.pipe([text], 1))]

    @staticmethod
    def pipe(texts: list[str], batch_size: int) -> Any:
        for text in texts:
            yield [
                SimpleNamespace(
                    lower_=w.lower(), is_space=not w, pos_="NOUN" if w.lower() in ("dog", "cats", "sofa") else "X"
                )
                for w in text.replace(",", " ,").split(" ")
            ]


@pytest.fixture
def spacy(monkeypatch: pytest.MonkeyPatch) -> Any:
    load_tagger.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", FakeSpacy())
    yield
    load_tagger.cache_clear()


@pytest.mark.usefixtures("spacy")
def test_ladder_counts_nouns_twice(tmp_path: Path) -> None:
    path, vectors_of = glove(tmp_path)
    relevance, manifest = encoded(tmp_path, corpus(), vectors=str(path), weighting="ladder", tagger="tagger")
    doubled = [[w for w in t.split() for _ in range(2 if w in ("dog", "cats", "sofa") else 1)] for t in PTB]
    expected = np.array([mean_vector(words, vectors_of) for words in doubled])
    np.testing.assert_allclose(relevance.vectors, expected, atol=1e-7)
    assert manifest.metadata["tokenizer"] == "spacy"
    assert manifest.config["tagger"] == "tagger 1.0, spacy 0"
    at = np.arange(len(TEXTS), dtype=np.int32)
    np.testing.assert_allclose(relevance.query(TEXTS[5], at), expected @ expected[5], atol=1e-6)


SYNONYMS = [
    ("sofa", "couch", "settee"),
    ("dog", "puppy", "hound"),
    ("bike", "bicycle", "cycle"),
    ("jet", "plane", "liner"),
]
FILLERS = ["a", "the", "of", "on", "red", "big", "near", "some"]


def make_corpus(images: int = 1500, seed: int = 0) -> Corpus:
    """Return images of one thing each, which every caption calls by one of three names; no two names share a
    caption.
    """
    draw = random.Random(seed)
    captions = []
    for image in range(images):
        names = SYNONYMS[image % len(SYNONYMS)]
        for k in range(4):
            words = [*draw.sample(FILLERS, 3), draw.choice(names)]
            draw.shuffle(words)
            split = "test" if image % 10 == 9 else "train"
            captions.append(Caption(f"toy:{4 * image + k}", f"toy:{image}", split, " ".join(words).title()))
    return replace(Corpus.from_captions(captions), tokenize=lambda corpus: [text.lower() for text in corpus.texts])


PARAMS: dict[str, Any] = {"width": 12, "epochs": 5, "sample": 1e-2}


def tune(folder: Path, corpus: Corpus | None = None, **params: Any) -> WordVectors:
    out = folder / "word2vec"
    build(out, tune_cbow(TuneCbowParams(**PARAMS | params), corpus or make_corpus(), Runtime()))
    return read_word_vectors(find_vectors(str(out), folder))


def cosine(found: WordVectors, a: str, b: str) -> float:
    x, y = found.vectors[found.index[a]], found.vectors[found.index[b]]
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def test_the_file_is_read_and_recorded_by_cbow(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    corpus = make_corpus()
    manifest, built = build(tmp_path / "word2vec", tune_cbow(TuneCbowParams(**PARAMS), corpus, Runtime()))
    assert built
    assert manifest.name == find_vectors(str(tmp_path / "word2vec"), tmp_path).name == "word2vec toy-train 12d"
    assert list(manifest.files) == ["word2vec.toy-train.12d.txt"]
    assert manifest == open_artefact(tmp_path / "word2vec", "word_vectors")
    train = corpus.rows(["train"])
    counts = Counter(w for t in corpus.texts[train.start : train.stop] for w in t.lower().split())
    assert manifest.metadata["tokens"] == counts.total()
    assert manifest.metadata["documents"] == 1350
    table = read_word_vectors(find_vectors(str(tmp_path / "word2vec"), tmp_path))
    assert table.index.keys() == counts.keys()
    frequencies = [counts[w] for w in table.index]
    assert frequencies == sorted(frequencies, reverse=True)
    mean = np.array(frequencies) @ table.vectors / sum(frequencies)  # subtracted before writing six digits
    np.testing.assert_allclose(mean, 0, atol=1e-5)
    again, built = build(tmp_path / "word2vec", tune_cbow(TuneCbowParams(**PARAMS), corpus, Runtime()))
    assert (again, built) == (manifest, False)
    other, built = build(tmp_path / "word2vec", tune_cbow(TuneCbowParams(**PARAMS, seed=2), corpus, Runtime()))
    assert built
    assert other.files != manifest.files


def test_synonyms_share_images_but_no_captions(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    images = tune(tmp_path / "image")
    captions = tune(tmp_path / "caption", context="caption")
    for (a, b, _), (other, *_) in zip(SYNONYMS, SYNONYMS[1:] + SYNONYMS[:1], strict=True):
        assert cosine(images, a, b) > 0.95
        assert cosine(images, a, other) < 0.75
        assert abs(cosine(captions, a, b) - cosine(captions, a, other)) < 0.1  # captions do not separate the things
