"""Contract: the examples run unchanged, reduce their loss, and train on the labels of the lookup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr
from tests.examples.conftest import Example
from tests.relabel.export.formats import exported, in_folder
from tests.relabel.sources.sbert.tiny_encoder import tiny_encoder

from relabel.stages import Session, open_corpus
from relabel_train.lookup import Lookup, open_lookup

ON_CPU = {"use_cpu": True, "disable_tqdm": True}
TRAINERS: list[tuple[str, str, float, dict[str, Any]]] = [
    ("plain_loop", "cbow", 0.8, {"epochs": 6}),
    ("plain_loop", "cider", 0.8, {"epochs": 6}),
    ("clip_loop", "cbow", 0.9, {"epochs": 8}),
    ("clip_loop", "cider", 0.9, {"epochs": 8}),
    ("hf_trainer", "cider", 0.8, {"epochs": 6}),
    ("lightning_trainer", "cbow", 0.8, {"epochs": 6}),
    ("accelerate_loop", "cbow", 0.9, {"epochs": 3, "cpu": True}),
]
"""Example, label, largest share of the first loss that is left at the end, and settings."""
PACKAGES = {"hf_trainer": "accelerate", "lightning_trainer": "lightning", "accelerate_loop": "accelerate"}


def lookup_of(session: Session, label: str) -> Lookup:
    return open_lookup(session.folder("exports", "all", "lookup", label))


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: "-".join(trainer[:2]))
def test_a_trainer_learns(trainer: Any, example: Example, small_project: Session, tmp_path: Path) -> None:
    name, label, left, settings = trainer
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    more = {"folder": tmp_path, **ON_CPU} if name == "hf_trainer" else {}
    first, *_, last = example(name).train(lookup_of(small_project, label), **settings, **more)
    assert last < left * first


def test_the_labels_matter(example: Example, small_project: Session) -> None:
    cbow, same_image = (lookup_of(small_project, label) for label in ("cbow", "same_image"))
    plain, clip = example("plain_loop").train, example("clip_loop").train
    assert plain(cbow, epochs=1) != plain(same_image, epochs=1)
    assert clip(cbow, epochs=1) != clip(cbow, epochs=1, share=0.0)


@pytest.fixture
def encoder(tmp_path: Path) -> Any:
    """Return a sentence encoder of random weights that knows the words of the small project."""
    pytest.importorskip("accelerate", reason="sentence-transformers' trainer needs accelerate")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(tiny_encoder(tmp_path / "tiny", layers=1)), device="cpu")


def test_an_encoder_learns_a_lookup(example: Example, encoder: Any, small_project: Session, tmp_path: Path) -> None:
    corpus, lookup = open_corpus(small_project), lookup_of(small_project, "cider")
    texts = dict(zip(corpus.caption_ids, corpus.texts, strict=True))
    train = example("sentence_transformers_trainer").train
    first, *_, last = train(encoder, texts, lookup, tmp_path, epochs=4, rate=1e-3, **ON_CPU)
    assert last < 0.8 * first


@pytest.mark.slow
def test_an_encoder_learns_pairs(example: Example, encoder: Any, small_project: Session, tmp_path: Path) -> None:
    folder, _ = exported(in_folder(small_project, tmp_path / "labels", "neighbours"), "pairs", "cider", count=200)
    pairs = pq.read_table(next((folder / "data").glob("train-*.parquet")))

    def agreement() -> float:
        """Return the rank correlation of the encoder's cosines with the scores of the pairs."""
        sides = (pairs[name].to_pylist() for name in ("sentence1", "sentence2"))
        left, right = (encoder.encode(side, normalize_embeddings=True) for side in sides)
        return float(spearmanr((left * right).sum(axis=1), pairs["score"].to_numpy()).statistic)

    before = agreement()
    train = example("sentence_transformers_pairs").train
    first, *_, last = train(encoder, folder, tmp_path / "run", epochs=4, rate=1e-3, **ON_CPU)
    # CoSENT's loss is the logarithm of a sum over pairs in wrong order, so it falls slowly.
    assert last < first
    assert agreement() > before + 0.02


@pytest.mark.slow
def test_two_processes_train_as_one(example: Example, small_project: Session) -> None:
    """Blocks of each process give the loss and the gradient of the complete batch."""
    train = example("distributed_clip").train
    folder = str(small_project.folder("exports", "all", "lookup", "cbow"))
    two, one = train(folder, world=2, steps=8), train(folder, world=1, steps=8)
    assert two == pytest.approx(one, rel=1e-4)
    assert sum(one[-3:]) < sum(one[:3])
