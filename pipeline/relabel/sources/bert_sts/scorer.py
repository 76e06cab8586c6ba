"""Cross-encoders loaded from their files, and pairs of texts scored by them.

Scoring is fast on a CPU, and the scores do not depend on the number of threads:

- Captions are tokenized once; a pair is assembled from their token ids.
- Pairs of equal length share a batch, so there is no padding.
- Each batch runs on one thread, so threads never wait for each other inside a layer.
- Linear layers and self-attention are replaced by ones that suit a CPU (`relabel.sources.models.packed_layers`).

At loading, the scores of a few pairs are compared with those of sentence-transformers' `predict`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.numeric.threads import inner_threads, one_thread_each
from relabel.core.runtime import Advance, Runtime, ignore_progress, pick_device
from relabel.sources.bert_sts.relevance import Output
from relabel.sources.bert_sts.token_pairs import SpecialTokens, Texts, token_ids, truncated_lengths
from relabel.sources.cosine import ComputeType
from relabel.sources.models.encoder import batch_by_length
from relabel.sources.models.loading import check_max_length, load_from_folder, positions_of, quiet
from relabel.sources.models.packed_layers import can_pack, pack
from relabel_train.tensors import full_float32

I8 = NDArray[np.int64]
F8 = NDArray[np.float64]

_TOKENS = {"cpu": 2048, "cuda": 65_536}  # per batch
_MIN_PAIRS = 16  # per batch: products of fewer rows use other kernels, whose last bits may differ
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15}  # accepted difference of outputs, relative to max(1, output)
_PROBES = (
    ("A man with a red helmet on a small moped on a dirt road.", "A man rides a moped."),
    ("Two dogs.", "Two dogs."),
    ("Two cats", "TWO DOGS"),
    ("Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!", "a very " * 30 + "long row of parked bicycles"),
    ("a very " * 30 + "long row of parked bicycles", "a"),
)

_HEAD = "ForSequenceClassification"
_HIGHEST = 5.0  # highest score of STS-B, the scale of a model without a sigmoid


@dataclass(frozen=True)
class CrossEncoderModel:
    """A loaded cross-encoder.

    `output`: whether a sigmoid maps the output to 0..1.
    `scale`: divisor of an output.
    `limit`: largest number of tokens of a pair, special tokens included.
    """

    cross_encoder: Any
    output: Output
    scale: float
    limit: int


def check_labels(folder: Path) -> None:
    """Raise if a model does not give one score for two texts. The model is not loaded.

    `folder`: folder of the model's files.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = str((config.get("architectures") or [""])[0])
        labels = int(config.get("num_labels") or len(config.get("id2label") or "12"))  # transformers' default is 2
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CheckError(f"no configuration of a model: {error}", where=str(folder / "config.json")) from error
    if not kind.endswith(_HEAD):
        message = f"this model is no cross-encoder: {kind or 'it'} scores no pairs"
        raise UsageError(message, where=str(folder), todo=f"Make one of it: `relabel tune bert_sts --base {folder}`.")
    if labels != 1:
        message = f"this cross-encoder has {labels} labels: a relevance is one number"
        raise UsageError(
            message, where=str(folder), todo="Name a model with one, such as cross-encoder/stsb-roberta-base."
        )


def load_cross_encoder(
    folder: Path, device: str, max_length: int | None, output: Output | None, scale: float | None
) -> CrossEncoderModel:
    """Load a cross-encoder in float32, for inference.

    `max_length`: tokens a pair is truncated to; None uses the model's limit. `output`: None uses the model's
    configuration: a sigmoid, unless it names the identity. `scale`: None is 5 for raw outputs, because STS-B's scores
    are 0..5, and 1 after a sigmoid.
    """
    check_labels(folder)
    cross_encoder = load_from_folder("CrossEncoder", folder, device=device)
    cross_encoder.float().eval()
    positions = positions_of(cross_encoder)
    check_max_length(max_length, positions)
    limits = (max_length,) if max_length is not None else (cross_encoder.tokenizer.model_max_length, positions)
    kind = output or _output_kind(cross_encoder, folder)
    return CrossEncoderModel(
        cross_encoder, kind, scale or (_HIGHEST if kind == "raw" else 1.0), min(limit for limit in limits if limit)
    )


def _output_kind(cross_encoder: Any, folder: Path) -> Output:
    """Return how the model's last function maps its output; raise if it is neither a sigmoid nor the identity."""
    name = type(cross_encoder.activation_fn).__name__
    if name == "Sigmoid":
        return "sigmoid"
    if name == "Identity":
        return "raw"
    message = f"this cross-encoder ends in {name}, neither a sigmoid nor nothing"
    raise UsageError(message, where=str(folder), todo="Say with `output` and `scale` how it becomes 0..1.")


class PairScorer:
    """A loaded cross-encoder that scores pairs of texts.

    `folder`: folder of the model's files. `max_length`: tokens a pair is truncated to; None uses the model's limit.
    `output`: how an output becomes a score; None uses the model's configuration. `scale`: divisor of a score; None uses
    5 for raw outputs and 1 after a sigmoid. `dtype`: type of matrix products. `runtime`: threads and device.

    `limit`: largest number of tokens of a pair.
    `output`, `scale`: how an output becomes a relevance.
    `backend`: name of the computation in use.
    `left_out`: faster computations that this model or machine does not support, with the reason.
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
        self.tokenizer: Any = loaded.cross_encoder.tokenizer
        self.left_out: list[str] = []
        with quiet():
            self.special_tokens = SpecialTokens.of(self.tokenizer, folder)
            self._model: Any = _transformer(loaded.cross_encoder)
            self.backend = self._pick_backend(
                self._reference_outputs(loaded.cross_encoder), lambda: _transformer(load().cross_encoder)
            )

    @property
    def room(self) -> int:
        """Number of token ids that both texts of a pair have together."""
        return self.limit - self.special_tokens.size

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of stripped texts, without special tokens, truncated to the room of a pair."""
        with quiet():
            return token_ids(self.tokenizer, [text.strip() for text in texts], self.room)

    def score(self, texts: Texts, first: I8, second: I8, advance: Advance = ignore_progress) -> F8:
        """Score P ordered pairs of texts.

        `first`, `second`: (P,) int64; numbers of texts. `advance`: receives the number of further pairs that are done.
        Returns (P,) float64 in 0..1; NaN where the model's output is not finite.
        """
        outputs = self._outputs(texts, first, second, advance)
        if self.output == "sigmoid":
            # exp overflows to inf for very negative outputs, whose sigmoid is then 0.
            with np.errstate(over="ignore"):
                outputs = 1 / (1 + np.exp(-outputs))
        scores: F8 = np.clip(outputs / self.scale, 0.0, 1.0)
        return scores

    def _outputs(self, texts: Texts, first: I8, second: I8, advance: Callable[[int], None]) -> F8:
        """Return the outputs of the model for P pairs, (P,) float64."""
        sizes = texts.sizes
        first_sizes, second_sizes = truncated_lengths(sizes[first], sizes[second], self.room)
        lengths, out = first_sizes + second_sizes + self.special_tokens.size, np.empty(len(first))

        def run_batch(batch: I8) -> int:
            # Repeat pairs up to the least size; only the first rows of the result are used.
            padded = batch if len(batch) >= _MIN_PAIRS else np.resize(batch, _MIN_PAIRS)
            rows = [
                self.special_tokens.row(texts[first[i]][: first_sizes[i]], texts[second[i]][: second_sizes[i]])
                for i in padded
            ]
            ids, types = (torch.from_numpy(np.stack(part)).to(self.device) for part in zip(*rows, strict=True))
            options = {} if self.special_tokens.types is None else {"token_type_ids": types}
            with torch.inference_mode(), self._autocast():
                logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids), **options).logits
            out[batch] = logits.reshape(-1)[: len(batch)].double().cpu().numpy()
            return len(batch)

        batches = batch_by_length(lengths.tolist(), _TOKENS[self.device])
        # Around all threads: the setting is one of the process.
        with full_float32():
            for count in one_thread_each(run_batch, batches, self._threads):
                advance(count)
        return out

    def _pick_backend(self, expected: F8, reload: Callable[[], Any]) -> str:
        """Select the fastest computation that reproduces the model's own scores, and return its name."""
        if self.device == "cpu" and can_pack(getattr(torch, self.dtype)):
            try:
                if pack(self._model, getattr(torch, self.dtype)) and self._matches_reference(expected, "packed layers"):
                    return "batches of equal length, packed layers"
            except Exception as error:  # a layer that cannot be packed, or a model that inspects its layers
                self.left_out.append(f"packed layers: {error}")
            # Packing changed layers in place.
            self._model = reload()
        if self._matches_reference(expected, "batches of equal length"):
            return "batches of equal length"
        message = f"this model gives other scores than sentence-transformers' own ({'; '.join(self.left_out)})"
        raise CheckError(message, where=str(self.folder), todo="Use dtype float32, or name another `model`.")

    def _matches_reference(self, expected: F8, backend: str) -> bool:
        """Return True if the probes' outputs agree with the expected ones; else record the difference."""
        lists = self.tokenize([text for pair in _PROBES for text in pair])
        numbers = np.arange(len(lists))
        outputs = self._outputs(Texts.of(lists), numbers[::2], numbers[1::2], ignore_progress)
        difference = float(np.max(np.abs(outputs - expected) / np.maximum(1, np.abs(expected))))
        if not difference < _TOLERANCE[self.dtype]:
            self.left_out.append(f"{backend}: an output is off by {difference:.2g}")
        return difference < _TOLERANCE[self.dtype]

    def _reference_outputs(self, cross_encoder: Any) -> F8:
        """Return the outputs of sentence-transformers for the probes."""
        # Both computations must truncate alike.
        cross_encoder.tokenizer.model_max_length = self.limit
        pairs = [(a.strip(), b.strip()) for a, b in _PROBES]
        with inner_threads(self._threads):
            outputs = cross_encoder.predict(
                pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False, convert_to_tensor=True
            )
        return np.asarray(outputs.reshape(-1).double().cpu().numpy())

    def _autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which products have type `dtype`."""
        return nullcontext() if self.dtype == "float32" else torch.autocast(self.device, dtype=torch.bfloat16)


def _transformer(cross_encoder: Any) -> Any:
    """Return transformers' model inside a CrossEncoder of sentence-transformers."""
    return getattr(cross_encoder, "transformers_model", None) or cross_encoder.model
