"""Loading of sentence-transformers models, their length limits, and saving to an artefact."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relabel.core.errors import CheckError, UsageError
from relabel.sources.models.checks import check_model_folder
from relabel.store.files import make_folder
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer


def load_model(folder: Path, device: Literal["cpu", "cuda"], max_length: int | None) -> SentenceTransformer:
    """Load a sentence encoder in float32 for inference.

    `max_length`: maximum number of tokens, including special tokens; None uses the model's limit.
    """
    model: SentenceTransformer = load_from_folder("SentenceTransformer", folder, device=device).float().eval()
    positions = positions_of(model)
    check_max_length(max_length, positions)
    # The limit of the tokenizer may be greater than the number of positions.
    if limits := [limit for limit in (max_length or length_limit(model), positions) if limit]:
        model.max_seq_length = min(limits)
    return model


def load_from_folder(kind: Literal["SentenceTransformer", "CrossEncoder"], folder: Path, **options: Any) -> Any:
    """Load a sentence-transformers model from local files. All models are loaded by this function."""
    # Check all files before the library reads them.
    check_model_folder(folder)
    import sentence_transformers

    with quiet():
        try:
            load = getattr(sentence_transformers, kind)
            return load(str(folder), local_files_only=True, trust_remote_code=False, **options)
        except Exception as error:  # damaged and unsupported files raise many types of errors
            raise CheckError(
                f"sentence-transformers cannot load this model ({type(error).__name__}: {first_line(error)})",
                where=str(folder),
                hint="Fetch it again, or use another model.",
            ) from error


def length_limit(model: SentenceTransformer) -> int | None:
    """Return the maximum number of tokens, including special tokens, or None if there is no limit."""
    limit = model.max_seq_length
    # Some tokenizers use 1e30 for no limit.
    return int(limit) if limit is not None and limit < 1e6 else None


def copy_tokenizer(model: SentenceTransformer) -> Tokenizer | None:
    """Return a copy of a model's tokenizer with the model's truncation; None if it is not from `tokenizers`."""
    from tokenizers import Tokenizer

    original: Any = model.tokenizer
    if not getattr(original, "is_fast", False):
        return None
    tokenizer = Tokenizer.from_str(original.backend_tokenizer.to_str())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if limit := length_limit(model):
        tokenizer.enable_truncation(limit, direction=original.truncation_side)
    return tokenizer


def default_prompt(model: SentenceTransformer) -> str:
    """Return the model's default prompt, a text before every input."""
    name = model.default_prompt_name
    return (model.prompts.get(name) or "") if name else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress progress bars and warnings of transformers and sentence-transformers in a `with` block."""
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
    """Raise if `max_length` is greater than the number of positions of the model.

    `max_length`: requested number of tokens, or None. `positions`: number of positions (see `positions_of`), or None.
    """
    if max_length is not None and positions is not None and max_length > positions:
        message = f"max_length {max_length} is more than the model's {positions} positions"
        raise UsageError(message, hint=f"Set `max_length` to {positions} or less.")


def positions_of(model: SentenceTransformer) -> int | None:
    """Return the number of learned positions of a model, or None. RoBERTa reserves the first few for padding."""
    from torch import nn

    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def save_model(save: Callable[[Path], object], work: Work) -> None:
    """Save a model to a temporary folder, and add its files to `work` one by one."""
    make_folder(work.folder)
    with quiet(), tempfile.TemporaryDirectory(prefix=".", dir=work.folder) as name:
        save(Path(name))
        for file in sorted(path for path in Path(name).rglob("*") if path.is_file()):
            work.file(file.relative_to(name).as_posix(), partial(shutil.copyfile, file))


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
