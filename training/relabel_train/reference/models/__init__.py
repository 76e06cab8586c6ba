"""Reference models, one per file, with `encode_images`, `encode_captions` and `scores`."""

from __future__ import annotations

from typing import Any

from relabel_train.reference.models.base import Model, Vocabulary
from relabel_train.reference.models.sgraf import SAF, SGR
from relabel_train.reference.models.vse_inf import GPO, VSEInfinity
from relabel_train.reference.models.vsepp import VSEPP

MODELS: dict[str, type[VSEPP | VSEInfinity | SGR | SAF]] = {
    "vsepp": VSEPP,
    "vse_inf": VSEInfinity,
    "sgr": SGR,
    "saf": SAF,
}
"""Models by name."""

__all__ = ["GPO", "MODELS", "SAF", "SGR", "VSEPP", "Model", "VSEInfinity", "Vocabulary", "make_model"]


def make_model(
    name: str, width: int, vocabulary: Vocabulary, embed_dim: int, word_dim: int, text: str = "gru"
) -> Model:
    """Make a model by name."""
    if name == "sgraf":
        raise ValueError("sgraf is the average of an sgr and a saf run: train both, then `relabel eval --average`")
    if name not in MODELS:
        raise ValueError(f"no model {name!r}; there are {', '.join(MODELS)}")
    more: dict[str, Any] = {"text": text} if name == "vse_inf" else {}
    if name != "vse_inf" and text != "gru":
        raise ValueError(f"{name} reads captions by a GRU, not by {text!r}")
    return MODELS[name](width, vocabulary, embed_dim, word_dim, **more)
