"""A tiny random BERT as a folder for sentence-transformers, and a few judged captions to tune it on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.datasets.cxc import SIDES, HumanScores, JudgedSplit, Task

WORDS = ["a", "the", "man", "dog", "on", "red", "bus", "with", "two", "cats", "in", "street", "riding", "big"]
IMAGES = 24


def tiny_encoder(folder: Path, layers: int = 3, spread: float = 0.02) -> Path:
    """Make a 32-dimensional BERT with a small vocabulary and the same bytes on every call; `spread`: of its weights."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    parts = folder / "parts"
    parts.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (parts / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(parts / "vocab.txt")).save_pretrained(parts)
    shape = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 40}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(vocab_size=len(words), num_hidden_layers=layers, initializer_range=spread, **shape)
        BertModel(config).save_pretrained(parts)
    model = SentenceTransformer(modules=[Transformer(str(parts)), Pooling(32)], device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def texts(count: int, seed: int = 0) -> list[str]:
    """Return captions of two to eleven words."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 12)))) for _ in range(count)]


def small_corpus(images: int = IMAGES) -> Corpus:
    """Return `images` of val with COCO-like ids, and one image of test whose captions no tuning may read."""
    val = [(1000 + i, 1 + i // 5, "val", text) for i, text in enumerate(texts(5 * images))]
    test = [(9000 + k, 900, "test", "never read") for k in range(5)]
    return Corpus.from_captions(Caption(f"coco:{c}", f"coco:{i}", split, text) for c, i, split, text in (*val, *test))


def small_scores(images: int = IMAGES) -> Callable[[Task, JudgedSplit], HumanScores]:
    """Return judged pairs of `small_corpus`, scored by the share of common words; a request for test raises."""
    words, draw = [set(text.split()) for text in texts(5 * images)], np.random.default_rng(1)
    sts = [(5 * m, 5 * m + k, "c2c_cocaption") for m in range(images) for k in (1, 2)]
    sits = [(c, c // 5, "c2i_original") for c in range(5 * images)]
    sis = [(m, (m + 1) % images, "i2i_csim") for m in range(images)]
    for _ in range(6 * images):
        # Images are judged with the next ones, so that the graph has communities as CxC's.
        a = int(draw.integers(images))
        b, (x, y) = (a + int(draw.integers(1, 4))) % images, draw.integers(5, size=2).tolist()
        sts.append((5 * a + x, 5 * b + y, "c2c_isim"))
        sits.append((5 * a + x, b, "c2i_intrasim"))

    def of_captions(a: int, b: int) -> float:
        return 5 * len(words[a] & words[b]) / len(words[a] | words[b])

    def of_image(caption: int, image: int) -> float:
        return max(of_captions(caption, 5 * image + k) for k in range(5))

    judged: dict[Task, list[tuple[int, int, str]]] = {"sts": sts, "sits": sits, "sis": sis}
    measures, first, scores = {"sts": of_captions, "sits": of_image}, {"caption": 1000, "image": 1}, {}
    for task, pairs in judged.items():
        left, right, method = map(list, zip(*dict.fromkeys(pairs), strict=True))
        measure = measures.get(task)  # images have no texts to compare
        found = [measure(a, b) for a, b in zip(left, right, strict=True)] if measure else draw.random(len(left)) * 5
        ids = ([f"coco:{first[kind] + i}" for i in side] for kind, side in zip(SIDES[task], (left, right), strict=True))
        scores[task] = HumanScores(task, "val", *ids, np.array(found), method)

    def human_scores(task: Task, split: JudgedSplit) -> HumanScores:
        assert split == "val", "test is what labels are judged by"
        return scores[task]

    return human_scores


def use_small_scores(monkeypatch: pytest.MonkeyPatch, images: int = IMAGES) -> None:
    """Replace CxC's scores by these for tuning."""
    monkeypatch.setattr("relabel.sources.sbert.tune_data.human_scores", small_scores(images))
