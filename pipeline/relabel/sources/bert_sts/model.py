"""Load a cross-encoder from its files: one output, and how that becomes a relevance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, UsageError
from relabel.sources.models.loading import load_from_folder, positions_of

Output = Literal["sigmoid", "raw"]

_HEAD = "ForSequenceClassification"
_HIGHEST = 5.0  # STS-B's scores: what a model without a sigmoid gives


@dataclass(frozen=True)
class CrossModel:
    """A loaded cross-encoder.

    Attributes
    ----------
    whole : sentence_transformers.CrossEncoder
    output : "sigmoid" or "raw"
        Whether a sigmoid makes the output a score of 0..1.
    scale : float
        What a raw output is divided by.
    limit : int
        Tokens a pair is cut to, special tokens included.
    """

    whole: Any
    output: Output
    scale: float
    limit: int


def check_labels(folder: Path) -> None:
    """Refuse, before it is loaded, a model that does not give one score for two texts.

    Raises
    ------
    UsageError
        If it has no head of its own, or more outputs than one.
    CheckError
        If its configuration cannot be read.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = str((config.get("architectures") or [""])[0])
        labels = int(config.get("num_labels") or len(config.get("id2label") or "12"))  # transformers' default is 2
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CheckError(f"no configuration of a model: {error}", where=str(folder / "config.json")) from error
    if not kind.endswith(_HEAD):
        what = f"this model is no cross-encoder: {kind or 'it'} scores no pairs"
        raise UsageError(what, where=str(folder), todo="Make one of it: `relabel tune bert_sts --base MODEL`.")
    if labels != 1:
        what = f"this cross-encoder has {labels} labels: a relevance is one number"
        raise UsageError(
            what, where=str(folder), todo="Name a model with one, such as cross-encoder/stsb-roberta-base."
        )


def load_cross_encoder(
    folder: Path, device: str, max_length: int | None, output: Output | None, scale: float | None
) -> CrossModel:
    """Load a cross-encoder in float32, for inference.

    Parameters
    ----------
    folder : Path
    device : "cpu" or "cuda"
    max_length : int or None
        Tokens a pair is cut to; None takes the model's.
    output : "sigmoid", "raw" or None
        None takes what the model's configuration says: a sigmoid, unless it names the identity.
    scale : float or None
        None takes 5 for raw outputs, which STS-B's scores 0..5 make, and 1 after a sigmoid.

    Raises
    ------
    MissingError
        If sentence-transformers is not installed.
    CheckError
        As `load_from_folder`.
    UsageError
        As `check_labels`; if `max_length` is more than the model has positions; or if its configuration names another
        function than sigmoid and identity, and `output` is None.
    """
    check_labels(folder)
    whole = load_from_folder("CrossEncoder", folder, device=device)
    whole.float().eval()
    there = positions_of(whole)
    if max_length is not None and there is not None and max_length > there:
        raise UsageError(f"max_length {max_length} is more than the model's {there} positions")
    limits = (max_length,) if max_length is not None else (whole.tokenizer.model_max_length, there)
    function = output or _function(whole, folder)
    return CrossModel(whole, function, scale or (_HIGHEST if function == "raw" else 1.0), min(x for x in limits if x))


def _function(whole: Any, folder: Path) -> Output:
    name = type(whole.activation_fn).__name__
    if name == "Sigmoid":
        return "sigmoid"
    if name == "Identity":
        return "raw"
    what = f"this cross-encoder ends in {name}, neither a sigmoid nor nothing"
    raise UsageError(what, where=str(folder), todo="Say with `output` and `scale` how it becomes 0..1.")
