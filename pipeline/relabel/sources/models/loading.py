"""Load a sentence-transformers model from its files, quietly, and say what it takes."""

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

_NO_LIMIT = 1_000_000  # some tokenizers say 1e30


def load_model(folder: Path, device: Literal["cpu", "cuda"], max_length: int | None) -> SentenceTransformer:
    """Load a model in float32, for inference.

    Parameters
    ----------
    folder : Path
    device : "cpu" or "cuda"
    max_length : int or None
        Tokens a text is cut to, special tokens included; None leaves the model's.

    Raises
    ------
    MissingError
        If sentence-transformers is not installed.
    CheckError
        As `load_from_folder`.
    UsageError
        If `max_length` is more than the model has positions.
    """
    model: SentenceTransformer = load_from_folder("SentenceTransformer", folder, device=device)
    model.float().eval()
    limit, positions = length_limit(model), positions_of(model)
    if max_length is not None:
        _cut(model, max_length, positions)
    elif limit is not None and positions is not None and limit > positions:
        model.max_seq_length = positions
    return model


def load_from_folder(kind: Literal["SentenceTransformer", "CrossEncoder"], folder: Path, **options: Any) -> Any:
    """Load a model of sentence-transformers from its files. All models are loaded here.

    Parameters
    ----------
    kind : "SentenceTransformer" or "CrossEncoder"
    folder : Path
    **options
        Of the class.

    Raises
    ------
    MissingError
        If sentence-transformers is not installed.
    CheckError
        If the files could run code or unpickle (see `check_model_folder`), or are not a model that it can load.
    """
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
        except Exception as error:  # whatever a damaged or foreign file makes it raise
            raise CheckError(
                f"sentence-transformers cannot load this model ({type(error).__name__}: {_first_line(error)})",
                where=str(folder),
                todo="Get it again, or name another model.",
            ) from error


def length_limit(model: SentenceTransformer) -> int | None:
    """Tokens that a text is cut to, special tokens included; None if it is not cut."""
    limit = model.max_seq_length
    return int(limit) if limit is not None and limit < _NO_LIMIT else None


def default_prompt(model: SentenceTransformer) -> str:
    """What the model's authors put before every text."""
    name = model.default_prompt_name
    return (model.prompts.get(name) or "") if name else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the bars and warnings that transformers and sentence-transformers print."""
    from transformers import utils

    other = logging.getLogger("sentence_transformers")
    theirs: Any = utils.logging  # not typed
    level, others, bars = theirs.get_verbosity(), other.level, theirs.is_progress_bar_enabled()
    theirs.set_verbosity_error()
    other.setLevel(logging.ERROR)
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        other.setLevel(others)
        if bars:
            theirs.enable_progress_bar()


def _cut(model: SentenceTransformer, max_length: int, positions: int | None) -> None:
    if positions is not None and max_length > positions:
        raise UsageError(f"max_length {max_length} is more than the model's {positions} positions")
    try:
        model.max_seq_length = max_length
    except AttributeError as error:
        raise UsageError("this model has no max_length", todo="Leave it out.") from error


def positions_of(model: SentenceTransformer) -> int | None:
    """How many positions the model has learned (RoBERTa's kin keep the first few for padding)."""
    from torch import nn

    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
