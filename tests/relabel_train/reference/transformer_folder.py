"""Untrained text models of a few parameters, in the format of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "man", "two")


def write_transformer(
    folder: Path, kind: Literal["bert", "roberta"] = "bert", dtype: torch.dtype = torch.float32
) -> None:
    """Write a text model with a pooler, and its tokenizer; skip the test if transformers is not installed."""
    transformers = pytest.importorskip("transformers")
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config, model = {
        "bert": (transformers.BertConfig, transformers.BertModel),
        "roberta": (transformers.RobertaConfig, transformers.RobertaModel),
    }[kind]
    model(config(vocab_size=len(WORDS), pad_token_id=0, **small)).to(dtype).save_pretrained(folder)
