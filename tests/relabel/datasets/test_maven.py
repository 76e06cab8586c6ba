"""Contract: a jar named by its Maven coordinate comes from the local Maven folder, or is downloaded from the
repositories of jgo with the resumption and checks of any download. Without jgo, one line names the extra.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from tests.relabel.datasets.conftest import Server

from relabel.core.errors import CheckError, MissingError
from relabel.datasets import fetch, status
from relabel.datasets.local_files import jar_urls, kept_jar
from relabel.datasets.registry import MavenSource

JAR = bytes(range(256)) * 40
PLACE = "org/some/thing/1.2/thing-1.2-models.jar"


@pytest.fixture
def repository(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Serve two repositories, the first without the file; write an empty Maven folder and a manifest `tiny`."""
    core = pytest.importorskip("jgo.maven._core")
    remotes = {"first": f"{server.url}/first/", "second": f"{server.url}/second"}
    monkeypatch.setattr(core, "DEFAULT_REMOTE_REPOS", remotes)
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "manifests"
    folder.mkdir()
    monkeypatch.setattr("relabel.datasets.registry.manifests_folder", lambda: folder)
    head = dict.fromkeys(("title", "purpose", "licence", "citation", "homepage"), "x")
    file = {"name": "thing.jar", "holds": "a jar", "bytes": len(JAR), "sha256": sha256(JAR).hexdigest()}
    file["sources"] = [{"maven": "org.some:thing:1.2:models"}]
    (folder / "tiny.yaml").write_text(yaml.safe_dump({"name": "tiny", **head, "files": [file]}))
    return server


def test_the_first_repository_with_the_file_is_used(repository: Server, tmp_path: Path) -> None:
    repository.files[f"/second/{PLACE}"] = JAR
    assert [s.state for s in status(tmp_path / "data")] == ["remote"]
    (path,) = fetch("tiny", tmp_path / "data")
    assert path.read_bytes() == JAR
    assert [requested for requested, _ in repository.requests] == [f"/first/{PLACE}", f"/second/{PLACE}"]


def test_the_local_maven_folder_precedes_unless_its_jar_is_partial(repository: Server, tmp_path: Path) -> None:
    local_jar = tmp_path / "m2" / PLACE
    local_jar.parent.mkdir(parents=True)
    local_jar.write_bytes(JAR)
    fetch("tiny", tmp_path / "one")
    assert repository.requests == []
    local_jar.write_bytes(JAR[:99])
    repository.files[f"/first/{PLACE}"] = JAR
    (path,) = fetch("tiny", tmp_path / "two")
    assert path.read_bytes() == JAR
    assert len(repository.requests) == 1


def test_a_wrong_file_is_refused_and_a_missing_one_explained(repository: Server, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"404[\s\S]*from Maven org\.some:thing:1\.2:models"):
        fetch("tiny", tmp_path / "data")
    repository.files[f"/first/{PLACE}"] = repository.files[f"/second/{PLACE}"] = JAR[::-1]
    with pytest.raises(CheckError, match="expected sha256"):
        fetch("tiny", tmp_path / "data")
    assert [p for p in (tmp_path / "data").rglob("*") if p.is_file() and p.suffix != ".lock"] == []


def test_without_jgo(repository: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jgo.maven", "jgo.config"):
        monkeypatch.setitem(sys.modules, name, None)
    source = MavenSource(maven="org.some:thing:1.2")
    for ask in (kept_jar, jar_urls):
        with pytest.raises(MissingError, match=r"needs jgo: pip install 'relabel-itr\[spice\]'"):
            ask(source)
    with pytest.raises(MissingError, match="needs jgo"):
        fetch("tiny", tmp_path / "data")


def test_no_repository_at_all(repository: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jgo.maven._core.DEFAULT_REMOTE_REPOS", {})
    with pytest.raises(MissingError, match="knows no Maven repository"):
        jar_urls(MavenSource(maven="org.some:thing:1.2"))
