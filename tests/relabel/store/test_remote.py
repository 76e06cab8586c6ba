"""Contract: a folder of any file system of fsspec is opened by URL. Unknown protocols, missing packages, missing files,
missing credentials and lost connections each end in the error that names the remedy, with its exit code.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from relabel.core.errors import CheckError, MissingError, PartialError, RelabelError, UsageError
from relabel.store.remote import RemoteFolder, is_url, open_remote, remote_errors


@pytest.fixture(params=["memory", "file"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteFolder:
    return open_remote(f"{request.param}://{tmp_path}/bucket")


def test_files_of_a_folder_that_does_not_exist(remote: RemoteFolder) -> None:
    assert remote.files() == {}
    assert remote.read("a") is None
    remote.remove("a")


def test_files_by_name_size_and_key(remote: RemoteFolder) -> None:
    remote.write("b/c.txt", b"two dogs")
    remote.write("a.txt", b"a dog")
    files = remote.files()
    assert {name: file.bytes for name, file in files.items()} == {"a.txt": 5, "b/c.txt": 8}
    assert list(remote.below("b").files()) == ["c.txt"]
    assert list(remote.matches("*.txt")) == ["a.txt"]
    assert list(remote.matches("*/*.txt")) == ["b/c.txt"]
    remote.write("a.txt", b"a cat")
    assert remote.files()["a.txt"].key != files["a.txt"].key
    assert remote.files()["b/c.txt"].key == files["b/c.txt"].key


def test_a_file_is_copied_in_pieces(remote: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relabel.store.remote.CHUNK", 7)
    body, moved, pieces = bytes(range(50)), list[int](), list[bytes]()
    (tmp_path / "source").write_bytes(body)
    remote.upload(tmp_path / "source", "a/b", moved.append)
    remote.download("a/b", pieces.append)
    assert b"".join(pieces) == remote.read("a/b") == body
    assert sum(moved) == len(body)
    assert max(moved) == max(map(len, pieces)) == 7


@pytest.mark.parametrize(
    ("url", "error", "phrase"),
    [
        ("labels/coco", UsageError, "not a URL"),
        ("nosuch://bucket/a", UsageError, "Protocol not known: nosuch. fsspec has the protocols"),
    ],
)
def test_urls_that_cannot_be_opened(url: str, error: type[RelabelError], phrase: str) -> None:
    with pytest.raises(error, match=phrase):
        open_remote(url)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def url_to_fs(_: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.url_to_fs", url_to_fs)
    with pytest.raises(MissingError, match="s3://bucket: Install s3fs to access S3"):
        open_remote("s3://bucket")


class NoCredentialsError(Exception):
    """Error of the name that botocore gives it."""


@pytest.mark.parametrize(
    ("cause", "error", "phrase"),
    [
        (FileNotFoundError("x"), MissingError, "no such file or folder"),
        (PermissionError("denied"), CheckError, "no access .*Give credentials"),
        (NoCredentialsError("Unable to locate credentials"), CheckError, "Give credentials"),
        (OSError(errno.ENOSPC, "No space left on device"), PartialError, "Free some space"),
        (ConnectionResetError("reset by peer"), PartialError, "reset by peer. Run it again"),
        (TimeoutError(), PartialError, "TimeoutError: . Run it again"),
        (UsageError("of relabel"), UsageError, "^of relabel$"),
    ],
)
def test_errors_of_file_systems(cause: Exception, error: type[RelabelError], phrase: str) -> None:
    with pytest.raises(error, match=phrase), remote_errors("s3://bucket/a"):
        raise cause


@pytest.mark.parametrize(("text", "expected"), [("s3://b", True), ("gs://b/c", True), ("a/b", False), ("c:/d", False)])
def test_urls_and_paths(text: str, expected: bool) -> None:
    assert is_url(text) is expected
