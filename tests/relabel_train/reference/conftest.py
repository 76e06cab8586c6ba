"""A small training set: the small project's corpus and lookups, and regions that identify their image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel_train.reference.runs import Run

from relabel.stages import Session, open_corpus
from relabel_train.reference.options import FitOptions


@pytest.fixture(scope="session")
def regions(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write SCAN's files for the 60 images: a random vector per word of their captions, with noise."""
    folder, corpus = tmp_path_factory.mktemp("regions"), open_corpus(small_project)
    rng = np.random.default_rng(3)
    words = sorted({word for text in corpus.texts for word in text.split()})
    vectors = dict(zip(words, rng.normal(size=(len(words), 12)), strict=True))
    for split, name in (("train", "train"), ("val", "dev"), ("test", "test")):
        span = corpus.images([split])
        array = np.zeros((len(span), 5, 12), np.float32)
        for i, image in enumerate(span):
            text = corpus.texts[corpus.indptr[image]].split()
            for r in range(5):
                array[i, r] = vectors[text[int(rng.integers(len(text)))]] + rng.normal(size=12) * 0.1
        np.save(folder / f"{name}_ims.npy", array)
        ids = [corpus.image_ids[i].removeprefix("coco:") for i in span]
        (folder / f"{name}_ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def run(small_project: Session, regions: Path, tmp_path: Path) -> Run:
    """Return a function that makes the options of a tiny run."""

    def make(name: str = "run", **changed: Any) -> FitOptions:
        corpus, lookup = small_project.folder("corpus"), small_project.folder("exports", "all", "lookup", "cbow")
        places = {"features": regions, "captions": corpus, "out": tmp_path / name, "lookup": lookup}
        tiny = {"batch_size": 16, "epochs": 2, "min_count": 1, "log_every": 1}
        model = {"embed_dim": 12, "word_dim": 6, "name": changed.pop("model", "vsepp")}
        return FitOptions(**{**places, **tiny, "model": model, **changed})

    return make
