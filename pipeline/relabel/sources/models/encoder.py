"""Sentence embeddings on a CPU: unit vectors, byte-identical for any number of threads.

- Texts with equal token counts share a batch, so there is no padding.
- Each batch runs on one thread. Threads do not wait for each other in a layer, and a vector depends on its batch only.
- Linear layers and self-attention are replaced by ones that suit a CPU (`relabel.sources.models.packed_layers`).

At loading, each of these steps is compared with the model's own `encode` on a few texts, and is left out if the model
does not support it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relabel.core.numeric.threads import inner_threads, one_thread_each
from relabel.core.runtime import Advance, Runtime, ignore_progress, pick_device
from relabel.sources.cosine import ComputeType
from relabel.sources.models.loading import default_prompt, length_limit, load_model, quiet
from relabel.sources.models.packed_layers import can_pack, pack
from relabel_train.tensors import full_float32

Index = NDArray[np.int64]
Vectors = NDArray[np.float32]

_TOKENS = {"cpu": 2048, "cuda": 32_768}  # per batch
_MIN_TOKENS = 64  # per batch: from 12 tokens on, a vector had the same bits in any batch
_PLAIN_BATCH = 32  # texts per call of the model's own `encode`
_TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}  # accepted 1 - cosine
_PROBES = (
    "A man with a red helmet on a small moped on a dirt road.",
    "Two dogs.",
    "TWO DOGS",
    "Two cats",
    "Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!",
    "a very " * 30 + "long row of parked bicycles",
)


@dataclass(frozen=True)
class Embeddings:
    """Vectors of N texts.

    `vectors`: (N, D) float32; task vectors; not finite if the model's output is not.
    `truncated`: (N,) bool; True if the model saw only the beginning of the text.
    """

    vectors: Vectors
    truncated: NDArray[np.bool_]


class SentenceEncoder:
    """A loaded sentence encoder.

    `folder`: folder of the model's files. `prompt`: text before every input; None uses the model's default prompt, ""
    uses none. `max_length`: tokens a text is truncated to, special tokens included; None uses the model's limit.
    `dtype`: type of matrix products; sums and norms stay in float32. `runtime`: threads and device.

    `width`: dimension D of the vectors.
    `backend`: name of the computation in use.
    `left_out`: faster computations that this model or machine does not support, with the reason.
    """

    def __init__(
        self, folder: Path, prompt: str | None, max_length: int | None, dtype: ComputeType, runtime: Runtime
    ) -> None:
        self.device, self.dtype = pick_device(runtime.device), dtype
        self._threads = runtime.threads if self.device == "cpu" else 1
        self._load = partial(load_model, folder, self.device, max_length)
        self._model = self._load()
        self.prompt = default_prompt(self._model) if prompt is None else prompt
        self.max_length = length_limit(self._model)
        self.left_out: list[str] = []
        with quiet():
            expected = self._encode_plain(_PROBES, nullcontext())
            self.width = expected.shape[1]
            self.backend = self._pick_backend(expected)

    @property
    def batch_invariant(self) -> bool:
        """True if a vector has the same bits in any batch: on a CPU, where batches need no padding."""
        return self._fast and self.device == "cpu"

    def encode(self, texts: Sequence[str], advance: Advance = ignore_progress) -> Embeddings:
        """Encode N texts, each distinct text once. White space around a text is removed.

        `advance`: receives the number of further texts that are done.
        """
        stripped = [text.strip() for text in texts]
        number = {text: i for i, text in enumerate(dict.fromkeys(stripped))}
        inverse = np.array([number[text] for text in stripped], np.int64)
        # A distinct text counts for all its copies.
        copies = np.bincount(inverse, minlength=len(number))

        def done(batch: Index) -> None:
            advance(int(copies[batch].sum()))

        distinct = list(number)
        with quiet():
            if self._fast:
                tokens, truncated = self._tokens(distinct)
                vectors = self._in_batches(tokens, done)
            else:
                truncated = self._tokens(distinct)[1] if self._has_tokenizer() else np.zeros(len(distinct), bool)
                vectors = self._by_length(distinct, done)
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
        # Norms in float64; a zero vector stays zero.
        unit = (vectors / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
        return Embeddings(unit[inverse], truncated[inverse])

    def _pick_backend(self, expected: Vectors) -> str:
        """Select the fastest computation that agrees with the model's own, and return its name."""
        self._fast = True
        if self.device == "cpu" and can_pack(getattr(torch, self.dtype)):
            try:
                packed = pack(self._model, getattr(torch, self.dtype))
                if packed and self._matches_reference(expected, "packed layers"):
                    return "batches of equal length, packed layers"
            except Exception as error:  # a layer that cannot be packed, or a model that inspects its layers
                self.left_out.append(f"packed layers: {error}")
            self._model = self._load()
        try:
            if self._matches_reference(expected, "batches of equal length"):
                return "batches of equal length"
        except Exception as error:  # no tokenizer that returns ids, or a model that needs more than ids
            self.left_out.append(f"batches of equal length: {error}")
        self._fast = False
        return "sentence-transformers"

    def _matches_reference(self, expected: Vectors, backend: str) -> bool:
        """Return True if the probes' vectors agree with the expected ones; else record the difference."""
        if self.prompt and not all(getattr(module, "include_prompt", True) for module in self._model):
            self.left_out.append(f"{backend}: the model pools without the prompt")
            return False
        vectors = self._in_batches(self._tokens(_PROBES)[0], lambda _: None)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        difference = float(np.max(1 - np.einsum("nd,nd->n", vectors, expected) / lengths))
        if not difference < _TOLERANCE[self.dtype]:
            self.left_out.append(f"{backend}: 1 - cosine to the model's own is {difference:.2g}")
        return difference < _TOLERANCE[self.dtype]

    def _has_tokenizer(self) -> bool:
        """Return True if the model has a tokenizer of transformers."""
        from transformers import PreTrainedTokenizerBase

        return isinstance(self._model.tokenizer, PreTrainedTokenizerBase)

    def _tokens(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Return the token ids of each text, truncated to `max_length`, and a mask of the truncated ones."""
        full = [self.prompt + text for text in texts]
        if getattr(self._model[0], "do_lower_case", False):
            full = [text.lower() for text in full]
        tokenizer: Any = self._model.tokenizer
        ids_only = {"padding": False, "return_attention_mask": False, "return_token_type_ids": False}
        truncation = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        tokens: list[list[int]] = tokenizer(full, **ids_only, **truncation)["input_ids"] if full else []
        truncated = np.zeros(len(full), bool)
        # A text of exactly `max_length` tokens may or may not be truncated; only these are tokenized again.
        at_limit = [i for i, ids in enumerate(tokens) if len(ids) == self.max_length]
        if at_limit:
            complete = tokenizer([full[i] for i in at_limit], **ids_only, verbose=False)["input_ids"]
            truncated[at_limit] = [len(ids) > len(tokens[i]) for i, ids in zip(at_limit, complete, strict=True)]
        return tokens, truncated

    def _in_batches(self, tokens: list[list[int]], done: Callable[[Index], None]) -> Vectors:
        """Return the model's outputs for tokenized texts, in batches of equal length: (N, D)."""
        out = np.empty((len(tokens), self.width), np.float32)

        def run_batch(numbers: Index) -> Index:
            with torch.inference_mode(), self._autocast():
                batch = [tokens[i] for i in numbers]
                # A product of very few rows uses another kernel, whose last bit may differ: repeat them.
                batch *= -(-_MIN_TOKENS // max(1, len(batch) * len(batch[0])))
                ids = torch.tensor(batch, device=self.device)
                output = self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
                out[numbers] = output["sentence_embedding"][: len(numbers)].float().cpu().numpy()
            return numbers

        batches = batch_by_length([len(ids) for ids in tokens], _TOKENS[self.device])
        # Around all threads: the setting is one of the process.
        with full_float32():
            for numbers in one_thread_each(run_batch, batches, self._threads):
                done(numbers)
        return out

    def _by_length(self, texts: list[str], done: Callable[[Index], None]) -> Vectors:
        """Return the outputs of the model's own `encode`, longest texts first: (N, D)."""
        out = np.empty((len(texts), self.width), np.float32)
        order = np.argsort([-len(text) for text in texts], kind="stable")
        for a in range(0, len(order), _PLAIN_BATCH):
            numbers = order[a : a + _PLAIN_BATCH]
            out[numbers] = self._encode_plain([texts[i] for i in numbers], self._autocast())
            done(numbers)
        return out

    def _encode_plain(self, texts: Sequence[str], precision: AbstractContextManager[Any]) -> Vectors:
        """Return the outputs of the model's own `encode` for one batch."""
        with inner_threads(self._threads), precision, full_float32():
            output = self._model.encode(
                list(texts), prompt=self.prompt, show_progress_bar=False, convert_to_tensor=True
            )
        return np.asarray(output.float().cpu().numpy())

    def _autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which products have type `dtype`."""
        return nullcontext() if self.dtype == "float32" else torch.autocast(self.device, dtype=torch.bfloat16)


def batch_by_length(lengths: Sequence[int], budget: int) -> list[Index]:
    """Group N texts by length into batches of at most `budget` tokens (at least one text), the longest first.

    `lengths`: (N,) sequence of int; number of tokens of each text. Returns list of (B,) int64: texts of each batch;
    they depend on the lengths only.
    """
    counts = np.asarray(lengths, np.int64)
    batches: list[Index] = []
    for length in np.unique(counts)[::-1]:
        texts, step = np.flatnonzero(counts == length), max(1, budget // max(1, int(length)))
        batches += [texts[a : a + step] for a in range(0, len(texts), step)]
    return batches
