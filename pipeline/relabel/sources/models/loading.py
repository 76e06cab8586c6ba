"""Loading of sentence-transformers models from their files, and their limits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.sources.models.checks import check_model_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_NO_LIMIT = 1_000_000  # limits from here on mean none; some tokenizers have 1e30


def load_model(folder: Path, device: Literal["cpu", "cuda"], max_length: int | None) -> SentenceTransformer:
    """Load a sentence encoder in float32, for inference.

    `max_length`: tokens a text is truncated to, special tokens included; None uses the model's limit.
    """
    model: SentenceTransformer = load_from_folder("SentenceTransformer", folder, device=device)
    model.float().eval()
    limit, positions = length_limit(model), positions_of(model)
    if max_length is not None:
        check_max_length(max_length, positions)
        try:
            model.max_seq_length = max_length
        except AttributeError as error:
            raise UsageError("this model has no max_length", todo="Leave `max_length` out.") from error
    elif limit is not None and positions is not None and limit > positions:
        # A tokenizer may allow more tokens than the model has positions for.
        model.max_seq_length = positions
    return model


def load_from_folder(kind: Literal["SentenceTransformer", "CrossEncoder"], folder: Path, **options: Any) -> Any:
    """Load a model of sentence-transformers from its files. Every model is loaded by this function."""
    # No file of the folder is passed on before it is checked.
    check_model_folder(folder)
    try:
        import sentence_transformers
    except ImportError as error:
        todo = "Run `pip install 'relabel-itr[pipeline]'`."
        raise MissingError("sentence-transformers is not installed", todo=todo) from error
    with quiet():
        try:
            load = getattr(sentence_transformers, kind)
            return load(str(folder), local_files_only=True, trust_remote_code=False, **options)
        except Exception as error:  # damaged and foreign files raise errors of many kinds
            raise CheckError(
                f"sentence-transformers cannot load this model ({type(error).__name__}: {first_line(error)})",
                where=str(folder),
                todo="Fetch it again, or name another model.",
            ) from error


def length_limit(model: SentenceTransformer) -> int | None:
    """Return the number of tokens a text is truncated to, special tokens included; None if there is no limit."""
    limit = model.max_seq_length
    return int(limit) if limit is not None and limit < _NO_LIMIT else None


def default_prompt(model: SentenceTransformer) -> str:
    """Return the text that the model's authors put before every input."""
    name = model.default_prompt_name
    return (model.prompts.get(name) or "") if name else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the progress bars and warnings of transformers and sentence-transformers within the context."""
    from transformers import utils

    logger = logging.getLogger("sentence_transformers")
    hf_logging: Any = utils.logging  # untyped
    level, logger_level, bars = hf_logging.get_verbosity(), logger.level, hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    logger.setLevel(logging.ERROR)
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        logger.setLevel(logger_level)
        if bars:
            hf_logging.enable_progress_bar()


def check_max_length(max_length: int | None, positions: int | None) -> None:
    """Raise if texts would be truncated to more tokens than a model has positions.

    `max_length`: requested number of tokens; None leaves the model's limit. `positions`: positions of the model (see
    `positions_of`).
    """
    if max_length is not None and positions is not None and max_length > positions:
        message = f"max_length {max_length} is more than the model's {positions} positions"
        raise UsageError(message, todo=f"Set `max_length` to {positions} or less.")


def positions_of(model: SentenceTransformer) -> int | None:
    """Return the number of positions a model has learned, or None. RoBERTa reserves the first few for padding."""
    from torch import nn

    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def training_type(requested: str, device: str) -> Literal["float32", "bfloat16"]:
    """Return the type of products in training: as requested, or for "auto" bfloat16 if the hardware multiplies it."""
    if requested != "auto":
        return "float32" if requested == "float32" else "bfloat16"
    import torch

    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    # Private functions of torch, which other versions may lack.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    checks = (getattr(torch.cpu, name, lambda: False) for name in names)
    return "bfloat16" if any(supported() for supported in checks) else "float32"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
