"""Contract: a model is found in a folder, the hub's cache, a package or on the hub, in this order, without network
if it is on this machine. Equal files have one sha256 in every location, and any file that can change a vector
changes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relabel.core.errors import MissingError
from relabel.sources.models import files as model_files
from relabel.sources.models.files import ModelFiles, find_model

COMMIT, OLDER = "c" * 40, "b" * 40
MODULES = [{"path": kind, "type": f"sentence_transformers.models.{kind}"} for kind in ("Pooling", "Normalize")]
NAMES = ("config.json", "sentence_bert_config.json", "Pooling/config.json", "model.safetensors", "tokenizer.json")
FILES = dict.fromkeys(NAMES, "{}") | {"modules.json": json.dumps(MODULES)}


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


@pytest.fixture
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Set an empty cache of a hub that cannot be reached; return the list of names requested from it."""
    names = list[str]()

    def snapshot_download(name: str, **_: Any) -> str:
        names.append(name)
        raise ConnectionError("Name or service not known.\nsecond line")

    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return names


def test_a_folder(tmp_path: Path, requests: list[str]) -> None:
    folder = write(tmp_path / "mine", FILES)
    assert find_model(str(folder)) == ModelFiles(str(folder), folder, "folder")
    for name in ("./nowhere", "/nowhere/model", "~/nowhere/model", "a/b/c", "..\\model"):
        with pytest.raises(MissingError, match="no such folder"):
            find_model(name)
    assert requests == []


@pytest.mark.parametrize("lost", ["model.safetensors", "Pooling/config.json"])
def test_an_incomplete_model_is_not_found(lost: str, tmp_path: Path, requests: list[str]) -> None:
    files = {name: text for name, text in FILES.items() if name != lost}
    with pytest.raises(MissingError, match="no model in this folder"):
        find_model(str(write(tmp_path / "mine", files)))
    cached(tmp_path, "acme/mini", COMMIT, files)
    with pytest.raises(MissingError, match="no such model on this machine or on the hub"):
        find_model("acme/mini")


def test_the_cache_comes_before_package_and_hub(minilm: Path, tmp_path: Path, requests: list[str]) -> None:
    name = model_files.DEFAULT_MODEL
    assert find_model("all-MiniLM-L6-v2") == ModelFiles(name, minilm, "package")
    cached(tmp_path, name, COMMIT, FILES)
    model = find_model("all-MiniLM-L6-v2")
    assert (model.name, model.place, model.revision) == (name, "hub", COMMIT)
    assert requests == []


def test_each_file_that_can_change_a_vector_changes_the_sha256(tmp_path: Path) -> None:
    changes = [{}, {"README.md": "card"}, *({name: f"{text} "} for name, text in FILES.items())]
    found = [ModelFiles("m", write(tmp_path, FILES | change), "folder").sha256() for change in changes]
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(FILES)
