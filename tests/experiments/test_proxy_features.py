"""Contract: the word vectors of one caption represent each image. That caption is in no corpus, lookup or label
that training and evaluation read. Vectors of GloVe have noise of the given share, which the seed determines.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments import proxy_features as package
from experiments.params import ProxyFeaturesParams
from experiments.proxy_features import proxy_features, proxy_folder, remaining_project, word_vectors
from relabel import stages
from relabel.sources.words.vectors import WordVectorsFile
from relabel.stages import Session, open_corpus
from relabel_train.features import open_features
from relabel_train.lookup import open_lookup
from relabel_train.reference.data import read_split
from relabel_train.reference.options import FitError

COUNTS = {"train": 10, "val": 5, "test": 8}
SMALL = ProxyFeaturesParams(**COUNTS, vectors=4, encoder="transformer")


def fake_vectors(_: Path, texts: list[str], most: int) -> NDArray[np.float16]:
    """Return one vector per word, which identifies the word."""
    out = np.zeros((len(texts), most, 3), np.float16)
    for i, text in enumerate(texts):
        for j, word in enumerate(text.split()[:most]):
            out[i, j] = [len(word), ord(word[0]) % 97 + 1, 1]
    return out


WORDS = {"dog": [1.0, 2.0, -1.0], "runs": [0.5, -3.0, 2.0], "a": [4.0, 0.0, 1.0]}


@pytest.fixture
def glove(tmp_path: Path) -> WordVectorsFile:
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in WORDS.items()), encoding="utf-8")
    return WordVectorsFile.at(path)


def test_word_vectors_without_noise_are_those_of_the_first_known_words(glove: WordVectorsFile) -> None:
    scale = np.std(list(WORDS.values()))
    found = word_vectors(glove, ["A dog, unknown; RUNS. dog", "runs", "nothing here"], 3, 0.0, 0)
    assert (found.dtype, found.shape) == (np.float16, (3, 3, 3))
    expected = [["a", "dog", "runs"], ["runs"], []]
    for row, words in zip(found, expected, strict=True):
        for j in range(3):
            vector = np.array(WORDS[words[j]]) / scale if j < len(words) else np.zeros(3)
            np.testing.assert_allclose(row[j], vector, rtol=1e-3)


def test_noise_has_the_given_share_and_is_that_of_the_seed(glove: WordVectorsFile) -> None:
    texts = ["a dog runs"] * 4000 + ["nothing here"]
    clean = word_vectors(glove, texts, 4, 0.0, 0).astype(np.float64)
    found = word_vectors(glove, texts, 4, 0.5, 0)
    noise = (found.astype(np.float64) - clean)[:-1, :3]
    assert noise.std() == pytest.approx(0.5, abs=0.01)
    assert abs(noise.mean()) < 0.01
    assert abs(np.corrcoef(noise[:, 0].ravel(), noise[:, 1].ravel())[0, 1]) < 0.05
    assert not found[:, 3].any()
    # An image without a known word has one vector, of noise: a length of 0 is not allowed.
    assert found[-1, 0].any()
    assert not found[-1, 1:].any()
    np.testing.assert_array_equal(found, word_vectors(glove, texts, 4, 0.5, 0))
    assert (found != word_vectors(glove, texts, 4, 0.5, 1)).any()


@pytest.mark.parametrize("changed", [{}, {"noise": 1.0}, {"seed": 1}, {"encoder": "transformer"}])
def test_the_encoder_its_noise_and_seed_identify_features(
    changed: dict[str, Any], glove: WordVectorsFile, small_project: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "find_vectors", lambda *_: glove)
    monkeypatch.setattr(package, "find_model", lambda *_: SimpleNamespace(folder=Path(), sha256=lambda: "fake"))
    jobs = [proxy_features(small_project, ProxyFeaturesParams(**COUNTS, **more)) for more in ({}, changed)]
    first, second = (job.recipe.config() for job in jobs)
    assert (first == second) == (not changed)


def test_no_label_contains_a_held_out_caption(
    small_project: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "find_model", lambda *_: SimpleNamespace(folder=Path(), sha256=lambda: "fake"))
    monkeypatch.setattr(package, "token_vectors", fake_vectors)
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    session = replace(small_project, labels=tmp_path)
    proxy_features(session, SMALL).run()
    left = remaining_project(session)
    stages.ingestion(left).run()
    features, corpus = open_features(proxy_folder(session)), open_corpus(left)
    assert left.folder().name == "coco_proxy"
    assert not set(features.held_out) & set(corpus.caption_ids)
    assert set(corpus.image_ids) == set(features.image_ids)
    stages.encoding(left, "cider", "all").run()
    stages.lookup_export(left, "cider", "all").run()
    lookup = open_lookup(left.folder("exports", "all", "lookup", "cider"))
    split = read_split(left.folder("corpus"), "train", features)
    assert len(split.image_ids) == COUNTS["train"]
    lookup.block(lookup.rows_of(split.caption_ids))
    with pytest.raises(FitError, match="represents its image"):
        read_split(small_project.folder("corpus"), "train", features)
