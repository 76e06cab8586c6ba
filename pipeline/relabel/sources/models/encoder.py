"""Sentence encoders of sentence-transformers, run by OpenVINO, torch or the library itself.

The outputs of the fastest backend are compared with the model's `encode` on a few texts. If they differ, `encode` is
used instead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Runtime, pick_device
from relabel.sources.models.base import MODEL, OUTPUTS, TEXTS, TOKENIZER, Encoder
from relabel.sources.models.forward import (
    PROBES,
    Features,
    Outputs,
    convert,
    import_openvino,
    pick_forward,
    product_type,
    products,
)
from relabel.sources.models.loading import copy_tokenizer, default_prompt, load_model, quiet


class SentenceEncoder(Encoder):
    """A sentence encoder, loaded by sentence-transformers.

    `folder`: folder of the model's files. `prompt`: text before every input; None uses the model's default prompt.
    `max_length`: maximum number of tokens, including special tokens; None uses the model's limit. `dtype`: dtype of
    matrix products (see `product_type`); sums and norms are in float32. `runtime`: threads and device.
    """

    def __init__(self, folder: Path, prompt: str | None, max_length: int | None, dtype: str, runtime: Runtime) -> None:
        self.device, self.threads = pick_device(runtime.device), runtime.threads
        self.dtype, self._model = product_type(dtype, self.device), load_model(folder, self.device, max_length)
        prompt = default_prompt(self._model) if prompt is None else prompt
        super().__init__(copy_tokenizer(self._model), prompt, getattr(self._model.tokenizer, "unk_token_id", None))
        # One thread for a few probes, because threads would wait for each other on a busy machine.
        self._expected = self.encode_plain(PROBES, "float32", 1)
        if not np.isfinite(self._expected).any():
            raise CheckError("this model gives no finite vectors", where=str(folder), hint="Use another model.")
        self.width = self._expected.shape[1]
        with quiet():
            self._forward, self.backend, self.left_out = pick_forward(
                lambda: _WithoutMask(self._model), ["input_ids"], self._probes, self._expected, self.dtype, runtime
            )

    def convert(self) -> Any:
        """Convert to an OpenVINO model with the only input `input_ids`. Raises UsageError if OpenVINO cannot run it."""
        if self.backend != "openvino" or self._tokenizer is None:
            reasons = "; ".join(self.left_out) or "its tokenizer is not from the library tokenizers"
            raise UsageError(f"OpenVINO cannot run this model ({reasons})", hint="Use dtype float32 or bfloat16.")
        return convert(_WithoutMask(self._model), ["input_ids"])

    def save(self, folder: Path, model: Any = None) -> None:
        """Write the files of a SavedEncoder. `model`: an OpenVINO model; by default, the result of `convert`."""
        import_openvino().save_model(model or self.convert(), folder / MODEL, compress_to_fp16=False)
        self._tokenizer.save(str(folder / TOKENIZER))
        (folder / TEXTS).write_text(json.dumps({"prompt": self.prompt, "unknown": self.unknown}), encoding="utf-8")
        np.save(folder / OUTPUTS, self._expected)

    def _probes(self) -> Features:
        """Return the tokens of the probes. Raises ValueError if the model excludes the prompt from pooling."""
        if self.prompt and not all(getattr(module, "include_prompt", True) for module in self._model):
            raise ValueError("the model excludes the prompt from pooling")
        return {"input_ids": self.tokens(PROBES)[0]}

    def encode_plain(self, texts: Sequence[str], dtype: str, threads: int) -> Outputs:
        """Return the outputs of the model's `encode`."""
        options: dict[str, Any] = {"show_progress_bar": False, "convert_to_tensor": True}
        with quiet(), products(self.device, dtype, threads):
            output = self._model.encode(list(texts), prompt=self.prompt, **options)
        return np.asarray(output.float().cpu().numpy())


class _WithoutMask(nn.Module):
    """A sentence encoder for texts of equal length: transformer, pooling without a mask, and further modules."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        transformer, pooling, *rest = model
        self.transformer, self.rest = transformer.auto_model, nn.ModuleList(rest)
        ids = torch.arange(1, 4, device=transformer.auto_model.device)[None]
        features = transformer({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        states, pooled = features["token_embeddings"], pooling(features)["sentence_embedding"]
        self.first = torch.allclose(pooled, states[:, 0])
        if not self.first and not torch.allclose(pooled, states.mean(1), atol=1e-5):
            raise ValueError("the model uses neither mean pooling nor the first token")

    def forward(self, input_ids: Tensor) -> Tensor:
        states = self.transformer(input_ids=input_ids)[0]
        vector: Tensor = states[:, 0] if self.first else states.mean(1)
        for module in self.rest:
            vector = module({"sentence_embedding": vector})["sentence_embedding"]
        return vector
