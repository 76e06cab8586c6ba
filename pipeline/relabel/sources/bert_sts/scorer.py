"""Scoring of pairs of texts, or of an image and a text, with a cross-encoder.

A classifier of two texts runs in batches of pairs of equal length (`relabel.sources.models.forward`), with OpenVINO on
a CPU, otherwise with torch. Its scores of a few pairs are compared with sentence-transformers' `predict`; if they
differ, `predict` is used instead. It is also used for images and for other models, such as language models that answer
yes or no.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import read_json
from relabel.core.runtime import Runtime, ignore_progress, pick_device
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.models.checks import read_modules
from relabel.sources.models.forward import PROBES, Features, Forward, pick_forward, product_type, products
from relabel.sources.models.loading import load_from_folder, positions_of, quiet
from relabel.sources.models.reading import Reading, Vocabulary

_CHUNK = 1 << 14  # number of pairs that are tokenized and divided into batches together
_NO_LIMIT = 1_000_000  # tokens; tokenizers use 1e30, but fail to truncate to this length


class PairScorer:
    """A loaded cross-encoder that scores pairs of texts, or of an image and a text.

    `limit`: maximum number of tokens of a pair, including special tokens; None if the model defines it.
    `output`: "sigmoid" or "raw", by the model's activation function.
    `backend`: name of the backend in use.
    `left_out`: faster backends that the model or machine does not support, with the reason.
    """

    def __init__(self, folder: Path, params: BertStsParams, runtime: Runtime) -> None:
        classifier = _check_labels(folder)
        self._images = params.images is not None
        self.device, self.folder = pick_device(runtime.device), folder
        self.dtype = product_type(params.dtype, self.device)
        self._threads = runtime.threads
        self._model = load_from_folder("CrossEncoder", folder, device=self.device).float().eval()
        if self._images and "image" not in self._model.modalities:
            hint = "Use a model of images and texts, or remove `images`."
            raise UsageError("this cross-encoder does not support images", where=str(folder), hint=hint)
        self.limit: int | None = None
        self._forward: Forward | None = None
        self.backend, self.left_out = "sentence-transformers", list[str]()
        self.output = _output_of(self._model, folder)
        if classifier and not self._images:
            self._pick_forward(runtime)

    def _pick_forward(self, runtime: Runtime) -> None:
        """Select the fastest backend that gives the scores of `predict`, and set the token limit of both."""
        self._tokenizer, positions = self._model.tokenizer, positions_of(self._model)
        self.limit = min(self._tokenizer.model_max_length, positions or _NO_LIMIT, _NO_LIMIT)
        # `predict` must truncate to the same length.
        self._tokenizer.model_max_length = self.limit
        # Pass only inputs that the model accepts; not all models have token types.
        accepted = signature(self._model.model.forward).parameters
        self._names = [name for name in self._tokenizer("a", "b") if name in accepted and name != "attention_mask"]
        probes = PROBES, PROBES[::-1]
        with quiet():
            expected = self._predict(*probes, "float32")
            self._forward, self.backend, self.left_out = pick_forward(
                lambda: self._model.model, self._names, lambda: self._features(*probes), expected, self.dtype, runtime
            )

    def score(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Score P pairs in the given order: (P,) float64 in 0..1. `first`: texts or paths of images."""
        chunks = (slice(a, a + _CHUNK) for a in range(0, len(first), _CHUNK))
        with quiet():
            results = [self._outputs(first[chunk], second[chunk]) for chunk in chunks]
        outputs = np.concatenate([np.empty((0, 1)), *results])[:, 0]
        if np.isnan(outputs).any():
            message = f"this model's output is NaN for {np.isnan(outputs).sum():,} pairs"
            raise CheckError(message, where=str(self.folder), hint="Use dtype float32 or another `model`.")
        # A model without a sigmoid gives scores on the scale of STS-B, 0..5.
        relevance: NDArray[np.float64] = expit(outputs) if self.output == "sigmoid" else outputs / 5
        return np.clip(relevance, 0.0, 1.0)

    def read(self, texts: Sequence[str]) -> Reading:
        """Return statistics of the tokens that the model would read of single texts."""
        tokenizer: Any = self._model.tokenizer
        with quiet():
            empty, *tokens = tokenizer(["", *texts], verbose=False)["input_ids"]
        truncated = np.array([len(ids) > (self.limit or _NO_LIMIT) for ids in tokens])
        return Vocabulary(tokenizer.backend_tokenizer, tokenizer.unk_token_id, empty).read(tokens, truncated)

    def _outputs(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float32]:
        """Return the outputs of the model for P pairs, (P, 1)."""
        if self._forward:
            return self._forward(self._features(first, second), ignore_progress)
        return self._predict(first, second, self.dtype)

    def _features(self, first: Sequence[str], second: Sequence[str]) -> Features:
        """Return the inputs of the model for P pairs."""
        tokens = self._tokenizer(first, second, truncation=True, max_length=self.limit, return_attention_mask=False)
        return {name: tokens[name] for name in self._names}

    def _predict(self, first: Sequence[str], second: Sequence[str], dtype: str) -> NDArray[np.float32]:
        """Return the outputs of sentence-transformers' `predict`, (P, 1)."""
        options: dict[str, Any] = {"show_progress_bar": False, "convert_to_tensor": True}
        with products(self.device, dtype, self._threads):
            pairs = [({"image": a} if self._images else a, b) for a, b in zip(first, second, strict=True)]
            outputs = self._model.predict(pairs, activation_fn=torch.nn.Identity(), **options)
        return np.asarray(outputs.reshape(-1, 1).float().cpu().numpy())


def _check_labels(folder: Path) -> bool:
    """Raise unless a model gives one score; transformers would add a random head. Return whether it is a classifier."""
    if any(kind == "LogitScore" for _, kind in read_modules(folder)):
        return False
    config = read_json(folder / "config.json")
    kind = (config.get("architectures") or ["it"])[0]
    labels = config.get("num_labels") or len(config.get("id2label") or "12")  # transformers' default is 2
    if not kind.endswith("ForSequenceClassification"):
        message, hint = f"{kind} cannot score pairs", f"Tune one with `relabel tune bert_sts --base {folder}`."
        raise UsageError(f"this model is not a cross-encoder: {message}", where=str(folder), hint=hint)
    if labels != 1:
        message = f"this cross-encoder has {labels} labels, but relevance is one number"
        hint = "Use a model with one label, such as cross-encoder/stsb-roberta-base."
        raise UsageError(message, where=str(folder), hint=hint)
    return True


def _output_of(cross_encoder: Any, folder: Path) -> Literal["sigmoid", "raw"]:
    """Return the type of the model's activation function; raise if it is neither a sigmoid nor the identity."""
    name = type(cross_encoder.activation_fn).__name__
    if name in ("Sigmoid", "Identity"):
        return "sigmoid" if name == "Sigmoid" else "raw"
    message = f"this cross-encoder has the activation function {name}; only Sigmoid and Identity are supported"
    hint = "Save it with the activation function torch.nn.Sigmoid, or with Identity for scores of 0 to 5."
    raise UsageError(message, where=str(folder), hint=hint)
