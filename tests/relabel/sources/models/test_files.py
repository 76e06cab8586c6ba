"""Contract: a model is found in a folder, the hub's cache, a package or on the hub, in this order, without network
if it is on this machine. Equal files have one sha256 in every location, and any file that can change a vector
changes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from relabel.core.errors import MissingError, UsageError
from relabel.sources.models import files as model_files
from relabel.sources.models.files import ModelFiles, find_model

COMMIT, OLDER = "c" * 40, "b" * 40
MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
FILES = {
    "config.json": "{}",
    "sentence_bert_config.json": '{"max_seq_length": 8}',
    "modules.json": json.dumps([{"path": p, "type": f"sentence_transformers.models.{t}"} for p, t in MODULES.items()]),
    "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
    "model.safetensors": "weights",
    "tokenizer.json": "tokenizer",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def cached(cache: Path, name: str, commit: str, files: dict[str, str], branch: str = "main") -> None:
    repository = cache / f"models--{name.replace('/', '--')}"
    write(repository / "snapshots" / commit, files)
    write(repository / "refs", {branch: commit})


def sha256(folder: Path) -> str:
    return ModelFiles("m", folder, "folder").sha256()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty hub cache."""
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the hub unreachable; return the list of requested names."""
    requests: list[str] = []
    find = huggingface_hub.snapshot_download

    def snapshot_download(name: str, *, local_files_only: bool, **options: Any) -> str:
        if local_files_only:
            return find(name, local_files_only=True, **options)
        requests.append(name)
        raise ConnectionError("Name or service not known.\nsecond line")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return requests


def test_a_folder(tmp_path: Path, cache: Path, no_hub: list[str]) -> None:
    folder = write(tmp_path / "mine", FILES)
    assert find_model(str(folder)) == ModelFiles(str(folder), folder, "folder")
    with pytest.raises(UsageError, match="no revisions"):
        find_model(str(folder), "main")
    for name in ("./nowhere", "/nowhere/model", "~/nowhere/model", "a/b/c", "..\\model"):
        with pytest.raises(MissingError, match="no such folder"):
            find_model(name)
    assert no_hub == []


@pytest.mark.parametrize("lost", ["model.safetensors", "1_Pooling/config.json"])
def test_an_incomplete_model_is_not_found(lost: str, tmp_path: Path, cache: Path, no_hub: list[str]) -> None:
    files = {name: text for name, text in FILES.items() if name != lost}
    with pytest.raises(MissingError, match="no model in this folder"):
        find_model(str(write(tmp_path / "mine", files)))
    cached(cache, "acme/mini", COMMIT, files)
    with pytest.raises(MissingError, match="the hub gives none"):
        find_model("acme/mini")


def test_the_cache_comes_before_package_and_hub(minilm: Path, cache: Path, no_hub: list[str]) -> None:
    name = model_files.DEFAULT_MODEL
    assert find_model("all-MiniLM-L6-v2") == ModelFiles(name, minilm, "package")
    cached(cache, name, COMMIT, FILES)
    model = find_model("all-MiniLM-L6-v2")
    assert (model.name, model.place, model.revision) == (name, "hub", COMMIT)
    assert no_hub == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_file_that_can_change_a_vector_changes_it(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "one", FILES)
    before = sha256(folder)
    text = FILES[name].replace('"max_seq_length": 8', '"max_seq_length": 9') + " "
    assert sha256(write(folder, {name: text})) != before


def test_the_requested_revision_is_used(cache: Path, no_hub: list[str]) -> None:
    cached(cache, "acme/mini", OLDER, FILES | {"model.safetensors": "older"}, "v1")
    cached(cache, "acme/mini", COMMIT, FILES)
    older, newest = find_model("acme/mini", "v1"), find_model("acme/mini")
    assert (older.revision, newest.revision) == (OLDER, COMMIT)
    assert find_model("acme/mini", OLDER).sha256() == older.sha256() != newest.sha256()
    with pytest.raises(MissingError):
        find_model("acme/mini", "v2")
    assert no_hub == ["acme/mini"]
