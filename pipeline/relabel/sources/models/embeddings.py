"""Sentence embeddings: unit vectors of texts.

On a CPU a model runs on OpenVINO, in batches of equal length (`relabel.sources.models.forward`). torch and
sentence-transformers take seconds to import. They are needed only to convert a model, and to compute the outputs that
the converted model must have for a few texts. Both are saved, so later processes load and compare without them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from relabel.core.errors import RelabelError
from relabel.core.parsing import read_json
from relabel.core.runtime import Advance, Runtime, ignore_progress, pick_device
from relabel.sources.models.files import ModelFiles
from relabel.sources.models.forward import PROBES, Forward, Outputs, check_outputs, openvino_forward, product_type
from relabel.sources.models.loading import save_model
from relabel.sources.models.reading import Reading, Vocabulary
from relabel.store.artefact import Recipe, build
from relabel.store.files import cache_folder
from relabel.store.manifest import MANIFEST

if TYPE_CHECKING:
    from relabel.sources.models.encoder import SentenceEncoder

KIND = "openvino_encoder"
MODEL, TOKENIZER, TEXTS, OUTPUTS = "model.xml", "tokenizer.json", "texts.json", "probes.npy"
"""Files of a saved encoder, with the weights in `model.bin`."""
KEPT = 16
"""Saved encoders that stay in the user's cache: those used last."""


class Embeddings(NamedTuple):
    """Vectors of N texts.

    `vectors`: (N, D) float32; task vectors; not finite if the model's output is not.
    `reading`: what the model read of the texts.
    """

    vectors: Outputs
    reading: Reading


class Encoder:
    """A sentence encoder.

    `tokenizer`: it truncates texts to the tokens that the model reads; None if it is not of the library `tokenizers`.
    `prompt`: text before every input. `unknown`: id of the token for what the vocabulary lacks.

    `max_length`: tokens a text is truncated to, special tokens included; None if there is no limit.
    `width`: dimension D of the vectors. `dtype`: type of the matrix products. `device`, `backend`: the computation in
    use. `left_out`: faster computations that this model or machine does not support, with the reason.
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
        """Encode texts, stripped of white space around them, each distinct text once."""
        stripped = [text.strip() for text in texts]
        number = {text: i for i, text in enumerate(dict.fromkeys(stripped))}
        inverse = np.array([number[text] for text in stripped], np.int64)
        # Copies of a text are done at once.
        advance(len(texts) - len(number))
        tokens, reading = self.read(list(number))
        if self._forward:
            vectors = self._forward({"input_ids": tokens}, advance)
        else:
            vectors = self.encode_plain(list(number), self.dtype, self.threads)
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
        # Norms in float64; a zero vector stays zero.
        unit = (vectors / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
        return Embeddings(unit[inverse], Reading._make(column[inverse] for column in reading))

    def encode_plain(self, texts: Sequence[str], dtype: str, threads: int) -> Outputs:
        """Return the outputs of the model's own code."""
        raise NotImplementedError

    def read(self, texts: Sequence[str]) -> tuple[list[list[int]], Reading]:
        """Return the tokens of each text (see `tokens`), and what the model reads of it."""
        tokens, truncated = self.tokens(texts)
        if self._vocabulary is None:
            none = np.zeros(len(texts), np.int32)
            return tokens, Reading(none, none, truncated, truncated)
        return tokens, self._vocabulary.read(tokens, truncated)

    def tokens(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return the token ids of each text, truncated to `max_length`, and a mask of the truncated ones."""
        if self._tokenizer is None:
            return [], np.zeros(len(texts), bool)
        encodings = self._tokenizer.encode_batch([self.prompt + text for text in texts])
        return [one.ids for one in encodings], np.array([bool(one.overflowing) for one in encodings])


class SavedEncoder(Encoder):
    """A sentence encoder of OpenVINO, from the files of `SentenceEncoder.save`.

    Raises CheckError if its outputs differ from those of the model's own code.
    """

    def __init__(self, folder: Path, dtype: str, runtime: Runtime) -> None:
        super().__init__(Tokenizer.from_file(str(folder / TOKENIZER)), **read_json(folder / TEXTS))
        self.dtype, expected = product_type(dtype, self.device), np.load(folder / OUTPUTS)
        self._forward, self.width = openvino_forward(folder / MODEL, self.dtype, runtime.threads), expected.shape[1]
        check_outputs(self._forward, {"input_ids": self.tokens(PROBES)[0]}, expected, self.dtype)


def load_encoder(
    files: ModelFiles, prompt: str | None, max_length: int | None, dtype: str, runtime: Runtime
) -> Encoder:
    """Load a sentence encoder (parameters as for SentenceEncoder), on a CPU from files that the first load saves.

    They lie in the user's cache. If they cannot be written or used, the model is loaded by sentence-transformers.
    """

    @cache
    def load() -> SentenceEncoder:
        from relabel.sources.models.encoder import SentenceEncoder

        return SentenceEncoder(files.folder, prompt, max_length, dtype, runtime)

    if pick_device(runtime.device) == "cpu":
        config = {"prompt": prompt, "max_length": max_length}
        name = hashlib.sha256(json.dumps([str(files.folder), *config.values()]).encode()).hexdigest()
        out, inputs = cache_folder("encoders") / name[:16], {"base": files.sha256}
        recipe = Recipe(KIND, files.name, lambda: config, inputs, lambda work: save_model(load().save, work))
        # Also the first process computes with what is saved: a converted model differs from it in the last bit.
        with suppress(ImportError, RuntimeError, RelabelError):
            build(out, recipe)
            delete_unused(out)
            return SavedEncoder(out, dtype, runtime)
    return load()


def delete_unused(used: Path) -> None:
    """Mark a saved encoder as used now, and delete those of its folder that are not among the last `KEPT` in use."""
    with suppress(OSError):
        os.utime(used)
        saved = [path.parent for path in used.parent.glob(f"*/{MANIFEST}")]
        for folder in sorted(saved, key=lambda folder: folder.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(folder)
