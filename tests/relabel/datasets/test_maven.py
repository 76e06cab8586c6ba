"""Contract: a jar named by its Maven coordinate comes from the local Maven folder, or is downloaded from the
repositories that jgo knows, with the resumption and checks of any download.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel.datasets.conftest import Describe, Server, entry, files_below

from relabel.core.errors import CheckError, MissingError
from relabel.datasets import fetch, status

JAR = bytes(range(256)) * 40
PLACE = "org/some/thing/1.2/thing-1.2-models.jar"


@pytest.fixture
def repository(server: Server, describe: Describe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Serve a repository; write an empty Maven folder and a manifest `tiny`."""
    core = pytest.importorskip("jgo.maven._core")
    monkeypatch.setattr(core, "DEFAULT_REMOTE_REPOS", {"central": server.url})
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # without the settings of this user
    describe(entry("thing.jar", JAR, {"maven": "org.some:thing:1.2:models"}))
    return server


def test_the_local_maven_folder_precedes_unless_its_jar_is_partial(repository: Server, tmp_path: Path) -> None:
    local_jar = tmp_path / "m2" / PLACE
    local_jar.parent.mkdir(parents=True)
    local_jar.write_bytes(JAR)
    fetch("tiny", tmp_path / "one")
    assert repository.requests == []
    local_jar.write_bytes(JAR[:99])
    repository.files[f"/{PLACE}"] = JAR
    assert [s.state for s in status(tmp_path / "data")] == ["local"]
    (path,) = fetch("tiny", tmp_path / "two")
    assert path.read_bytes() == JAR
    assert len(repository.requests) == 1


def test_a_wrong_file_is_refused_and_a_missing_one_explained(repository: Server, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"404[\s\S]*from http.*/thing-1\.2-models\.jar"):
        fetch("tiny", tmp_path / "data")
    repository.files[f"/{PLACE}"] = JAR[::-1]
    with pytest.raises(CheckError, match="expected sha256"):
        fetch("tiny", tmp_path / "data")
    assert files_below(tmp_path / "data") == []
