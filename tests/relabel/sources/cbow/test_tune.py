"""Contract: `tune cbow` trains word2vec on a corpus and writes one file in GloVe's format, with the same bytes on every
run, named after its training data and read by cbow. The default context of a word is its image.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.cbow.tune import TuneCbowParams, tune_cbow
from relabel.sources.words.params import find_vectors
from relabel.sources.words.vectors import WordVectors, read_word_vectors
from relabel.store.artefact import build
from relabel.store.manifest import open_artefact

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
    return Corpus.from_captions(captions, [c.text.lower() for c in captions])


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


def test_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path\n"
        "from test_tune import tune\n"
        "tune(Path(sys.argv[1]))\n"
    )
    tune(tmp_path / "here")
    environment = os.environ | {"PYTHONHASHSEED": "4711"}
    command = [sys.executable, "-c", code, str(tmp_path / "there"), str(Path(__file__).parent)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    first, second = (
        find_vectors(str(tmp_path / n / "word2vec"), tmp_path).path.read_bytes() for n in ("here", "there")
    )
    assert first == second


def test_untrainable_corpora_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no split val"):
        tune(tmp_path, splits=("val",))
    pytest.importorskip("gensim")
    with pytest.raises(CheckError, match="no word occurs 100000 times"):
        tune(tmp_path, min_count=100_000)
    monkeypatch.setitem(sys.modules, "gensim", None)
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(MissingError, match=r"pip install 'relabel-itr\[tune\]'"):
        tune(tmp_path)
    assert not (tmp_path / "word2vec").exists()
