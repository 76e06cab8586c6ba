"""Contract: unknown tokens, letters of a foreign script and texts beyond the window are counted with every kind of
tokenizer; a text is unreadable if the vocabulary has nothing of it. Warnings name numbers, the parameter and a remedy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from relabel.sources.models.reading import MULTILINGUAL, Reading, Vocabulary

TEXTS = ["a dog", "a dog 🐕 !", "🐕🏖️!", "สุนัขสีน้ำตาล", "كلب بني يركض", "!!!", "Ein brauner Hund"]


def with_pieces(pieces: list[str]) -> Any:
    """Return a tokenizer of sentence pieces, which puts a known mark before every word."""
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in pieces)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def with_bytes() -> Any:
    """Return a tokenizer of bytes, in which no word is unknown; as in CLIP's, the token for such words ends texts."""
    letters = {letter: i for i, letter in enumerate([*pre_tokenizers.ByteLevel.alphabet(), "<end>"])}
    tokenizer = Tokenizer(BPE(letters, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.post_processor = TemplateProcessing("$A <end>", special_tokens=[("<end>", letters["<end>"])])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<end>", eos_token="<end>")


def read(tokenizer: Any, prompt: str = "") -> Reading:
    empty, *tokens = tokenizer([prompt + text for text in ("", *TEXTS)])["input_ids"]
    return Vocabulary(tokenizer.backend_tokenizer, tokenizer.unk_token_id, empty).read(
        tokens, np.zeros(len(tokens), bool)
    )


@pytest.mark.parametrize("prompt", ["", "a caption: "])
def test_every_kind_of_tokenizer(minilm: Path, prompt: str) -> None:
    words = read(AutoTokenizer.from_pretrained(minilm), prompt)
    assert words.tokens.tolist()[:3] == [2, 4, 2]
    # Of the Arabic text, all but the first letter of each word.
    assert words.unknown.tolist() == [0, 1, 1, 1, 7, 0, 0]
    assert np.flatnonzero(words.unreadable).tolist() == [2, 3]
    pieces = read(with_pieces([*"▁!adogcptin:", "▁a", "▁dog"]), prompt)
    assert np.flatnonzero(pieces.unreadable).tolist() == [2, 3, 4]
    every = read(with_bytes(), prompt)
    assert not every.unknown.any()
    assert not every.unreadable.any()


def test_warnings_name_numbers_and_remedies() -> None:
    none, one = np.zeros(1000, np.int32), np.arange(1000) < 1
    tokens = np.full(1000, 10, np.int32)

    def warnings(unknown: int, cut: int, captions: int = 1000) -> list[str]:
        places = np.arange(1000)
        reading = Reading(tokens, np.where(places < unknown, 2, none), places < cut, one)
        return list(reading.warnings("MODEL", "mine", 256, captions))

    assert warnings(50, 5) == []
    (unknown,) = warnings(51, 0)
    assert unknown.startswith("MODEL does not know all words of 51 of 1,000 captions: 1.0% of the tokens are unknown")
    assert f"--set sources.mine.model={MULTILINGUAL}" in unknown
    (cut,) = warnings(0, 6, captions=20_000)
    assert cut.startswith("in a sample of 1,000: 6 captions are longer than 256 tokens: ")
    assert "--set sources.mine.max_length=" in cut
    assert "docs/sources/sbert.md" in cut
