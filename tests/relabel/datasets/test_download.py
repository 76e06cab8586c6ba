"""Contract: a download is verified while it arrives and resumes where it stopped, in the same run or in the next. It
accepts no unexpected bytes, leaves no part of a wrong file, and reports a failure in one line. A local server
produces the faults.
"""

from __future__ import annotations

import io
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
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


def get(server: Server, part: Path, name: str = "/raw.bin", raw: bytes = RAW) -> None:
    download(server.url + name, [Content(**content(raw))], part, SILENT, "raw")


def test_a_broken_transfer_resumes_in_the_same_run(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, 300_000]
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == RAW
    assert [span for _, span in server.requests] == [None, "bytes=300000-", "bytes=600000-"]


def test_a_broken_transfer_resumes_in_the_next_run(server: Server, tmp_path: Path) -> None:
    server.cuts = [300_000, *[0] * 100]
    with pytest.raises(MissingError, match="the transfer ended after 300000 of 1048576 bytes"):
        get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == RAW[:300_000]
    assert len(server.requests) == 2 + downloads.RETRIES
    server.cuts, server.requests = [], []
    get(server, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == RAW
    assert server.requests == [("/raw.bin", "bytes=300000-")]


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("wrong", [RAW[:-1] + b"x", RAW[:-1], RAW + b"x", b"<html>sign in</html>"])
def test_a_wrong_file_is_refused_and_nothing_is_left(
    wrong: bytes, length: bool, server: Server, tmp_path: Path
) -> None:
    server.files["/raw.bin"], server.length = wrong, length
    with pytest.raises(CheckError, match="expected ") as caught:
        get(server, tmp_path / "part")
    assert caught.value.where == server.url + "/raw.bin"
    assert not (tmp_path / "part").exists()
    assert len(server.requests) == 1


def archive(**members: bytes) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as out:
        for name, inside in members.items():
            out.writestr(f"in/{name}", inside)
    return raw.getvalue()


def test_an_archive_is_downloaded_once_for_all_its_members(server: Server, describe: Describe, tmp_path: Path) -> None:
    one, two = RAW, RAW[::-1]
    packed = archive(one=one, two=two)
    server.files["/all.zip"] = packed
    source = {"url": f"{server.url}/all.zip", "archive": content(packed)}
    describe(entry("one", one, {**source, "member": "in/one"}), entry("two", two, {**source, "member": "in/two"}))
    assert [s.state for s in status(tmp_path / "data")] == ["remote", "remote"]
    server.cuts = [1000]
    paths = fetch("tiny", tmp_path / "data")
    assert [p.read_bytes() for p in paths] == [one, two]
    assert server.requests == [("/all.zip", None), ("/all.zip", "bytes=1000-")]
    assert files_below(tmp_path / "data") == ["tiny/one", "tiny/two"]
    assert [s.state for s in status(tmp_path / "data")] == ["present", "present"]


def test_two_fetches_at_once_download_once(server: Server, describe: Describe, tmp_path: Path) -> None:
    packed = archive(one=RAW)
    server.files["/all.zip"] = packed
    source = {"url": f"{server.url}/all.zip", "member": "in/one", "archive": content(packed)}
    describe(entry("one", RAW, source))
    held = threading.Event()

    def wait(*_: object) -> None:
        held.wait(10)

    server.cuts, server.after = [1000], wait
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(fetch, "tiny", tmp_path / "data") for _ in range(2)]
        time.sleep(0.2)
        held.set()
        assert [f.result() for f in futures] == [[tmp_path / "data" / "tiny" / "one"]] * 2
    assert server.requests == [("/all.zip", None), ("/all.zip", "bytes=1000-")]
    assert files_below(tmp_path / "data") == ["tiny/one"]


@pytest.mark.parametrize("fault", ["file", "archive", "member", "no member"])
def test_fetch_refuses_wrong_files_and_leaves_nothing(
    fault: str, server: Server, describe: Describe, tmp_path: Path
) -> None:
    packed = archive(one=RAW)
    server.files["/all.zip"] = packed if fault != "archive" else packed[:-1] + b"x"
    source: dict[str, Any] = {"url": f"{server.url}/all.zip"}
    if fault != "file":
        source |= {"member": "in/two" if fault == "no member" else "in/one", "archive": content(packed)}
    describe(entry("one", RAW[::-1] if fault in ("file", "member") else RAW, source))
    with pytest.raises(CheckError, match="could not get one: "):
        fetch("tiny", tmp_path / "data")
    assert files_below(tmp_path / "data") == []
