"""Frozen lower layers of an encoder, computed once per caption.

The output of frozen layers for a caption is the same at every step, so it is computed once and cached. The model is
split to start from the cached output, and joined again before it is saved.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from typing import Any

from torch import Tensor, nn

_LAYER = re.compile(r"\.layers?\.(\d+)\.")


class CachedLayers(nn.Module):
    """Module in place of the word embeddings, which returns the lower layers' cached output for this thread's texts.

    Attributes
    ----------
    local : threading.local
        Its attribute `hidden` is the cached output, (B, L, D).
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

    Parameters
    ----------
    model : SentenceTransformer
        BERT-like: word embeddings, then an encoder with a list of layers.
    keep : int
        Number of layers in the upper part, counted from the last.

    Attributes
    ----------
    cached : CachedLayers
        Input of the upper part.

    Raises
    ------
    AttributeError, TypeError
        If the model is built otherwise.
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
    """Return the layer that a parameter belongs to, counted from the word embeddings; None if it is in no layer.

    Examples
    --------
    >>> from relabel.sources.sbert.tune_frozen_layers import layer_number
    >>> layer_number("0.auto_model.encoder.layer.5.output.dense.weight")
    5
    >>> layer_number("0.auto_model.embeddings.LayerNorm.weight") is None
    True
    """
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
