"""Cross-encoders loaded from their files, with one output that becomes a relevance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, UsageError
from relabel.core.hints import command
from relabel.sources.models.loading import check_max_length, load_from_folder, positions_of

Output = Literal["sigmoid", "raw"]

_HEAD = "ForSequenceClassification"
_HIGHEST = 5.0  # highest score of STS-B, the scale of a model without a sigmoid


@dataclass(frozen=True)
class CrossEncoderModel:
    """A loaded cross-encoder.

    Attributes
    ----------
    cross_encoder : sentence_transformers.CrossEncoder
    output : "sigmoid" or "raw"
        Whether a sigmoid maps the output to 0..1.
    scale : float
        Divisor of an output.
    limit : int
        Largest number of tokens of a pair, special tokens included.
    """

    cross_encoder: Any
    output: Output
    scale: float
    limit: int


def check_labels(folder: Path) -> None:
    """Raise if a model does not give one score for two texts. The model is not loaded.

    Parameters
    ----------
    folder : Path
        Folder of the model's files.

    Raises
    ------
    UsageError
        If the model has no classification head, or more than one output.
    CheckError
        If the configuration cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from relabel.core.errors import UsageError
    >>> from relabel.sources.bert_sts.model import check_labels
    >>> with TemporaryDirectory() as folder:
    ...     config = Path(folder, "config.json")
    ...     _ = config.write_text('{"architectures": ["BertForSequenceClassification"], "num_labels": 3}')
    ...     try:
    ...         check_labels(Path(folder))
    ...     except UsageError as error:
    ...         print("this cross-encoder has 3 labels" in str(error))
    True
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = str((config.get("architectures") or [""])[0])
        labels = int(config.get("num_labels") or len(config.get("id2label") or "12"))  # transformers' default is 2
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CheckError(f"no configuration of a model: {error}", where=str(folder / "config.json")) from error
    if not kind.endswith(_HEAD):
        message = f"this model is no cross-encoder: {kind or 'it'} scores no pairs"
        raise UsageError(
            message, where=str(folder), todo=f"Make one of it: {command('tune', 'bert_sts', '--base', folder)}."
        )
    if labels != 1:
        message = f"this cross-encoder has {labels} labels: a relevance is one number"
        raise UsageError(
            message, where=str(folder), todo="Name a model with one, such as cross-encoder/stsb-roberta-base."
        )


def load_cross_encoder(
    folder: Path, device: str, max_length: int | None, output: Output | None, scale: float | None
) -> CrossEncoderModel:
    """Load a cross-encoder in float32, for inference.

    Parameters
    ----------
    folder : Path
    device : "cpu" or "cuda"
    max_length : int or None
        Tokens a pair is truncated to; None uses the model's limit.
    output : "sigmoid", "raw" or None
        None uses the model's configuration: a sigmoid, unless it names the identity.
    scale : float or None
        None is 5 for raw outputs, because STS-B's scores are 0..5, and 1 after a sigmoid.

    Raises
    ------
    MissingError
        If sentence-transformers is not installed.
    CheckError
        If the files could run code, or are not a model (see `load_from_folder`).
    UsageError
        If the model does not give one score (see `check_labels`), `max_length` exceeds the model's positions, or
        `output` is None and the model ends in a function other than sigmoid and identity.
    """
    check_labels(folder)
    cross_encoder = load_from_folder("CrossEncoder", folder, device=device)
    cross_encoder.float().eval()
    positions = positions_of(cross_encoder)
    check_max_length(max_length, positions)
    limits = (max_length,) if max_length is not None else (cross_encoder.tokenizer.model_max_length, positions)
    kind = output or _output_kind(cross_encoder, folder)
    return CrossEncoderModel(
        cross_encoder, kind, scale or (_HIGHEST if kind == "raw" else 1.0), min(limit for limit in limits if limit)
    )


def _output_kind(cross_encoder: Any, folder: Path) -> Output:
    """Return how the model's last function maps its output; raise if it is neither a sigmoid nor the identity."""
    name = type(cross_encoder.activation_fn).__name__
    if name == "Sigmoid":
        return "sigmoid"
    if name == "Identity":
        return "raw"
    message = f"this cross-encoder ends in {name}, neither a sigmoid nor nothing"
    raise UsageError(message, where=str(folder), todo="Say with `output` and `scale` how it becomes 0..1.")
