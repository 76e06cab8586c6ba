"""Captions through a sentence-transformers model: unit vectors, fast on a CPU, the same bytes on any number of threads.

- Texts of equal token counts share a batch: nothing is padded, nothing computed for padding.
- A batch is one thread's: no thread waits for another inside a layer, and a vector depends on its batch alone.
- Linear layers and self-attention are swapped for ones that suit a CPU (relabel.sources.models.packed_layers).

Each is held against the model's own `encode` on a few texts at loading; what a model does not take is left out.
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

from relabel.core.numeric.torch_threads import inner_threads, one_thread_each
from relabel.core.progress import Advance, ignore_progress
from relabel.core.runtime import Runtime, pick_device
from relabel.sources.cosine import ComputeType
from relabel.sources.models.loading import default_prompt, length_limit, load_model, quiet
from relabel.sources.models.packed_layers import can_pack, pack

Index = NDArray[np.int64]
Vectors = NDArray[np.float32]

_TOKENS = {"cpu": 2048, "cuda": 32_768}  # a batch
_LEAST = 64  # tokens a batch: from 12 on a vector was the same bits in whatever batch it stood
_PLAIN_BATCH = 32  # texts, where the model's own `encode` does the work
_APART = {"float32": 1e-5, "bfloat16": 1e-2}  # 1 - cosine that is still agreement
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
    """What becomes of N texts.

    Attributes
    ----------
    vectors : (N, D) float32
        Unit vectors; not finite where the model's answer is not.
    truncated : (N,) bool
        Whether the model saw only the beginning.
    """

    vectors: Vectors
    truncated: NDArray[np.bool_]


class SentenceEncoder:
    """A loaded model.

    Parameters
    ----------
    folder : Path
        The model's files.
    prompt : str or None
        Put before every text; None takes the model's default prompt, "" none.
    max_length : int or None
        Tokens a text is cut to, special tokens included; None takes the model's.
    dtype : "float32" or "bfloat16"
        What matrix products are computed in; sums and norms stay in float32.
    runtime : Runtime

    Attributes
    ----------
    prompt : str
    max_length : int or None
    width : int
    backend : str
        Which way it computes.
    left_out : list of str
        Ways that this model or machine does not take, with the reason.

    Raises
    ------
    MissingError, CheckError, UsageError
        As `load_model` and `pick_device`.
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
            expected = self._plain(_PROBES, nullcontext())
            self.width = expected.shape[1]
            self.backend = self._choose(expected)

    def encode(self, texts: Sequence[str], advance: Advance = ignore_progress) -> Embeddings:
        """Encode N texts, equal ones once; white space around a text is dropped.

        Parameters
        ----------
        texts : sequence of str
        advance : callable
            Told how many more texts are done.
        """
        stripped = [text.strip() for text in texts]
        number = {text: i for i, text in enumerate(dict.fromkeys(stripped))}
        which = np.array([number[text] for text in stripped], np.int64)
        times = np.bincount(which, minlength=len(number))

        def done(these: Index) -> None:
            advance(int(times[these].sum()))

        distinct = list(number)
        with quiet():
            if self._fast:
                tokens, truncated = self._tokens(distinct)
                vectors = self._in_batches(tokens, done)
            else:
                truncated = self._tokens(distinct)[1] if self._has_tokenizer() else np.zeros(len(distinct), bool)
                vectors = self._by_length(distinct, done)
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
        unit = (vectors / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
        return Embeddings(unit[which], truncated[which])

    def _choose(self, expected: Vectors) -> str:
        """Take the fastest way that agrees with the model's own."""
        self._fast = True
        if self.device == "cpu" and can_pack():
            try:
                packed = pack(self._model, getattr(torch, self.dtype))
                if packed and self._agrees(expected, "packed layers"):
                    return "batches of equal length, packed layers"
            except Exception as error:  # a layer that cannot be packed, or a model that looks into its layers
                self.left_out.append(f"packed layers: {error}")
            self._model = self._load()
        try:
            if self._agrees(expected, "batches of equal length"):
                return "batches of equal length"
        except Exception as error:  # no tokenizer that gives ids, or a model that wants more than ids
            self.left_out.append(f"batches of equal length: {error}")
        self._fast = False
        return "sentence-transformers"

    def _agrees(self, expected: Vectors, way: str) -> bool:
        if self.prompt and not all(getattr(module, "include_prompt", True) for module in self._model):
            self.left_out.append(f"{way}: the model pools without the prompt")
            return False
        found = self._in_batches(self._tokens(_PROBES)[0], lambda _: None)
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
        apart = float(np.max(1 - np.einsum("nd,nd->n", found, expected) / lengths))
        if not apart < _APART[self.dtype]:
            self.left_out.append(f"{way}: 1 - cosine to the model's own is {apart:.2g}")
        return apart < _APART[self.dtype]

    def _has_tokenizer(self) -> bool:
        from transformers import PreTrainedTokenizerBase

        return isinstance(self._model.tokenizer, PreTrainedTokenizerBase)

    def _tokens(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Token ids of each text, cut to `max_length`; and which were cut."""
        full = [self.prompt + text for text in texts]
        if getattr(self._model[0], "do_lower_case", False):
            full = [text.lower() for text in full]
        tokenizer: Any = self._model.tokenizer
        ids_only = {"padding": False, "return_attention_mask": False, "return_token_type_ids": False}
        cut = {"truncation": True, "max_length": self.max_length} if self.max_length else {}
        tokens: list[list[int]] = tokenizer(full, **ids_only, **cut)["input_ids"] if full else []
        truncated = np.zeros(len(full), bool)
        at_limit = [i for i, ids in enumerate(tokens) if len(ids) == self.max_length]
        if at_limit:
            whole = tokenizer([full[i] for i in at_limit], **ids_only, verbose=False)["input_ids"]
            truncated[at_limit] = [len(ids) > len(tokens[i]) for i, ids in zip(at_limit, whole, strict=True)]
        return tokens, truncated

    def _in_batches(self, tokens: list[list[int]], done: Callable[[Index], None]) -> Vectors:
        """(N, D) as the model gives them, of texts given as token ids."""
        out = np.empty((len(tokens), self.width), np.float32)

        def work(these: Index) -> Index:
            with torch.inference_mode(), self._autocast():
                batch = [tokens[i] for i in these]
                # a product of very few rows takes another kernel, whose last bit may differ: repeat them
                batch *= -(-_LEAST // max(1, len(batch) * len(batch[0])))
                ids = torch.tensor(batch, device=self.device)
                found = self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
                out[these] = found["sentence_embedding"][: len(these)].float().cpu().numpy()
            return these

        batches = batch_by_length([len(ids) for ids in tokens], _TOKENS[self.device])
        for these in one_thread_each(work, batches, self._threads):
            done(these)
        return out

    def _by_length(self, texts: list[str], done: Callable[[Index], None]) -> Vectors:
        """(N, D) by the model's own `encode`, longest texts first."""
        out = np.empty((len(texts), self.width), np.float32)
        order = np.argsort([-len(text) for text in texts], kind="stable")
        for a in range(0, len(order), _PLAIN_BATCH):
            these = order[a : a + _PLAIN_BATCH]
            out[these] = self._plain([texts[i] for i in these], self._autocast())
            done(these)
        return out

    def _plain(self, texts: Sequence[str], precision: AbstractContextManager[Any]) -> Vectors:
        with inner_threads(self._threads), precision:
            found = self._model.encode(list(texts), prompt=self.prompt, show_progress_bar=False, convert_to_tensor=True)
        return np.asarray(found.float().cpu().numpy())

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype == "float32" else torch.autocast(self.device, dtype=torch.bfloat16)


def batch_by_length(lengths: Sequence[int], budget: int) -> list[Index]:
    """Group N texts by length into batches of at most `budget` tokens (at least one text), the longest first.

    Parameters
    ----------
    lengths : (N,) sequence of int
        Tokens of each text.
    budget : int

    Returns
    -------
    list of (B,) int64
        Texts of each batch: a function of the lengths alone.
    """
    counts = np.asarray(lengths, np.int64)
    batches: list[Index] = []
    for length in np.unique(counts)[::-1]:
        these, step = np.flatnonzero(counts == length), max(1, budget // max(1, int(length)))
        batches += [these[a : a + step] for a in range(0, len(these), step)]
    return batches
