"""Pairs of texts through a cross-encoder: fast on a CPU, the same score on any number of threads.

- Captions are tokenized once; a pair is put together out of their token ids.
- Pairs of equal length share a batch: nothing is padded, nothing computed for padding.
- A batch is one thread's: no thread waits for another inside a layer.
- Linear layers and self-attention are swapped for ones that suit a CPU (relabel.sources.models.packed_layers).

What is computed is held against sentence-transformers' own `predict` on a few pairs at loading.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.numeric.torch_threads import inner_threads, one_thread_each
from relabel.core.progress import Advance, ignore_progress
from relabel.core.runtime import Runtime, pick_device
from relabel.sources.bert_sts.model import Output, load_cross_encoder
from relabel.sources.bert_sts.token_pairs import Frame, Texts, cut_lengths, plain_ids
from relabel.sources.cosine import ComputeType
from relabel.sources.models.encoder import batch_by_length
from relabel.sources.models.loading import quiet
from relabel.sources.models.packed_layers import can_pack, pack

I8 = NDArray[np.int64]
F8 = NDArray[np.float64]

_TOKENS = {"cpu": 2048, "cuda": 65_536}  # a batch
_LEAST = 16  # pairs a batch: products of fewer rows take other kernels, whose last bits may differ
_APART = {"float32": 1e-3, "bfloat16": 0.15}  # of an output, relative to 1 or to itself, that is still agreement
_PROBES = (
    ("A man with a red helmet on a small moped on a dirt road.", "A man rides a moped."),
    ("Two dogs.", "Two dogs."),
    ("Two cats", "TWO DOGS"),
    ("Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!", "a very " * 30 + "long row of parked bicycles"),
    ("a very " * 30 + "long row of parked bicycles", "a"),
)


class PairScorer:
    """A loaded cross-encoder.

    Parameters
    ----------
    folder : Path
        The model's files.
    max_length, output, scale
        See `load_cross_encoder`.
    dtype : "float32" or "bfloat16"
        What matrix products are computed in.
    runtime : Runtime

    Attributes
    ----------
    limit : int
        Tokens a pair is cut to.
    output, scale
        How an output becomes a relevance.
    backend : str
        Which way it computes.
    left_out : list of str
        Ways that this model or machine does not take, with the reason.

    Raises
    ------
    MissingError, CheckError, UsageError
        As `load_cross_encoder` and `pick_device`; CheckError if no way gives the model's own scores.
    """

    def __init__(
        self,
        folder: Path,
        max_length: int | None,
        output: Output | None,
        scale: float | None,
        dtype: ComputeType,
        runtime: Runtime,
    ) -> None:
        self.device, self.dtype, self.folder = pick_device(runtime.device), dtype, folder
        self._threads = runtime.threads if self.device == "cpu" else 1
        load = partial(load_cross_encoder, folder, self.device, max_length, output, scale)
        loaded = load()
        self.limit, self.output, self.scale = loaded.limit, loaded.output, loaded.scale
        self.tokenizer: Any = loaded.whole.tokenizer
        self.left_out: list[str] = []
        with quiet():
            self.frame = Frame.of(self.tokenizer, folder)
            self._model: Any = _transformer(loaded.whole)
            self.backend = self._choose(self._own(loaded.whole), lambda: _transformer(load().whole))

    @property
    def room(self) -> int:
        """Token ids of both texts of a pair."""
        return self.limit - self.frame.size

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Token ids of texts, without special tokens; more than a pair has room for are cut. White space is dropped."""
        with quiet():
            return plain_ids(self.tokenizer, [text.strip() for text in texts], self.room)

    def score(self, texts: Texts, first: I8, second: I8, advance: Advance = ignore_progress) -> F8:
        """Score P ordered pairs of texts, (P,) float64 in 0..1; NaN where the model's output is not finite.

        Parameters
        ----------
        texts : Texts
        first, second : (P,) int64
            Numbers of texts.
        advance : callable
            Told how many more pairs are done.
        """
        outputs = self._outputs(texts, first, second, advance)
        if self.output == "sigmoid":
            with np.errstate(over="ignore"):
                outputs = 1 / (1 + np.exp(-outputs))
        scores: F8 = np.clip(outputs / self.scale, 0.0, 1.0)
        return scores

    def _outputs(self, texts: Texts, first: I8, second: I8, advance: Callable[[int], None]) -> F8:
        """(P,) float64: what the model gives."""
        sizes = texts.sizes
        ones, twos = cut_lengths(sizes[first], sizes[second], self.room)
        lengths, out = ones + twos + self.frame.size, np.empty(len(first))

        def work(these: I8) -> int:
            some = these if len(these) >= _LEAST else np.resize(these, _LEAST)
            rows = [self.frame.row(texts[first[i]][: ones[i]], texts[second[i]][: twos[i]]) for i in some]
            ids, types = (torch.from_numpy(np.stack(part)).to(self.device) for part in zip(*rows, strict=True))
            more = {} if self.frame.types is None else {"token_type_ids": types}
            with torch.inference_mode(), self._autocast():
                found = self._model(input_ids=ids, attention_mask=torch.ones_like(ids), **more).logits
            out[these] = found.reshape(-1)[: len(these)].double().cpu().numpy()
            return len(these)

        for done in one_thread_each(work, batch_by_length(lengths.tolist(), _TOKENS[self.device]), self._threads):
            advance(done)
        return out

    def _choose(self, expected: F8, again: Callable[[], Any]) -> str:
        """Take the fastest way that agrees with the model's own."""
        if self.device == "cpu" and can_pack():
            try:
                if pack(self._model, getattr(torch, self.dtype)) and self._agrees(expected, "packed layers"):
                    return "batches of equal length, packed layers"
            except Exception as error:  # a layer that cannot be packed, or a model that looks into its layers
                self.left_out.append(f"packed layers: {error}")
            self._model = again()
        if self._agrees(expected, "batches of equal length"):
            return "batches of equal length"
        what = f"this model gives other scores than sentence-transformers' own ({'; '.join(self.left_out)})"
        raise CheckError(what, where=str(self.folder), todo="Use dtype float32, or name another `model`.")

    def _agrees(self, expected: F8, way: str) -> bool:
        lists = self.tokenize([text for pair in _PROBES for text in pair])
        every = np.arange(len(lists))
        found = self._outputs(Texts.of(lists), every[::2], every[1::2], ignore_progress)
        apart = float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected))))
        if not apart < _APART[self.dtype]:
            self.left_out.append(f"{way}: an output is off by {apart:.2g}")
        return apart < _APART[self.dtype]

    def _own(self, whole: Any) -> F8:
        """What sentence-transformers gives for the probes."""
        whole.tokenizer.model_max_length = self.limit
        pairs = [(a.strip(), b.strip()) for a, b in _PROBES]
        with inner_threads(self._threads):
            found = whole.predict(
                pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False, convert_to_tensor=True
            )
        return np.asarray(found.reshape(-1).double().cpu().numpy())

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype == "float32" else torch.autocast(self.device, dtype=torch.bfloat16)


def _transformer(whole: Any) -> Any:
    """Take transformers' model out of sentence-transformers' wrapping."""
    return getattr(whole, "transformers_model", None) or whole.model
