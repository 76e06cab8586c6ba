"""Safety checks of a model folder: its files must not name code to run or contain pickles.

sentence-transformers and transformers import classes that are named in a model's JSON files. Version 6 of
sentence-transformers does not import from the folder, but it imports any name with the prefix `sentence_transformers.`
or `torch.`, including `torch.load`. transformers accepts any of its classes as a tokenizer, and `RagRetriever`
unpickles. A folder that fails these checks is not passed to these libraries.
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
"""Modules of sentence-transformers that a model may use.

Checking the prefix is not sufficient: `sentence_transformers.models.Dense.torch` is torch, and `torch.load` unpickles.
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
    "attn_implementation": r"\w+",  # ORGANISATION/NAME is a kernel on the hub, compiled code
    "_attn_implementation": r"\w+",
}
"""Keys that name a class or a kernel in any JSON file, and their allowed values."""
_CODE = ("auto_map", "trust_remote_code", "allow_all_kernels", "use_kernels", "kernel_config")
"""Keys that enable code from outside the installed packages."""
_LOADING = {"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"}
_OPTIONS = {
    *("dtype", "torch_dtype", "attn_implementation", "add_pooling_layer", "use_fast", "do_lower_case"),
    *("model_max_length", "padding_side", "truncation_side", "add_bos_token", "add_eos_token"),
}
"""Loading options that a model may set. They do not refer to other files."""
_DATA = {"tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json", "manifest.json"}
_SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_PICKLES = (".bin", ".bin.index.json", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
_NOT_LOADED = {"training_args.bin", "optimizer.bin", "scheduler.bin"}
_HINT = "Use a model with sentence-transformers' own modules and weights in safetensors format."


def check_model_folder(folder: Path) -> None:
    """Raise if loading a model folder could run code or unpickle."""
    files = loaded_files(folder)
    safe = {path.parent for path in files if path.name in _SAFE_WEIGHTS}
    for path in files:
        if path.name == "adapter_config.json":
            hint = "Merge the adapter into its base model, and save the result."
            _reject(path, "this is an adapter of another model, not a model", hint)
        if path.suffix == ".json" and path.name not in _DATA:
            _check_values(path, read_json(path))
        # Pickled weights are not loaded if there are safetensors in the same folder.
        if path.name.endswith(_PICKLES) and path.name not in _NOT_LOADED and path.parent not in safe:
            pickle = f"the weights in {path.relative_to(folder)} are pickled, and a pickle can run code"
            hint = "Use another model, or if you trust this one, load it and save it in safetensors format."
            raise CheckError(f"{pickle}; relabel only reads safetensors", where=str(folder), hint=hint)


def loaded_files(folder: Path) -> list[Path]:
    """Return the files that a loader may read: those in the model's folder and in the folders of its modules."""
    folders = dict.fromkeys([folder, *(folder / path for path, _ in read_modules(folder))])
    return [path for parent in folders if parent.is_dir() for path in sorted(parent.iterdir()) if path.is_file()]


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Read the folder and the class name of each module in `modules.json`; an empty list if there is no such file.

    Raises CheckError as `check_model_folder` does.
    """
    path, modules = folder / "modules.json", list[tuple[str, str]]()
    if not path.exists():
        return modules
    listed = read_json(path)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise CheckError("this is not a list of modules", where=str(path), hint=_HINT)
    for entry in listed:
        kind, module = entry.get("type"), entry.get("path")
        if not isinstance(kind, str) or not isinstance(module, str):
            raise CheckError("a module needs a `type` and a `path`", where=str(path), hint=_HINT)
        name = kind.rpartition(".")[2]
        if not re.fullmatch(r"sentence_transformers(\.\w+)+", kind, re.ASCII) or name not in MODULES:
            _reject(path, f"it lists a module of type {kind[:100]!r}, which relabel does not load")
        # Reject absolute paths, drives, home folders and parents.
        if not re.fullmatch(r"(\w[\w.-]*(/\w[\w.-]*)*)?", module):
            _reject(path, f"its module of type {kind!r} has the path {module[:100]!r}, which is not inside the folder")
        modules.append((module, name))
    return modules


def _check_values(path: Path, body: Any) -> None:
    """Raise if a value in a JSON file names code, or a loading option that is not allowed."""
    if path.name.endswith(".safetensors.index.json"):
        files = body.get("weight_map") if isinstance(body, dict) else None
        for name in files.values() if isinstance(files, dict) else [files]:
            if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name):
                _reject(path, f"its weight_map names {name!r}, which is not a safetensors file in the same folder")
    for key, value in _entries(body):
        if key in _CODE and value:
            _reject(path, f"it requires code that is not part of transformers ({key}: {json.dumps(value)[:100]})")
        if key in _CLASSES:
            for name in value.values() if isinstance(value, dict) else [value]:
                if name is not None and not (isinstance(name, str) and re.fullmatch(_CLASSES[key], name, re.ASCII)):
                    _reject(path, f"it names a type that relabel does not load ({key}: {json.dumps(name)[:100]})")
        if key in _LOADING and path.name.startswith("sentence_"):
            for option in value if isinstance(value, dict) else [value]:
                if option not in _OPTIONS:
                    _reject(path, f"it sets a loading option that is not allowed ({key}: {json.dumps(option)[:100]})")


def _entries(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield all keys and values of a JSON value at any depth."""
    # A loop instead of recursion, because the author of the file controls the depth.
    waiting = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _reject(path: Path, message: str, hint: str = _HINT) -> NoReturn:
    """Raise an error for a file that could run code."""
    raise CheckError(f"{message}; relabel does not run code from a model", where=str(path), hint=hint)
