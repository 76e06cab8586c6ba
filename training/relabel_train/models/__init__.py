"""Reference models, one per file, with `encode_images`, `encode_captions` and `scores`."""

from __future__ import annotations

from typing import Any

from relabel_train.models.base import Model, Vocabulary
from relabel_train.models.sgraf import SAF, SGR
from relabel_train.models.vse_inf import GPO, VSEInfinity
from relabel_train.models.vsepp import VSEPP

MODELS: dict[str, type[VSEPP | VSEInfinity | SGR | SAF]] = {
    "vsepp": VSEPP,
    "vse_inf": VSEInfinity,
    "sgr": SGR,
    "saf": SAF,
}
"""Models by name."""

__all__ = ["GPO", "MODELS", "SAF", "SGR", "VSEPP", "Model", "VSEInfinity", "Vocabulary", "make_model"]


def make_model(name: str, width: int, vocabulary: Vocabulary, embed: int, word: int, text: str = "gru") -> Model:
    """Make a model by name.

    Raises
    ------
    ValueError
        If there is no such model, or it has no such text encoder.

    Examples
    --------
    >>> import torch
    >>> from relabel_train.models import Vocabulary, make_model
    >>> texts = ["a dog on a surfboard", "two cats"]
    >>> model = make_model("vsepp", width=8, vocabulary=Vocabulary.of(texts, least=1), embed=16, word=12)
    >>> images = model.encode_images(torch.rand(2, 5, 8), torch.tensor([5, 3]))  # 5 regions, and 3
    >>> model.scores(images, model.encode_captions(*model.tokens(texts))).shape
    torch.Size([2, 2])
    """
    if name == "sgraf":
        raise ValueError("sgraf is the average of an sgr and a saf run: train both, then `relabel eval --average`")
    if name not in MODELS:
        raise ValueError(f"no model {name!r}; there are {', '.join(MODELS)}")
    more: dict[str, Any] = {"text": text} if name == "vse_inf" else {}
    if name != "vse_inf" and text != "gru":
        raise ValueError(f"{name} reads captions by a GRU, not by {text!r}")
    return MODELS[name](width, vocabulary, embed, word, **more)
