"""Base class of sentence encoders, which compute unit vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from relabel.core.runtime import Advance, ignore_progress
from relabel.sources.models.forward import Forward, Outputs
from relabel.sources.models.reading import Reading, Vocabulary

MODEL, TOKENIZER, TEXTS, OUTPUTS = "model.xml", "tokenizer.json", "texts.json", "probes.npy"
"""Files of a saved encoder. The weights are in `model.bin`."""


class Embeddings(NamedTuple):
    """Vectors of N texts.

    `vectors`: (N, D) float32; unit vectors; not finite if the model's output is not finite.
    `reading`: statistics of the tokens that the model read.
    """

    vectors: Outputs
    reading: Reading


class Encoder:
    """Base class of sentence encoders.

    `tokenizer`: tokenizer with truncation; None if it is not from the library `tokenizers`. `prompt`: text before every
    input. `unknown`: id of the unknown token.

    `max_length`: maximum number of tokens of a text, including special tokens; None if there is no limit.
    `width`: dimension D of the vectors. `dtype`: dtype of the matrix products. `device`, `backend`: device and backend
    in use. `left_out`: faster backends that the model or machine does not support, with the reason.
    """

    width: int
    dtype: str
    threads: int
    device: str = "cpu"
    backend: str = "openvino"
    left_out: Sequence[str] = ()
    _forward: Forward | None

    def __init__(self, tokenizer: Tokenizer | None, prompt: str, unknown: int | None) -> None:
        self.prompt, self.unknown = prompt, unknown
        self._tokenizer: Any = tokenizer
        self.max_length: int | None = ((tokenizer and tokenizer.truncation) or {}).get("max_length")
        self._vocabulary = Vocabulary(tokenizer, unknown, self.tokens([""])[0][0]) if tokenizer else None

    def encode(self, texts: Sequence[str], advance: Advance = ignore_progress) -> Embeddings:
        """Encode texts without surrounding white space, each distinct text once."""
        stripped = [text.strip() for text in texts]
        number = {text: i for i, text in enumerate(dict.fromkeys(stripped))}
        inverse = np.array([number[text] for text in stripped], np.int64)
        # Duplicates count as finished.
        advance(len(texts) - len(number))
        tokens, reading = self.read(list(number))
        if self._forward:
            vectors = self._forward({"input_ids": tokens}, advance)
        else:
            vectors = self.encode_plain(list(number), self.dtype, self.threads)
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
        # A zero vector stays zero.
        unit = (vectors / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
        return Embeddings(unit[inverse], Reading._make(column[inverse] for column in reading))

    def encode_plain(self, texts: Sequence[str], dtype: str, threads: int) -> Outputs:
        """Return the outputs of sentence-transformers' code for the model."""
        raise NotImplementedError

    def read(self, texts: Sequence[str]) -> tuple[list[list[int]], Reading]:
        """Return the tokens of each text (see `tokens`), and statistics of them."""
        tokens, truncated = self.tokens(texts)
        if self._vocabulary is None:
            zeros = np.zeros(len(texts), np.int32)
            return tokens, Reading(zeros, zeros, truncated, truncated)
        return tokens, self._vocabulary.read(tokens, truncated)

    def tokens(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return the token ids of each text, truncated to `max_length`, and a mask of the truncated ones."""
        if self._tokenizer is None:
            return [], np.zeros(len(texts), bool)
        encodings = self._tokenizer.encode_batch([self.prompt + text for text in texts])
        return [e.ids for e in encodings], np.array([bool(e.overflowing) for e in encodings])
