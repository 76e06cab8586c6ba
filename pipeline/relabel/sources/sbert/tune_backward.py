"""Vectors of captions, and the gradient of a loss of them, computed by threads that never wait inside an operator.

A batch is divided by length into pieces, so that there is little padding. Each piece runs forward on its own thread.
The loss is computed from all vectors together. Each piece then runs backward with the gradient of the loss for its
vectors. Pieces depend on lengths only and their gradients are added in order, so the result is the same for any number
of threads.

The output of frozen lower layers for a caption is the same at every step, so it is computed once and cached. The model
is split to start from the cached output, and joined again before it is saved.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relabel.core.runtime import Runtime, pick_device
from relabel.sources.models.loading import default_prompt, length_limit, load_model, quiet

_LAYER = re.compile(r"\.layers?\.(\d+)\.")


class CachedLayers(nn.Module):
    """Module in place of the word embeddings, which returns the lower layers' cached output for this thread's texts.

    `local`: its attribute `hidden` is the cached output, (B, L, D).
    """

    def __init__(self) -> None:
        super().__init__()
        self.local = threading.local()

    def forward(self, *_args: object, **_kwargs: object) -> Tensor:
        """Return the cached (B, L, D) hidden states; arguments are ignored."""
        hidden: Tensor = self.local.hidden
        return hidden


class SplitEncoder:
    """A model in two parts: the frozen lower layers and the layers that learn.

    `model`: BERT-like: word embeddings, then an encoder with a list of layers. `keep`: number of layers in the upper
    part, counted from the last.

    `cached`: input of the upper part.
    """

    def __init__(self, model: Any, keep: int) -> None:
        self._inner = model[0].auto_model
        self._embeddings, self._layers = self._inner.embeddings, self._inner.encoder.layer
        if not isinstance(self._layers, nn.ModuleList):
            raise TypeError("the layers are no list")
        self._border = len(self._layers) - keep
        self.cached = CachedLayers()

    def use_lower(self) -> None:
        """Reduce the model to its lower layers."""
        self._inner.encoder.layer = self._layers[: self._border]

    def use_upper(self) -> None:
        """Reduce the model to its upper layers, which start from `cached`."""
        self._inner.embeddings, self._inner.encoder.layer = self.cached, self._layers[self._border :]

    def join(self) -> None:
        """Restore the complete model."""
        self._inner.embeddings, self._inner.encoder.layer = self._embeddings, self._layers


def layer_number(name: str) -> int | None:
    """Return the layer that a parameter belongs to, counted from the word embeddings; None if it is in no layer."""
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def count_layers(model: nn.Module) -> int:
    """Return the number of layers of a model."""
    return (
        max((layer for name, _ in model.named_parameters() if (layer := layer_number(name)) is not None), default=-1)
        + 1
    )


def split_encoder(model: Any, keep: int) -> SplitEncoder | None:
    """Split a model; None if it is not BERT-like or has no more than `keep` layers."""
    if not 0 < keep < count_layers(model):
        return None
    with suppress(AttributeError, TypeError):
        return SplitEncoder(model, keep)
    return None


Hidden = list[Tensor]
_TOKENS = 1024  # per piece


class Dropout(nn.Module):
    """Dropout that draws from a generator of its thread, so that draws do not depend on other threads.

    Without a generator it returns its input.

    `share`: share of the values that are dropped. `local`: its attribute `generator` is the thread's generator.
    """

    def __init__(self, share: float, local: threading.local) -> None:
        super().__init__()
        self.share, self.local = share, local

    def forward(self, values: Tensor) -> Tensor:
        """Set a share of the values to 0 and scale the others up."""
        generator = getattr(self.local, "generator", None)
        if generator is None or not self.share:
            return values
        keep = torch.rand(values.shape, generator=generator, device=values.device) >= self.share
        return values * keep / (1 - self.share)


class GradientModel:
    """A sentence encoder in training on N captions.

    `folder`: folder of the model's files. `texts`: the captions. `dtype`: type of matrix products. `dropout`: share of
    each learning layer's output that is dropped in training. `embeddings`: whether word embeddings learn. `layers`:
    number of layers that learn, counted from the last; 0 for all. `hidden`: attribute `hidden` of another GradientModel
    with the same files, texts and layers.

    `parameters`: parameters that learn.
    `hidden`: output of the frozen layers for each caption, (L, D) each; None if all layers learn.
    """

    def __init__(
        self,
        folder: Path,
        texts: Sequence[str],
        runtime: Runtime,
        dtype: torch.dtype,
        dropout: float = 0.0,
        embeddings: bool = False,
        layers: int = 0,
        hidden: Hidden | None = None,
    ) -> None:
        self.device, self.dtype = pick_device(runtime.device), dtype
        self.model = load_model(folder, self.device, None)
        _use_eager_attention(self.model)
        self._tokens = self._ids(texts)
        self._local = threading.local()
        _replace_dropout(self.model, dropout, self._local)
        count = count_layers(self.model)
        for name, parameter in self.model.named_parameters():
            layer = layer_number(name)
            # Module 0 is the transformer; the modules after it always learn.
            below = count - layer > layers if layer is not None else name.startswith("0.")
            frozen = layers and below
            parameter.requires_grad_(not frozen and (embeddings or not name.endswith("word_embeddings.weight")))
        threads = runtime.threads if self.device == "cpu" else 1
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self._cut, self.hidden = None, None
        self.parameters = self._learning_parameters()
        if cut := split_encoder(self.model, layers):
            self.hidden = hidden if hidden is not None else self._frozen_output(cut)
            cut.use_upper()
            self._cut = cut

    def close(self) -> None:
        """Stop the threads and restore the complete model."""
        self._pool.shutdown()
        if self._cut is not None:
            self._cut.join()
            self._cut = None

    def gradients(
        self, captions: NDArray[np.int64], loss: Callable[[Tensor], Tensor], seed: Sequence[int]
    ) -> tuple[float, dict[str, Tensor]]:
        """Compute a loss of C unit vectors and its gradient.

        `captions`: (C,) int64. `loss`: maps (C, D) float32 to a scalar. `seed`: seed of dropout. Returns `gradients`:
        gradient of each parameter.
        """
        pieces = divide_by_length([len(self._tokens[i]) for i in captions])
        vectors = list(self._pool.map(lambda i: self._vectors(captions[pieces[i]], [*seed, i]), range(len(pieces))))
        # Back to the order of `captions`; the loss sees all vectors as one leaf.
        order = torch.from_numpy(np.argsort(np.concatenate(pieces))).to(self.device)
        leaf = torch.cat([piece.detach() for piece in vectors])[order].requires_grad_()
        value = loss(leaf)
        value.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        # Each piece continues backward with its rows of the gradient.
        shares = [leaf.grad[torch.from_numpy(piece).to(self.device)] for piece in pieces]
        inputs = list(self.parameters.values())
        total: list[Tensor] = []
        for parts in self._pool.map(lambda piece, share: torch.autograd.grad(piece, inputs, share), vectors, shares):
            # `map` returns pieces in order, so sums have one order for any number of threads.
            total = [a.add_(b) for a, b in zip(total, parts, strict=True)] if total else list(parts)
        return float(value.detach()), dict(zip(self.parameters, total, strict=True))

    def vectors(self, captions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Encode captions with the current parameters: (C, D) float32 unit vectors."""
        pieces = divide_by_length([len(self._tokens[i]) for i in captions])

        def encode_piece(piece: NDArray[np.int64]) -> Tensor:
            with torch.inference_mode():
                return self._vectors(captions[piece], None)

        encoded = torch.cat(list(self._pool.map(encode_piece, pieces))).cpu().numpy()
        out = np.empty_like(encoded)
        out[np.concatenate(pieces)] = encoded
        return out

    def _vectors(self, captions: NDArray[np.int64], seed: Sequence[int] | None) -> Tensor:
        """Encode one piece; `seed` turns dropout on."""
        if seed is not None:
            # A generator per piece: draws depend on seed and piece, not on the thread that runs it.
            self._local.generator = torch.Generator(self.device)
            self._local.generator.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        try:
            if self._cut is not None and self.hidden is not None:
                hidden = [self.hidden[i] for i in captions]
                self._cut.cached.local.hidden = nn.utils.rnn.pad_sequence(hidden, batch_first=True)
            with self._autocast():
                out: Tensor = self.model(self._features([self._tokens[i] for i in captions]))["sentence_embedding"]
            return nn.functional.normalize(out.float(), dim=-1)
        finally:
            self._local.generator = None

    def _frozen_output(self, cut: Any) -> Hidden:
        """Return the output of the frozen layers for every caption."""
        cut.use_lower()
        out: Hidden = [torch.empty(0)] * len(self._tokens)

        def run_piece(piece: NDArray[np.int64]) -> None:
            tokens = [self._tokens[i] for i in piece]
            with torch.no_grad(), self._autocast():
                output = self.model[0](self._features(tokens))["token_embeddings"].to(self.dtype)
            for i, ids, states in zip(piece, tokens, output, strict=True):
                # Copies without padding: another piece pads the caption to another length.
                out[i] = states[: len(ids)].clone()

        list(self._pool.map(run_piece, divide_by_length([len(ids) for ids in self._tokens])))
        cut.join()
        return out

    def _features(self, tokens: list[list[int]]) -> dict[str, Tensor]:
        """Return padded token ids and their mask."""
        width = max(map(len, tokens))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in tokens], device=self.device)
        lengths = torch.tensor([len(row) for row in tokens], device=self.device)
        return {"input_ids": ids, "attention_mask": (torch.arange(width, device=self.device) < lengths[:, None]).long()}

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts as the model's own `encode` makes them."""
        full = [default_prompt(self.model) + text.strip() for text in texts]
        if getattr(self.model[0], "do_lower_case", False):
            full = [text.lower() for text in full]
        tokenizer: Any = self.model.tokenizer
        limit = length_limit(self.model)
        truncation = {"truncation": True, "max_length": limit} if limit else {}
        ids: list[list[int]] = tokenizer(full, padding=False, verbose=False, **truncation)["input_ids"]
        return ids

    def _autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which products have type `dtype`."""
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device, dtype=self.dtype)

    def _learning_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that learn and that a vector depends on."""
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        with quiet():
            out = self._vectors(np.zeros(1, np.int64), None).sum()
        # A pooler, for example, belongs to the model but not to the graph of a vector.
        gradients = torch.autograd.grad(out, list(named.values()), allow_unused=True)
        return {n: p for (n, p), gradient in zip(named.items(), gradients, strict=True) if gradient is not None}


def divide_by_length(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Divide texts, shortest first, into pieces with a bounded number of tokens, padding included."""
    order = np.argsort(lengths, kind="stable")
    pieces: list[NDArray[np.int64]] = []
    start = 0
    for i, text in enumerate(order.tolist()):
        # Texts ascend in length, so the current one is the width of the piece.
        if i > start and (i - start + 1) * lengths[text] > _TOKENS:
            pieces.append(order[start:i])
            start = i
    return [*pieces, order[start:]]


def _use_eager_attention(model: Any) -> None:
    """Compute attention by products and a softmax."""
    inner = getattr(model[0], "auto_model", None)
    with quiet(), suppress(AttributeError, ValueError):  # a model with a single attention implementation
        # In bfloat16, torch's fused attention runs backward 8 times slower on a CPU.
        inner.set_attn_implementation("eager")  # type: ignore[union-attr]


def _replace_dropout(model: nn.Module, share: float, local: threading.local) -> None:
    """Replace the model's dropout layers, in place."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, Dropout(share, local))
