"""A cross-encoder loaded from its files, and pairs of texts scored by it.

It runs in batches of pairs of equal length (`relabel.sources.models.forward`): by OpenVINO on a CPU, else by torch. At
loading, the scores of a few pairs are compared with those of sentence-transformers' `predict`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from relabel.core.errors import CheckError, UsageError
from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Runtime, pick_device
from relabel.sources.bert_sts.params import BertStsParams, Output
from relabel.sources.models.checks import read_json
from relabel.sources.models.forward import Forward, OpenVinoForward, TorchForward, convert
from relabel.sources.models.loading import check_max_length, first_line, load_from_folder, positions_of, quiet

F8 = NDArray[np.float64]

_CHUNK = 1 << 14  # pairs that are tokenized and divided into batches at once
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15}  # accepted difference of outputs, relative to max(1, output)
_PROBES = (
    ("A man with a red helmet on a small moped on a dirt road.", "A man rides a moped."),
    ("Two dogs.", "Two dogs."),
    ("Two cats", "TWO DOGS"),
    ("Ünïcödé naïveté, 東京の駅, 🚲 & <b>markup</b>!", "a very " * 30 + "long row of parked bicycles"),
    ("a very " * 300 + "long row of parked bicycles", "a"),
)
_NO_LIMIT = 1_000_000  # tokenizers have 1e30, which they cannot truncate to


class PairScorer:
    """A loaded cross-encoder that scores pairs of texts.

    `limit`: largest number of tokens of a pair, special tokens included.
    `output`, `scale`: how an output becomes a relevance.
    `backend`: name of the computation in use.
    `left_out`: faster computations that this model or machine does not support, with the reason.
    """

    def __init__(self, folder: Path, params: BertStsParams, runtime: Runtime) -> None:
        _check_labels(folder)
        self.device, self.dtype, self.folder = pick_device(runtime.device), params.dtype, folder
        self._threads = runtime.threads if self.device == "cpu" else 1
        cross_encoder = load_from_folder("CrossEncoder", folder, device=self.device).float().eval()
        self._model, self._tokenizer = cross_encoder.model, cross_encoder.tokenizer
        # DistilBERT accepts token types and ignores them.
        accepted = signature(self._model.forward).parameters
        self._names = [name for name in self._tokenizer("a", "b") if name in accepted and name != "attention_mask"]
        positions = positions_of(cross_encoder)
        check_max_length(params.max_length, positions)
        own = (self._tokenizer.model_max_length, positions or _NO_LIMIT, _NO_LIMIT)
        self.limit = params.max_length or min(own)
        self.output = params.output or _output_of(cross_encoder, folder)
        # A model without a sigmoid gives scores of 0..5, as STS-B has them.
        self.scale = params.scale or (5.0 if self.output == "raw" else 1.0)
        self.left_out: list[str] = []
        with quiet():
            self._forward, self.backend = self._pick_forward(self._reference_outputs(cross_encoder))

    def score(self, first: Sequence[str], second: Sequence[str]) -> F8:
        """Score P pairs of texts in the given order: (P,) float64 in 0..1."""
        outputs = self._outputs(self._forward, first, second)
        if np.isnan(outputs).any():
            message = f"this model's output is not a number for {np.isnan(outputs).sum():,} pairs"
            raise CheckError(message, where=str(self.folder), todo="Use dtype float32, or name another `model`.")
        relevance: F8 = np.clip((expit(outputs) if self.output == "sigmoid" else outputs) / self.scale, 0.0, 1.0)
        return relevance

    def _outputs(self, forward: Forward, first: Sequence[str], second: Sequence[str]) -> F8:
        """Return the outputs of the model for P pairs, (P,) float64."""
        parts = [np.empty(0)]
        with quiet():
            for a in range(0, len(first), _CHUNK):
                texts = first[a : a + _CHUNK], second[a : a + _CHUNK]
                tokens = self._tokenizer(*texts, truncation=True, max_length=self.limit, return_attention_mask=False)
                features = {name: tokens[name] for name in self._names}
                parts.append(forward(features, lambda _: None)[:, 0].astype(np.float64))
        return np.concatenate(parts)

    def _pick_forward(self, expected: F8) -> tuple[Forward, str]:
        """Select the fastest computation that reproduces the model's own scores, and return it with its name."""
        makers: dict[str, Callable[[], Forward]] = {
            "openvino": lambda: OpenVinoForward(convert(self._model, self._names), self.dtype, self._threads),
            "torch": lambda: TorchForward(self._by_torch, self.device, self.dtype, self._threads),
        }
        for name, make in makers.items() if self.device == "cpu" else [("torch", makers["torch"])]:
            try:
                forward = make()
                outputs = self._outputs(forward, *zip(*_PROBES, strict=True))
            except Exception as error:  # openvino is missing, or cannot convert the model
                self.left_out.append(f"{name}: {first_line(error)}")
                continue
            difference = float(np.max(np.abs(outputs - expected) / np.maximum(1, np.abs(expected))))
            if difference < _TOLERANCE[self.dtype]:
                return forward, name
            self.left_out.append(f"{name}: an output is off by {difference:.2g}")
        message = f"this model gives other scores than sentence-transformers' own ({'; '.join(self.left_out)})"
        raise CheckError(message, where=str(self.folder), todo="Use dtype float32, or name another `model`.")

    def _by_torch(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the outputs of the model for one batch of equal length."""
        logits: torch.Tensor = self._model(**inputs, attention_mask=torch.ones_like(inputs["input_ids"])).logits
        return logits

    def _reference_outputs(self, cross_encoder: Any) -> F8:
        """Return the outputs of sentence-transformers for the probes."""
        # Both computations must truncate alike.
        cross_encoder.tokenizer.model_max_length = self.limit
        with quiet(), inner_threads(self._threads):
            outputs = cross_encoder.predict(
                list(_PROBES), activation_fn=torch.nn.Identity(), show_progress_bar=False, convert_to_tensor=True
            )
        return np.asarray(outputs.reshape(-1).double().cpu().numpy())


def _check_labels(folder: Path) -> None:
    """Raise if a model does not give one score for two texts: its head would be drawn at random."""
    config = read_json(folder / "config.json")
    kind = (config.get("architectures") or ["it"])[0]
    labels = config.get("num_labels") or len(config.get("id2label") or "12")  # transformers' default is 2
    if not kind.endswith("ForSequenceClassification"):
        message, todo = f"{kind} scores no pairs", f"Make one of it: `relabel tune bert_sts --base {folder}`."
        raise UsageError(f"this model is no cross-encoder: {message}", where=str(folder), todo=todo)
    if labels != 1:
        message = f"this cross-encoder has {labels} labels: a relevance is one number"
        todo = "Name a model with one, such as cross-encoder/stsb-roberta-base."
        raise UsageError(message, where=str(folder), todo=todo)


def _output_of(cross_encoder: Any, folder: Path) -> Output:
    """Return how the model's last function maps its output; raise if it is neither a sigmoid nor the identity."""
    name = type(cross_encoder.activation_fn).__name__
    if name in ("Sigmoid", "Identity"):
        return "sigmoid" if name == "Sigmoid" else "raw"
    message = f"this cross-encoder ends in {name}, neither a sigmoid nor nothing"
    raise UsageError(message, where=str(folder), todo="Say with `output` and `scale` how it becomes 0..1.")
