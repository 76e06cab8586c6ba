"""Contract: the examples run unchanged, reduce their loss, and train on the labels of the lookup."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.stages import Project
from relabel_train.lookup import open_lookup

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> object:
    """Import an example by name, as another example would."""
    import torch

    torch.set_num_threads(1)  # one thread is faster for such a small model
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(name: str) -> ModuleType:
        for example_name in (path.stem for path in EXAMPLES.glob("*.py")):
            monkeypatch.delitem(sys.modules, example_name, raising=False)
        return import_module(name)

    return load


def test_a_plain_loop_learns(example, small_project: Project) -> None:  # type: ignore[no-untyped-def]
    train = example("plain_loop").train
    for label in ("cbow", "cider"):
        lookup = open_lookup(small_project.folder("exports", "all", "lookup", label))
        first, *_, last = train(lookup, epochs=6)
        assert last < 0.8 * first
    other = open_lookup(small_project.folder("exports", "all", "lookup", "same_image"))
    assert train(other, epochs=1) != train(lookup, epochs=1)  # the labels matter


def test_hf_trainer_learns(example, small_project: Project, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    first, *_, last = example("hf_trainer").train(lookup, tmp_path, epochs=6, use_cpu=True, disable_tqdm=True)
    assert last < 0.8 * first


def test_a_clip_trainer_learns_from_soft_targets(example, small_project: Project) -> None:  # type: ignore[no-untyped-def]
    train = example("clip_loop").train
    for label in ("cbow", "cider"):
        lookup = open_lookup(small_project.folder("exports", "all", "lookup", label))
        first, *_, last = train(lookup, epochs=8)
        assert last < 0.9 * first
    graded, hard = train(lookup, epochs=1), train(lookup, epochs=1, share=0.0)
    assert graded != hard  # the labels matter


@pytest.mark.skipif(not find_spec("accelerate"), reason="sentence-transformers' trainer needs accelerate")
def test_a_sentence_encoder_learns_a_lookup(example, small_project: Project, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    corpus = small_project.corpus
    texts = dict(zip(corpus.caption_ids, corpus.texts, strict=True))
    train = example("sentence_transformers_trainer").train
    model = _tiny_encoder(tmp_path / "model", sorted({w for t in texts.values() for w in t.split()}))
    first, *_, last = train(model, texts, lookup, tmp_path, epochs=4, rate=1e-3, use_cpu=True, disable_tqdm=True)
    assert last < 0.8 * first


@pytest.mark.skipif(not find_spec("accelerate"), reason="sentence-transformers' trainer needs accelerate")
@pytest.mark.slow
def test_a_sentence_encoder_learns_pairs(example, small_project: Project, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(small_project.labels, tmp_path / "labels")
    project = with_params(replace(small_project, labels=tmp_path / "labels"), "pairs", count=200)
    job = stages.export(project, "pairs", "cider", "all")
    job.run()
    model = _tiny_encoder(tmp_path / "model", sorted({w for text in project.corpus.texts for w in text.split()}))
    pairs = pq.read_table(next((job.out / "data").glob("train-*.parquet")))

    def agreement() -> float:
        """Return the rank correlation of the encoder's cosines with the scores of the pairs."""
        sides = (pairs[name].to_pylist() for name in ("sentence1", "sentence2"))
        first, second = (model.encode(side, normalize_embeddings=True) for side in sides)
        return float(spearmanr((first * second).sum(axis=1), pairs["score"].to_numpy()).statistic)

    before = agreement()
    train = example("sentence_transformers_pairs").train
    first, *_, last = train(model, job.out, tmp_path / "run", epochs=4, rate=1e-3, use_cpu=True, disable_tqdm=True)
    # CoSENT's loss is the logarithm of a sum over pairs in wrong order, so it falls slowly.
    assert last < first
    assert agreement() > before + 0.02


@pytest.mark.skipif(not find_spec("lightning"), reason="lightning is not installed")
def test_lightning_learns(example, small_project: Project, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    first, *_, last = example("lightning_trainer").train(lookup, epochs=6)
    assert last < 0.8 * first


@pytest.mark.skipif(not find_spec("accelerate"), reason="accelerate is not installed")
def test_an_accelerate_loop_is_the_plain_loop(example, small_project: Project) -> None:  # type: ignore[no-untyped-def]
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    losses = example("accelerate_loop").train(lookup, epochs=3, cpu=True)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
def test_two_processes_train_as_one(example, small_project: Project) -> None:  # type: ignore[no-untyped-def]
    """Blocks of each process give the loss and the gradient of the complete batch."""
    train = example("distributed_clip").train
    folder = str(small_project.folder("exports", "all", "lookup", "cbow"))
    two, one = train(folder, world=2, steps=8), train(folder, world=1, steps=8)
    assert two == pytest.approx(one, rel=1e-4)
    assert sum(one[-3:]) < sum(one[:3])


def _tiny_encoder(folder: Path, words: list[str]):  # type: ignore[no-untyped-def]
    """Make a sentence encoder of random weights with a vocabulary of the given words."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab_file=str(vocabulary), do_lower_case=False, strip_accents=False)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    with torch.random.fork_rng():
        torch.manual_seed(0)  # weights that do not depend on the tests before
        BertModel(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    body = models.Transformer(str(folder))
    return SentenceTransformer(modules=[body, models.Pooling(32)], device="cpu")
