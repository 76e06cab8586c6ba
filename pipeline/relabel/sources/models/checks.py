"""Safety checks of a model folder: a model is data, and no file may name code to run or contain a pickle.

sentence-transformers and transformers import classes that a model's JSON files name. Version 6 of sentence-transformers
imports none from the folder, but any name that begins with `sentence_transformers.` or `torch.`, which reaches
`torch.load` and functions of torch. transformers takes any of its classes as a tokenizer, and `RagRetriever` unpickles.
A folder that fails these checks is passed to neither library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from relabel.core.errors import CheckError
from relabel.core.parsing import read_json

MODULES = (
    *("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding", "CNN", "LSTM"),
    *("WeightedLayerPooling", "WordEmbeddings", "WordWeights", "BoW", "LogitScore"),
)
"""Modules of sentence-transformers that a model may be built of.

The package's prefix is not enough: `sentence_transformers.models.Dense.torch` is torch itself, whose `load` unpickles.
"""

_TOKENIZER = r"\w*(Tokenizer|TokenizerFast|TokenizersBackend|SentencePieceBackend)"
_ACTIVATION = r"\w+|torch\.nn\.(modules\.(activation|linear)\.)?[A-Z]\w*"
_CLASSES = {
    "tokenizer_class": rf"(sentence_transformers(\.\w+)*\.)?{_TOKENIZER}",
    "slow_tokenizer_class": _TOKENIZER,
    "processor_class": rf"\w*Processor|{_TOKENIZER}",
    "activation_function": _ACTIVATION,
    "activation_fn": _ACTIVATION,
    "sbert_ce_default_activation_function": _ACTIVATION,
    "attn_implementation": r"\w+",  # ORGANISATION/NAME is a kernel of the hub: compiled code
    "_attn_implementation": r"\w+",
}
"""Keys that name a class or a kernel, in any JSON file, and the names that they may hold."""
_CODE = ("auto_map", "trust_remote_code", "allow_all_kernels", "use_kernels", "kernel_config")
"""Keys that turn on code from outside the installed packages."""
_LOADING = {"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"}
_OPTIONS = {
    *("dtype", "torch_dtype", "attn_implementation", "add_pooling_layer", "use_fast", "do_lower_case"),
    *("model_max_length", "padding_side", "truncation_side", "add_bos_token", "add_eos_token"),
}
"""Options of loading that a model may set. None of them refers to another file."""
_DATA = {"tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json", "manifest.json"}
_SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_PICKLES = (".bin", ".bin.index.json", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_NOT_LOADED = {"training_args.bin", "optimizer.bin", "scheduler.bin"}
_TODO = "Name a model of sentence-transformers' own modules, with its weights in safetensors."


def check_model_folder(folder: Path) -> None:
    """Raise if a model folder could make a loader run code or unpickle."""
    files = loaded_files(folder)
    safe = {path.parent for path in files if path.name in _SAFE_WEIGHTS}
    for path in files:
        if path.name == "adapter_config.json":
            todo = "Merge it into its model and save that."
            _refuse(path, "this is an adapter of another model, not a model", todo)
        if path.suffix == ".json" and path.name not in _DATA:
            _check_values(path, read_json(path))
        # Pickled weights are not loaded where safetensors lie beside them.
        if path.name.endswith(_PICKLES) and path.name not in _NOT_LOADED and path.parent not in safe:
            pickle = f"the weights in {path.relative_to(folder)} are pickled, and a pickle can run code"
            todo = "Name another model, or load this one where you trust it and save it again with safetensors."
            raise CheckError(f"{pickle}; relabel reads safetensors alone", where=str(folder), todo=todo)


def loaded_files(folder: Path) -> list[Path]:
    """Return the files in the folders that a loader reads: the model's own and those of its modules."""
    folders = dict.fromkeys([folder, *(folder / path for path, _ in read_modules(folder))])
    return [path for one in folders if one.is_dir() for path in sorted(one.iterdir()) if path.is_file()]


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Read the folder and the class, without its package, of each module in `modules.json`.

    A model without this file has no modules. Raises CheckError as `check_model_folder`.
    """
    path, modules = folder / "modules.json", list[tuple[str, str]]()
    if not path.exists():
        return modules
    listed = read_json(path)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise CheckError("this is not a list of modules", where=str(path), todo=_TODO)
    for entry in listed:
        kind, part = entry.get("type"), entry.get("path")
        if not isinstance(kind, str) or not isinstance(part, str):
            raise CheckError("a module needs a `type` and a `path`", where=str(path), todo=_TODO)
        name = kind.rpartition(".")[2]
        if not re.fullmatch(r"sentence_transformers(\.\w+)+", kind, re.ASCII) or name not in MODULES:
            _refuse(path, f"it lists a module of type {kind[:100]!r}, which relabel does not load")
        # Absolute paths, drives, home folders and parents all leave the folder.
        if not re.fullmatch(r"(\w[\w.-]*(/\w[\w.-]*)*)?", part):
            _refuse(path, f"its module of type {kind!r} has the path {part[:100]!r}, which is not inside the folder")
        modules.append((part, name))
    return modules


def _check_values(path: Path, body: Any) -> None:
    """Raise if a value of a JSON file names code, or a way of loading that is not allowed."""
    if path.name.endswith(".safetensors.index.json"):
        files = body.get("weight_map") if isinstance(body, dict) else None
        for name in files.values() if isinstance(files, dict) else [files]:
            if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name):
                _refuse(path, f"its weight_map names {name!r}, which is not a safetensors file beside it")
    for key, value in _entries(body):
        if key in _CODE and value:
            _refuse(path, f"it asks for code that is not transformers' own ({key}: {json.dumps(value)[:100]})")
        if key in _CLASSES:
            for name in value.values() if isinstance(value, dict) else [value]:
                if name is not None and not (isinstance(name, str) and re.fullmatch(_CLASSES[key], name, re.ASCII)):
                    _refuse(path, f"it names a type that relabel does not load ({key}: {json.dumps(name)[:100]})")
        if key in _LOADING and path.name.startswith("sentence_"):
            for option in value if isinstance(value, dict) else [value]:
                if option not in _OPTIONS:
                    _refuse(path, f"it sets how it is loaded ({key}: {json.dumps(option)[:100]})")


def _entries(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key of a JSON value with its value, at any depth."""
    # A loop, not recursion: nesting is controlled by the file's author.
    waiting = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _refuse(path: Path, message: str, todo: str = _TODO) -> NoReturn:
    """Raise the error of a file that could run code."""
    raise CheckError(f"{message}; relabel runs no code from a model", where=str(path), todo=todo)
