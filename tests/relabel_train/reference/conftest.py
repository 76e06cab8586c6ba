"""A small training set: the small project's corpus and lookups, regions that identify their image, a transformer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.relabel_train.reference.runs import Run

from relabel.stages import Project
from relabel_train.reference.options import FitOptions


@pytest.fixture(scope="session")
def regions(small_project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write SCAN's files for the 60 images: a random vector per word of their captions, with noise."""
    folder, corpus = tmp_path_factory.mktemp("regions"), small_project.corpus
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
def run(small_project: Project, regions: Path, tmp_path: Path) -> Run:
    """Return a function that makes the options of a tiny run."""

    def make(name: str = "run", **changed: Any) -> FitOptions:
        corpus, lookup = small_project.folder("corpus"), small_project.folder("exports", "all", "lookup", "cbow")
        places = {"features": regions, "captions": corpus, "out": tmp_path / name, "lookup": lookup}
        tiny = {"batch_size": 16, "epochs": 2, "embed_dim": 12, "word_dim": 6, "min_count": 1, "log_every": 1}
        return FitOptions(**{**places, **tiny, **changed})

    return make


@pytest.fixture
def transformer(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes an untrained text model of a few parameters, and returns its folder.

    The model has a pooler, and is in the format of transformers; the test is skipped without that package.
    """
    transformers: Any = pytest.importorskip("transformers")

    def write(kind: str = "Bert", dtype: torch.dtype = torch.float32) -> str:
        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "man", "two")
        (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        transformers.BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
        small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        config = getattr(transformers, f"{kind}Config")(vocab_size=len(words), pad_token_id=0, **small)
        getattr(transformers, f"{kind}Model")(config).to(dtype).save_pretrained(tmp_path)
        return str(tmp_path)

    return write
