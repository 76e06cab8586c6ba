"""Contract: artefacts and captions are copied to and from an S3 server, which has neither folders nor renames. Wrong
credentials and missing buckets end in one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("s3fs", reason="s3fs is not installed (the `dev` extra)")
moto = pytest.importorskip("moto.server", reason="moto is not installed (the `dev` extra)")

from relabel.core.errors import MissingError, RelabelError  # noqa: E402
from relabel.corpus.params import IngestParams  # noqa: E402
from relabel.corpus.readers.remote import fetch_captions  # noqa: E402
from relabel.store.artefact import build  # noqa: E402
from relabel.store.manifest import ArtefactSpec  # noqa: E402
from relabel.store.remote import open_remote  # noqa: E402
from relabel.store.transfer import download_artefact, upload_artefact  # noqa: E402
from relabel.store.workdir import Work  # noqa: E402

BODY = bytes(range(256)) * 50_000
"""More than one part of a multi-part upload: 12.8 MB."""

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of an empty bucket of a server on this machine."""
    import fsspec

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "any", "secret": "any", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    # All servers of a process share their buckets.
    fsspec.filesystem("s3").mkdir(f"bucket-{port}")
    yield f"s3://bucket-{port}"
    server.stop()
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def fill(work: Work) -> None:
    work.file("large", lambda path: path.write_bytes(BODY))
    work.file("fold/small", lambda path: path.write_bytes(b"a dog"))
    work.file("empty", lambda path: path.write_bytes(b""))


def test_artefacts(bucket: str, tmp_path: Path) -> None:
    manifest, _ = build(tmp_path / "demo", ArtefactSpec("encoding", "demo", {}, {}), fill)
    remote = open_remote(f"{bucket}/labels/demo")
    assert remote.files() == {}
    assert upload_artefact(tmp_path / "demo", remote)[1]
    assert sorted(remote.files()) == sorted([*manifest.files, "manifest.json"])
    assert not upload_artefact(tmp_path / "demo", remote)[1]
    assert download_artefact(remote, tmp_path / "copy")[1]
    for name in ("large", "fold/small", "empty", "manifest.json"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "demo" / name).read_bytes()


def test_captions(bucket: str, tmp_path: Path) -> None:
    remote = open_remote(f"{bucket}/captions")
    for name in ("train/0.jsonl", "train/1.jsonl", "notes.md"):
        remote.write(name, json.dumps({"image_id": name, "text": "a dog"}).encode())
    folder = fetch_captions(IngestParams(dataset="mine", url=f"{bucket}/captions/*/*.jsonl"), tmp_path)
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}
    assert sorted(path.name for path in times) == ["0.jsonl", "1.jsonl"]
    fetch_captions(IngestParams(dataset="mine", url=f"{bucket}/captions/*/*.jsonl"), tmp_path)
    assert times == {path: path.stat().st_mtime_ns for path in folder.rglob("*.jsonl")}


def test_a_bucket_that_does_not_exist(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no such file|no artefact"):
        download_artefact(open_remote("s3://nowhere/labels"), tmp_path / "copy")
    build(tmp_path / "demo", ArtefactSpec("encoding", "demo", {}, {}), fill)
    with pytest.raises(RelabelError, match="s3://nowhere"):
        upload_artefact(tmp_path / "demo", open_remote("s3://nowhere/labels"))
