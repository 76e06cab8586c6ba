"""Vectors of captions, and the gradient of any loss of them, by threads that never wait inside an operator.

A batch is cut by length into pieces, so that little is padded. Each piece goes forward on a thread of its own; the loss
is taken of all vectors at once; each piece then goes backward with its vectors' share of the loss's gradient. Pieces
are a function of lengths alone and their gradients are summed in order: the result is the same on any number of
threads.
"""

from __future__ import annotations

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
from relabel.sources.sbert.tune_frozen_layers import can_cut, depth, layer_of

Hidden = list[Tensor]
_TOKENS = 1024  # a piece


class Dropout(nn.Module):
    """Dropout that draws from its thread's own generator, where there is one: no thread's draws hang on another's."""

    def __init__(self, share: float, local: threading.local) -> None:
        super().__init__()
        self.share, self.local = share, local

    def forward(self, values: Tensor) -> Tensor:
        """Set a share of the values to 0 and scale the rest up."""
        generator = getattr(self.local, "generator", None)
        if generator is None or not self.share:
            return values
        keep = torch.rand(values.shape, generator=generator, device=values.device) >= self.share
        return values * keep / (1 - self.share)


class Gradients:
    """A sentence encoder that is trained on N captions.

    Parameters
    ----------
    folder : Path
        Its files.
    texts : sequence of str
        The captions.
    runtime : Runtime
    dtype : torch.dtype
        What matrix products are computed in.
    dropout : float
        Share of each learning layer's output that is dropped in training.
    embeddings : bool
        Whether word embeddings learn, too.
    layers : int
        How many layers learn, counted from the last; 0 for all.
    hidden : list of Tensor, optional
        Another one's `hidden`, of the same files, texts and layers.

    Attributes
    ----------
    parameters : dict of str to Parameter
        Those that learn.
    hidden : list of Tensor or None
        What the layers that do not learn make of each caption, (L, D) each; None where all learn.

    Raises
    ------
    MissingError, CheckError
        As `load_model` and `pick_device`.
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
        _plain_attention(self.model)
        self._tokens = self._ids(texts)
        self._local = threading.local()
        _replace_dropout(self.model, dropout, self._local)
        top = depth(self.model)
        for name, parameter in self.model.named_parameters():
            at = layer_of(name)
            frozen = layers and (top - at > layers if at is not None else name.startswith("0."))  # 0: the transformer
            parameter.requires_grad_(not frozen and (embeddings or not name.endswith("word_embeddings.weight")))
        threads = runtime.threads if self.device == "cpu" else 1
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self._cut, self.hidden = None, None
        self.parameters = self._learning()
        if cut := can_cut(self.model, layers):
            self.hidden = hidden if hidden is not None else self._below(cut)
            cut.rest()
            self._cut = cut

    def close(self) -> None:
        """End the threads and leave the model whole."""
        self._pool.shutdown()
        if self._cut is not None:
            self._cut.join()
            self._cut = None

    def gradients(
        self, captions: NDArray[np.int64], loss: Callable[[Tensor], Tensor], seed: Sequence[int]
    ) -> tuple[float, dict[str, Tensor]]:
        """Compute a loss of C unit vectors and its gradient.

        Parameters
        ----------
        captions : (C,) int64
        loss : callable
            Takes (C, D) float32 and gives a scalar.
        seed : sequence of int
            Of dropout.

        Returns
        -------
        loss : float
        gradients : dict of str to Tensor
            By parameter.
        """
        pieces = cut_by_length([len(self._tokens[i]) for i in captions])
        found = list(self._pool.map(lambda i: self._vectors(captions[pieces[i]], [*seed, i]), range(len(pieces))))
        order = torch.from_numpy(np.argsort(np.concatenate(pieces))).to(self.device)
        together = torch.cat([vectors.detach() for vectors in found])[order].requires_grad_()
        value = loss(together)
        value.backward()  # type: ignore[no-untyped-call]
        assert together.grad is not None
        shares = [together.grad[torch.from_numpy(piece).to(self.device)] for piece in pieces]
        inputs = list(self.parameters.values())
        total: list[Tensor] = []
        for parts in self._pool.map(lambda vectors, share: torch.autograd.grad(vectors, inputs, share), found, shares):
            total = [a.add_(b) for a, b in zip(total, parts, strict=True)] if total else list(parts)
        return float(value.detach()), dict(zip(self.parameters, total, strict=True))

    def vectors(self, captions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Encode captions as the model is now: (C, D) float32 unit vectors."""
        pieces = cut_by_length([len(self._tokens[i]) for i in captions])

        def work(piece: NDArray[np.int64]) -> Tensor:
            with torch.inference_mode():
                return self._vectors(captions[piece], None)

        found = torch.cat(list(self._pool.map(work, pieces))).cpu().numpy()
        out = np.empty_like(found)
        out[np.concatenate(pieces)] = found
        return out

    def _vectors(self, captions: NDArray[np.int64], seed: Sequence[int] | None) -> Tensor:
        if seed is not None:
            self._local.generator = torch.Generator(self.device)
            self._local.generator.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        try:
            if self._cut is not None and self.hidden is not None:
                hidden = [self.hidden[i] for i in captions]
                self._cut.given.local.hidden = nn.utils.rnn.pad_sequence(hidden, batch_first=True)
            with self._autocast():
                out: Tensor = self.model(self._features([self._tokens[i] for i in captions]))["sentence_embedding"]
            return nn.functional.normalize(out.float(), dim=-1)
        finally:
            self._local.generator = None

    def _below(self, cut: Any) -> Hidden:
        """Run the layers that do not learn on every caption."""
        cut.lower()
        out: Hidden = [torch.empty(0)] * len(self._tokens)

        def work(piece: NDArray[np.int64]) -> None:
            tokens = [self._tokens[i] for i in piece]
            with torch.no_grad(), self._autocast():
                found = self.model[0](self._features(tokens))["token_embeddings"].to(self.dtype)
            for i, ids, states in zip(piece, tokens, found, strict=True):
                out[i] = states[: len(ids)].clone()

        list(self._pool.map(work, cut_by_length([len(ids) for ids in self._tokens])))
        cut.join()
        return out

    def _features(self, tokens: list[list[int]]) -> dict[str, Tensor]:
        width = max(map(len, tokens))
        ids = torch.tensor([one + [0] * (width - len(one)) for one in tokens], device=self.device)
        lengths = torch.tensor([len(one) for one in tokens], device=self.device)
        return {"input_ids": ids, "attention_mask": (torch.arange(width, device=self.device) < lengths[:, None]).long()}

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        full = [default_prompt(self.model) + text.strip() for text in texts]
        if getattr(self.model[0], "do_lower_case", False):
            full = [text.lower() for text in full]
        tokenizer: Any = self.model.tokenizer
        limit = length_limit(self.model)
        cut = {"truncation": True, "max_length": limit} if limit else {}
        ids: list[list[int]] = tokenizer(full, padding=False, verbose=False, **cut)["input_ids"]
        return ids

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device, dtype=self.dtype)

    def _learning(self) -> dict[str, nn.Parameter]:
        """Name the parameters that a vector depends on."""
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        with quiet():
            out = self._vectors(np.zeros(1, np.int64), None).sum()
        found = torch.autograd.grad(out, list(named.values()), allow_unused=True)
        return {n: p for (n, p), gradient in zip(named.items(), found, strict=True) if gradient is not None}


def cut_by_length(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Cut texts, shortest first, into pieces of a bounded number of tokens, padding included."""
    order = np.argsort(lengths, kind="stable")
    pieces: list[NDArray[np.int64]] = []
    start = 0
    for i, text in enumerate(order.tolist()):
        if i > start and (i - start + 1) * lengths[text] > _TOKENS:
            pieces.append(order[start:i])
            start = i
    return [*pieces, order[start:]]


def _plain_attention(model: Any) -> None:
    """Take attention as products and a softmax: in bfloat16 torch's fused one goes backward 8 times slower on a CPU."""
    inner = getattr(model[0], "auto_model", None)
    with quiet(), suppress(AttributeError, ValueError):  # a model that has only its own attention
        inner.set_attn_implementation("eager")  # type: ignore[union-attr]


def _replace_dropout(model: nn.Module, share: float, local: threading.local) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, Dropout(share, local))
