"""Contract: a jar named by its Maven coordinate comes from the local Maven folder, or is downloaded from the
repositories of jgo with the resumption and checks of any download. Without jgo, one line names the extra.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from relabel.core.errors import CheckError, MissingError
from relabel.datasets import fetch, status
from relabel.datasets.local_files import jar_urls, kept_jar
from relabel.datasets.registry import MavenSource

JAR = bytes(range(256)) * 40
PLACE = "org/some/thing/1.2/thing-1.2-models.jar"


class Repository:
    """Content of a local server, and the requested ranges."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """Serve two repositories, the first without the file; return them with an empty Maven folder and a manifest
    `tiny`.
    """
    core = pytest.importorskip("jgo.maven._core")
    state = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            span = self.headers.get("Range")
            state.requests.append((self.path, span))
            body = state.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
            self.send_response(206 if span else 200)
            if span:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            self.wfile.write(body[start:])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(core, "DEFAULT_REMOTE_REPOS", {"first": f"{address}/first/", "second": f"{address}/second"})
        monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.delenv("RELABEL_MIRROR", raising=False)
        folder = tmp_path / "manifests"
        folder.mkdir()
        monkeypatch.setattr("relabel.datasets.registry.manifests_folder", lambda: folder)
        head = dict.fromkeys(("title", "purpose", "licence", "citation", "homepage"), "x")
        file = {"name": "thing.jar", "holds": "a jar", "bytes": len(JAR), "sha256": sha256(JAR).hexdigest()}
        file["sources"] = [{"maven": "org.some:thing:1.2:models"}]
        (folder / "tiny.yaml").write_text(yaml.safe_dump({"name": "tiny", **head, "files": [file]}))
        yield state
        server.shutdown()


def test_the_first_repository_with_the_file_is_used(repository: Repository, tmp_path: Path) -> None:
    repository.files[f"/second/{PLACE}"] = JAR
    assert [s.state for s in status(tmp_path / "data")] == ["remote"]
    (path,) = fetch("tiny", tmp_path / "data")
    assert path.read_bytes() == JAR
    assert [requested for requested, _ in repository.requests] == [f"/first/{PLACE}", f"/second/{PLACE}"]


def test_the_local_maven_folder_precedes_unless_its_jar_is_partial(repository: Repository, tmp_path: Path) -> None:
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


def test_a_wrong_file_is_refused_and_a_missing_one_explained(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"404[\s\S]*from Maven org\.some:thing:1\.2:models"):
        fetch("tiny", tmp_path / "data")
    repository.files[f"/first/{PLACE}"] = repository.files[f"/second/{PLACE}"] = JAR[::-1]
    with pytest.raises(CheckError, match="expected sha256"):
        fetch("tiny", tmp_path / "data")
    assert [p for p in (tmp_path / "data").rglob("*") if p.is_file() and p.suffix != ".lock"] == []


def test_without_jgo(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jgo.maven", "jgo.config"):
        monkeypatch.setitem(sys.modules, name, None)
    source = MavenSource(maven="org.some:thing:1.2")
    for ask in (kept_jar, jar_urls):
        with pytest.raises(MissingError, match=r"needs jgo: pip install 'relabel-itr\[spice\]'"):
            ask(source)
    with pytest.raises(MissingError, match="needs jgo"):
        fetch("tiny", tmp_path / "data")


def test_no_repository_at_all(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jgo.maven._core.DEFAULT_REMOTE_REPOS", {})
    with pytest.raises(MissingError, match="knows no Maven repository"):
        jar_urls(MavenSource(maven="org.some:thing:1.2"))
