"""The layers of an encoder that do not learn, run once a caption: training then begins where learning does.

With its lower layers frozen, what a model makes of a caption up to there is the same at every step. It is computed once
and kept; the model is cut so that it goes on from there, and put together again to be saved.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from typing import Any

from torch import Tensor, nn

_LAYER = re.compile(r"\.layers?\.(\d+)\.")


class Given(nn.Module):
    """Stands where the word embeddings stood: gives what the lower layers made of this thread's texts."""

    def __init__(self) -> None:
        super().__init__()
        self.local = threading.local()

    def forward(self, *_args: object, **_kwargs: object) -> Tensor:
        """Return (B, L, D) hidden states, whatever is asked."""
        hidden: Tensor = self.local.hidden
        return hidden


class Cut:
    """A model in two: what lies below the layers that learn, and the rest.

    Parameters
    ----------
    model : SentenceTransformer
        Of the kin of BERT: word embeddings, then an encoder with a list of layers.
    keep : int
        How many layers the rest has, counted from the last.

    Attributes
    ----------
    given : Given
        Its `local.hidden` is what the rest starts from.

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
        self.given = Given()

    def lower(self) -> None:
        """Leave the lower layers alone in the model."""
        self._inner.encoder.layer = self._layers[: self._border]

    def rest(self) -> None:
        """Leave the upper layers alone in it, going on from `given`."""
        self._inner.embeddings, self._inner.encoder.layer = self.given, self._layers[self._border :]

    def join(self) -> None:
        """Put the model together again."""
        self._inner.embeddings, self._inner.encoder.layer = self._embeddings, self._layers


def layer_of(name: str) -> int | None:
    """Which layer a parameter is of, counted from the words."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def depth(model: nn.Module) -> int:
    """How many layers a model has."""
    return max((at for n, _ in model.named_parameters() if (at := layer_of(n)) is not None), default=-1) + 1


def can_cut(model: Any, keep: int) -> Cut | None:
    """Cut a model, if it is built as this needs and has more than `keep` layers."""
    if not 0 < keep < depth(model):
        return None
    with suppress(AttributeError, TypeError):
        return Cut(model, keep)
    return None
