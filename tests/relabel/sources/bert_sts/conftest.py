"""Tiny cross-encoders with random weights, and a project whose labels are gated by word vectors, without network."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.runtime import Runtime
from relabel.stages import Session

WORDS = tuple("a dog cat man red blue bus runs sits on the grass street with two birds near water".split())  # noqa: SIM905
MakeCross = Callable[..., Path]


@pytest.fixture(scope="session")
def make_cross(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> MakeCross:
    """Return a function that makes a cross-encoder of two layers: `make_cross("roberta")`."""

    @cache
    def make(kind: str = "bert") -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

        torch.manual_seed(1)
        folder, tokenizer = tmp_path_factory.mktemp("cross"), AutoTokenizer.from_pretrained(minilm)
        sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 1}
        sizes |= {"intermediate_size": 64, "initializer_range": 0.3, "vocab_size": len(tokenizer)}
        config = AutoConfig.for_model(kind, max_position_embeddings=66, **sizes)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def gated(tmp_path: Path, make_cross: MakeCross) -> Callable[..., Session]:
    """Return a function that makes a project of images with 1 to 4 captions each, with label `fine` gated by `near`.

    One caption in four repeats an earlier text. One is in capitals, which make it another text.
    """

    def make(threshold: float = 0.5, count: int = 24, **params: Any) -> Session:
        draw, lines, texts = np.random.default_rng(4), list[str](), list[str]()
        for image in range(count):
            for position in range(int(draw.integers(1, 5))):
                text = " ".join(draw.choice(WORDS, int(draw.integers(2, 5))))
                if texts and draw.random() < 0.25:
                    text = texts[int(draw.integers(len(texts)))]
                text = text.upper() if image == 3 and position == 0 else text
                texts.append(text)
                lines.append(f"c{image}-{position},{image},test,{text}")
        (tmp_path / "captions.csv").write_text("\n".join(["caption_id,image_id,split,text", *lines]))
        vectors = np.random.default_rng(5).standard_normal((len(WORDS), 6)) + 0.4
        rows = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS[:-1], vectors.tolist(), strict=False)]
        (tmp_path / "words.txt").write_text("".join(rows))
        fine = {"source": "bert_sts", "model": str(make_cross()), "gate": "near", "threshold": threshold, **params}
        near = {"source": "cbow", "vectors": str(tmp_path / "words.txt"), "tokenizer": "lower_split"}
        settings = [f"ingest.path={tmp_path / 'captions.csv'}", "ingest.dataset=mine"]
        settings += ["neighbours.k=6", f"sources={json.dumps({'near': near, 'fine': fine})}"]
        config = Config(**load_config(None, settings).model_dump())  # values count as those of the parameter file
        session = Session(config, Runtime(data=tmp_path / "data", threads=1, rows_per_shard=20), tmp_path / "labels")
        stages.ingestion(session).run()
        stages.build_encoding(session, "fine", "all")
        return session

    return make
