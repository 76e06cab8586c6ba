"""Contract: a download is verified while it arrives and resumes where it stopped, in the same run or in the next. It
accepts no unexpected bytes, leaves no part of a wrong file, and reports a failure in one line. A local server
produces the faults. A jar named by its Maven coordinate comes from the local Maven folder, or is downloaded alike from
the repositories that jgo knows.
"""

from __future__ import annotations

import io
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.relabel.datasets.conftest import RAW, Describe, Server, content, entry, files_below

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import SILENT
from relabel.datasets import download as downloads
from relabel.datasets import fetch, status
from relabel.datasets.download import download
from relabel.datasets.registry import Content


def get(server: Server, folder: Path) -> bytes:
    """Download `raw.bin` as `part` in a folder."""
    download(f"{server.url}/raw.bin", [Content(**content(RAW))], folder / "part", SILENT, "raw")
    return (folder / "part").read_bytes()


@pytest.mark.parametrize(
    ("faults", "spans"),
    [
        ({"cuts": [300_000, 300_000]}, [None, "bytes=300000-", "bytes=600000-"]),
        ({"cuts": [300_000], "codes": [0, 503, 429, 500]}, [None, *["bytes=300000-"] * 4]),
        ({"cuts": [300_000], "ranges": False}, [None, "bytes=300000-"]),  # begins again
    ],
)
def test_a_broken_transfer_resumes_in_the_same_run(
    faults: dict[str, Any], spans: list[str | None], server: Server, tmp_path: Path
) -> None:
    vars(server).update(faults)
    assert get(server, tmp_path) == RAW
    assert [span for _, span in server.requests] == spans


def test_a_broken_transfer_resumes_in_the_next_run(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, *[0] * 100]
    with pytest.raises(MissingError, match="300000 of 1048576 bytes"):
        get(server, tmp_path)
    assert (tmp_path / "part").read_bytes() == RAW[:300_000]
    assert len(server.requests) == 2 + downloads.RETRIES
    server.cuts, server.requests = [], []
    assert get(server, tmp_path) == get(server, tmp_path) == RAW  # the last call finds the complete file
    assert server.requests == [("/raw.bin", "bytes=300000-")]


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("wrong", [RAW[:-1] + b"x", RAW[:-1], RAW + b"x", b"<html>sign in</html>"])
def test_a_wrong_file_is_refused_and_nothing_is_left(
    wrong: bytes, length: bool, server: Server, tmp_path: Path
) -> None:
    server.files["/raw.bin"], server.length = wrong, length
    with pytest.raises(CheckError) as caught:
        get(server, tmp_path)
    assert caught.value.where == server.url + "/raw.bin"
    assert not (tmp_path / "part").exists()
    assert len(server.requests) == 1


@pytest.mark.parametrize("size", [300_000, len(RAW), len(RAW) + 5])
def test_a_part_of_another_file_is_discarded(size: int, server: Server, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"x" * size)
    with pytest.raises(CheckError, match="expected sha256"):
        get(server, tmp_path)
    assert get(server, tmp_path) == RAW


def serve_archive(server: Server, **members: bytes) -> dict[str, Any]:
    """Serve an archive with members `in/NAME`, and return the source of a file in it without its `member`."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as out:
        for name, inside in members.items():
            out.writestr(f"in/{name}", inside)
    server.files["/all.zip"] = raw.getvalue()
    return {"url": f"{server.url}/all.zip", "archive": content(raw.getvalue())}


def test_an_archive_is_downloaded_once_for_all_its_members(server: Server, describe: Describe, tmp_path: Path) -> None:
    members = {"one": RAW, "two": RAW[::-1]}
    source = serve_archive(server, **members)
    describe(*(entry(name, raw, {**source, "member": f"in/{name}"}) for name, raw in members.items()))
    server.cuts = [1000]
    assert [p.read_bytes() for p in fetch("tiny", tmp_path / "data")] == [RAW, RAW[::-1]]
    assert server.requests == [("/all.zip", None), ("/all.zip", "bytes=1000-")]
    assert files_below(tmp_path / "data") == ["tiny/one", "tiny/two"]
    assert [s.state for s in status(tmp_path / "data")] == ["present", "present"]


def test_two_fetches_at_once_download_once(server: Server, describe: Describe, tmp_path: Path) -> None:
    describe(entry("one", RAW, {**serve_archive(server, one=RAW), "member": "in/one"}))
    held = threading.Event()
    server.cuts, server.after = [1000], partial(held.wait, 10)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(fetch, "tiny", tmp_path / "data") for _ in range(2)]
        time.sleep(0.2)
        held.set()
        assert [f.result() for f in futures] == [[tmp_path / "data" / "tiny" / "one"]] * 2
    assert server.requests == [("/all.zip", None), ("/all.zip", "bytes=1000-")]
    assert files_below(tmp_path / "data") == ["tiny/one"]


@pytest.mark.parametrize("fault", ["archive", "member", "no member"])
def test_fetch_refuses_wrong_files_and_leaves_nothing(
    fault: str, server: Server, describe: Describe, tmp_path: Path
) -> None:
    source = serve_archive(server, one=RAW) | {"member": "in/two" if fault == "no member" else "in/one"}
    if fault == "archive":
        server.files["/all.zip"] = server.files["/all.zip"][:-1] + b"x"
    describe(entry("one", RAW[::-1] if fault == "member" else RAW, source))
    with pytest.raises(CheckError, match="could not fetch one: "):
        fetch("tiny", tmp_path / "data")
    assert files_below(tmp_path / "data") == []


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
