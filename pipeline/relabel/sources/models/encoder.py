"""Sentence embeddings: unit vectors of texts.

A model runs in batches of equal length (`relabel.sources.models.forward`), by OpenVINO on a CPU, else by torch. Either
is compared with the model's own `encode` on a few texts, which takes its place where vectors differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Advance, Runtime, ignore_progress, pick_device
from relabel.sources.models.forward import PROBES, Features, Outputs, convert, pick_forward, product_type, products
from relabel.sources.models.loading import default_prompt, length_limit, load_model, quiet
from relabel.sources.models.reading import Reading, Vocabulary


class Embeddings(NamedTuple):
    """Vectors of N texts.

    `vectors`: (N, D) float32; task vectors; not finite if the model's output is not.
    `reading`: what the model read of the texts.
    """

    vectors: Outputs
    reading: Reading


class SentenceEncoder:
    """A loaded sentence encoder.

    `folder`: folder of the model's files. `prompt`: text before every input; None uses the model's default prompt, ""
    uses none. `max_length`: tokens a text is truncated to, special tokens included; None uses the model's limit.
    `dtype`: type of matrix products (see `product_type`); sums and norms stay in float32. `runtime`: threads and
    device. `int8`: the model of OpenVINO for this type (see `relabel.sources.sbert.quantize`).

    `width`: dimension D of the vectors.
    `backend`: name of the computation in use.
    `left_out`: faster computations that this model or machine does not support, with the reason.
    """

    def __init__(
        self, folder: Path, prompt: str | None, max_length: int | None, dtype: str, runtime: Runtime, int8: Any = None
    ) -> None:
        self.device, self._threads = pick_device(runtime.device), runtime.threads
        self.dtype = product_type(dtype, self.device)
        self._model = load_model(folder, self.device, max_length)
        self.prompt = default_prompt(self._model) if prompt is None else prompt
        self.max_length = length_limit(self._model)
        empty, _ = self.tokens([""])
        self._vocabulary = Vocabulary(self._model.tokenizer, empty[0]) if empty else None
        with quiet():
            # A few probes need no threads, which would wait for each other on a busy machine.
            expected = self._encode_plain(PROBES, "float32", 1)
            if not np.isfinite(expected).any():
                raise CheckError("this model gives no finite vector", where=str(folder), todo="Name another model.")
            self._forward, self.backend, self.left_out = pick_forward(
                lambda: _WithoutMask(self._model), ["input_ids"], self._probes, expected, self.dtype, runtime, int8
            )
        self.width = expected.shape[1]
        if dtype == "int8" and self._forward is None:
            raise UsageError(f"no int8 with this model ({'; '.join(self.left_out)})", todo="Use float32 or bfloat16.")

    def encode(self, texts: Sequence[str], advance: Advance = ignore_progress) -> Embeddings:
        """Encode texts, stripped of white space around them, each distinct text once."""
        stripped = [text.strip() for text in texts]
        number = {text: i for i, text in enumerate(dict.fromkeys(stripped))}
        inverse = np.array([number[text] for text in stripped], np.int64)
        # Copies of a text are done at once.
        advance(len(texts) - len(number))
        with quiet():
            tokens, reading = self.read(list(number))
            if self._forward:
                vectors = self._forward({"input_ids": tokens}, advance)
            else:
                vectors = self._encode_plain(list(number), self.dtype, self._threads)
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
        # Norms in float64; a zero vector stays zero.
        unit = (vectors / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
        return Embeddings(unit[inverse], Reading._make(column[inverse] for column in reading))

    def read(self, texts: Sequence[str]) -> tuple[list[list[int]], Reading]:
        """Return the tokens of each text (see `tokens`), and what the model reads of it."""
        with quiet():
            tokens, truncated = self.tokens(texts)
        if self._vocabulary is None:
            none = np.zeros(len(texts), np.int32)
            return tokens, Reading(none, none, truncated, truncated)
        return tokens, self._vocabulary.read(tokens, truncated)

    def tokens(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return the token ids of each text, truncated to `max_length`, and a mask of the truncated ones."""
        full = [self.prompt + text for text in texts]
        if getattr(self._model[0], "do_lower_case", False):
            full = [text.lower() for text in full]
        tokenizer: Any = self._model.tokenizer
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            # Models of words have tokenizers of their own, which truncate nothing.
            return [], np.zeros(len(texts), bool)
        tokens: list[list[int]] = tokenizer(full, return_attention_mask=False, verbose=False)["input_ids"]
        lengths = np.array([len(ids) for ids in tokens])
        truncated = lengths > (self.max_length or lengths.max())
        for i in np.flatnonzero(truncated).tolist():
            tokens[i] = tokenizer(full[i], truncation=True, max_length=self.max_length)["input_ids"]
        return tokens, truncated

    def convert(self) -> Any:
        """Return the model as one of OpenVINO, whose only input is `input_ids`."""
        return convert(_WithoutMask(self._model), ["input_ids"])

    def _probes(self) -> Features:
        """Return the tokens of the probes, of a model that pools all tokens."""
        if self.prompt and not all(getattr(module, "include_prompt", True) for module in self._model):
            raise ValueError("the model pools without the prompt")
        return {"input_ids": self.tokens(PROBES)[0]}

    def _encode_plain(self, texts: Sequence[str], dtype: str, threads: int) -> Outputs:
        """Return the outputs of the model's own `encode`."""
        options: dict[str, Any] = {"show_progress_bar": False, "convert_to_tensor": True}
        with products(self.device, dtype, threads):
            output = self._model.encode(list(texts), prompt=self.prompt, **options)
        return np.asarray(output.float().cpu().numpy())


class _WithoutMask(nn.Module):
    """A sentence encoder for texts of equal length: transformer, pooling without a mask, and the modules after it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        transformer, pooling, *rest = model
        self.transformer, self.rest = transformer.auto_model, nn.ModuleList(rest)
        ids = torch.arange(1, 4, device=transformer.auto_model.device)[None]
        features = transformer({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        states, pooled = features["token_embeddings"], pooling(features)["sentence_embedding"]
        self.first = torch.allclose(pooled, states[:, 0])
        if not self.first and not torch.allclose(pooled, states.mean(1), atol=1e-5):
            raise ValueError("the model pools neither by the mean of the tokens nor by the first one")

    def forward(self, input_ids: Tensor) -> Tensor:
        states = self.transformer(input_ids=input_ids)[0]
        vector: Tensor = states[:, 0] if self.first else states.mean(1)
        for module in self.rest:
            vector = module({"sentence_embedding": vector})["sentence_embedding"]
        return vector
