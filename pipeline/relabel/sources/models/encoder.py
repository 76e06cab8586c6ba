"""Sentence embeddings: unit vectors of texts.

A model runs in batches of equal length (`relabel.sources.models.forward`): by OpenVINO on a CPU, else by torch. At
loading, either is compared with the model's own `encode` on a few texts, and is left out if the model does not support
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from relabel.core.errors import UsageError
from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Advance, Runtime, ignore_progress, pick_device
from relabel.sources.models.forward import Done, Forward, OpenVinoForward, TorchForward, convert, products
from relabel.sources.models.loading import default_prompt, first_line, length_limit, load_model, quiet

Index = NDArray[np.int64]
Vectors = NDArray[np.float32]

_PLAIN_BATCH = 32  # texts per call of the model's own `encode`
_TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2, "int8": 2.0}  # accepted 1 - cosine; int8 is checked when it is made
_PROBES = (
    "A man with a red helmet on a small moped on a dirt road.",
    "Two dogs.",
    "TWO DOGS",
    "Two cats",
    "Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!",
    "a very " * 300 + "long row of parked bicycles",  # beyond the window of local attention
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
    `dtype`: type of matrix products; sums and norms stay in float32. `runtime`: threads and device. `quantized`: the
    model of OpenVINO that int8 needs (see `relabel.sources.sbert.quantize`).

    `width`: dimension D of the vectors.
    `backend`: name of the computation in use.
    `left_out`: faster computations that this model or machine does not support, with the reason.
    """

    def __init__(
        self,
        folder: Path,
        prompt: str | None,
        max_length: int | None,
        dtype: str,
        runtime: Runtime,
        quantized: Any = None,
    ) -> None:
        self.device, self.dtype = pick_device(runtime.device), dtype
        self._threads = runtime.threads if self.device == "cpu" else 1
        self._model = load_model(folder, self.device, max_length)
        self.prompt = default_prompt(self._model) if prompt is None else prompt
        self.max_length = length_limit(self._model)
        self.left_out: list[str] = []
        # A few probes need no threads, which would wait for each other on a busy machine.
        with quiet(), inner_threads(1):
            expected = self._encode_plain(_PROBES, "float32")
            self.width = expected.shape[1]
            self._forward, self.backend = self._pick_forward(expected, quantized)

    def encode(self, texts: Sequence[str], advance: Advance = ignore_progress) -> Embeddings:
        """Encode texts, stripped of white space around them, each distinct text once."""
        stripped = [text.strip() for text in texts]
        number = {text: i for i, text in enumerate(dict.fromkeys(stripped))}
        inverse = np.array([number[text] for text in stripped], np.int64)
        # A distinct text counts for all its copies.
        copies = np.bincount(inverse, minlength=len(number))

        def done(batch: Index) -> None:
            advance(int(copies[batch].sum()))

        with quiet():
            vectors, truncated = self._outputs(list(number), done)
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]
        # Norms in float64; a zero vector stays zero.
        unit = (vectors / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
        return Embeddings(unit[inverse], truncated[inverse])

    def tokens(self, texts: Sequence[str]) -> tuple[list[list[int]], NDArray[np.bool_]]:
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

    def convert(self) -> Any:
        """Return the model as one of OpenVINO, whose only input is `input_ids`."""
        return convert(_WithoutMask(self._model), ["input_ids"])

    def _pick_forward(self, expected: Vectors, quantized: Any) -> tuple[Forward | None, str]:
        """Select the fastest computation that agrees with the model's own, and return it with its name."""
        makers: dict[str, Callable[[], Forward]] = {
            "openvino": lambda: OpenVinoForward(quantized or self.convert(), self.dtype, self._threads),
            "torch": lambda: TorchForward(self._by_torch, self.device, self.dtype, self._threads),
        }
        if self.device != "cpu":
            del makers["openvino"]
        if self.dtype == "int8":
            del makers["torch"]
        if self.prompt and not all(getattr(module, "include_prompt", True) for module in self._model):
            self.left_out.append("batches of equal length: the model pools without the prompt")
            makers.clear()
        for name, make in makers.items():
            try:
                forward = make()
                vectors = forward({"input_ids": self.tokens(_PROBES)[0]}, lambda _: None)
            except (
                Exception
            ) as error:  # openvino is missing, no tokenizer returns ids, or the model needs more than ids
                self.left_out.append(f"{name}: {first_line(error)}")
                continue
            lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
            difference = float(np.max(1 - np.einsum("nd,nd->n", vectors, expected) / lengths))
            if difference < _TOLERANCE[self.dtype]:
                return forward, name
            self.left_out.append(f"{name}: 1 - cosine to the model's own is {difference:.2g}")
        if self.dtype == "int8":
            todo = "Use dtype float32 or bfloat16."
            raise UsageError(f"this model cannot run in int8 ({'; '.join(self.left_out)})", todo=todo)
        return None, "sentence-transformers"

    def _by_torch(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the outputs of the model for one batch of equal length."""
        features = inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])}
        vectors: Tensor = self._model(features)["sentence_embedding"]
        return vectors

    def _outputs(self, texts: list[str], done: Done) -> tuple[Vectors, NDArray[np.bool_]]:
        """Return the model's outputs for distinct texts, and a mask of the truncated ones."""
        out, truncated = np.empty((len(texts), self.width), np.float32), np.zeros(len(texts), bool)
        if self._forward is not None or isinstance(self._model.tokenizer, PreTrainedTokenizerBase):
            tokens, truncated = self.tokens(texts)
        if self._forward is not None:
            return (self._forward({"input_ids": tokens}, done) if tokens else out), truncated
        # The longest texts first: little padding, and too little memory is noticed at once.
        order = np.argsort([-len(text) for text in texts], kind="stable")
        with inner_threads(self._threads):
            for a in range(0, len(order), _PLAIN_BATCH):
                numbers = order[a : a + _PLAIN_BATCH]
                out[numbers] = self._encode_plain([texts[i] for i in numbers], self.dtype)
                done(numbers)
        return out, truncated

    def _encode_plain(self, texts: Sequence[str], dtype: str) -> Vectors:
        """Return the outputs of the model's own `encode` for one batch."""
        with products(self.device, dtype):
            output = self._model.encode(
                list(texts), prompt=self.prompt, show_progress_bar=False, convert_to_tensor=True
            )
        return np.asarray(output.float().cpu().numpy())


class _WithoutMask(nn.Module):
    """A sentence encoder for texts of equal length: transformer, pooling without a mask, and the modules after it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        transformer, pooling, *rest = model
        self.transformer, self.rest = transformer.auto_model, nn.ModuleList(rest)
        ids = torch.arange(1, 4)[None]
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
