"""Contract: a remote artefact without a manifest is not complete, and one with a manifest is. An upload or download
that ends at any request resumes to the same bytes and copies complete files once. Damage, other builds and files of
others are refused, and nothing is removed that relabel did not write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relabel.core.errors import CheckError, MissingError, PartialError, UsageError
from relabel.store.artefact import build
from relabel.store.manifest import MANIFEST, ArtefactSpec
from relabel.store.remote import RemoteFolder, open_remote
from relabel.store.transfer import download_artefact, upload_artefact
from relabel.store.workdir import DONE, Work

FILES = {"a": b"a dog", "b/c": b"two dogs", "d": b""}


class UnstableFile:
    """File of an `UnstableFileSystem`."""

    def __init__(self, system: UnstableFileSystem, file: Any) -> None:
        self.system, self.file = system, file

    def write(self, body: bytes) -> None:
        try:
            self.system.request()
        except ConnectionResetError:
            self.file.write(body[: len(body) // 2])
            raise
        self.file.write(body)

    def read(self, size: int) -> bytes:
        self.system.request()
        return bytes(self.file.read(size))

    def close(self) -> None:
        self.file.close()


class UnstableFileSystem:
    """File system whose n-th request fails; a write that fails leaves half of its content."""

    def __init__(self, filesystem: Any, left: int) -> None:
        self.filesystem, self.left, self.opened = filesystem, left, list[tuple[str, str]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.filesystem, name)

    def request(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ConnectionResetError("reset by peer")

    def open(self, path: str, mode: str, **options: Any) -> UnstableFile:
        self.opened.append((path, mode))
        self.request()
        return UnstableFile(self, self.filesystem.open(path, mode, **options))

    def pipe_file(self, path: str, body: bytes) -> None:
        try:
            self.request()
        except ConnectionResetError:
            self.filesystem.pipe_file(path, body[: len(body) // 2])
            raise
        self.filesystem.pipe_file(path, body)

    def rm_file(self, *arguments: Any) -> None:
        self.request()
        self.filesystem.rm_file(*arguments)

    def cat_file(self, *arguments: Any) -> Any:
        self.request()
        return self.filesystem.cat_file(*arguments)


@pytest.fixture
def remote(tmp_path: Path) -> RemoteFolder:
    return open_remote(f"memory://{tmp_path}/bucket/cider")


def artefact(folder: Path, version: int = 1, files: dict[str, bytes] = FILES, name: str = "cider") -> Path:
    def fill(work: Work) -> None:
        for file, body in files.items():
            work.file(file, lambda path, body=body: path.write_bytes(body))  # type: ignore[misc]

    build(folder, ArtefactSpec("encoding", name, {"version": version}, {}), fill)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def remote_content(remote: RemoteFolder) -> dict[str, bytes | None]:
    return {name: remote.read(name) for name in remote.files()}


def through(remote: RemoteFolder, left: int) -> RemoteFolder:
    return replace(remote, filesystem=UnstableFileSystem(remote.filesystem, left))


def test_a_copy_has_the_bytes_of_the_artefact(remote: RemoteFolder, tmp_path: Path) -> None:
    folder = artefact(tmp_path / "cider")
    assert upload_artefact(folder, remote)[1]
    assert remote_content(remote) == content(folder)
    assert download_artefact(remote, tmp_path / "copy")[1]
    assert content(tmp_path / "copy") == content(folder)
    assert not upload_artefact(folder, remote)[1]
    assert not download_artefact(remote, tmp_path / "copy")[1]


def test_an_upload_that_ends_at_any_request_resumes(tmp_path: Path) -> None:
    folder, ends = artefact(tmp_path / "cider"), 0
    for left in range(100):
        remote = open_remote(f"memory://{tmp_path}/interrupted/{left}")
        try:
            upload_artefact(folder, through(remote, left))
        except PartialError:
            ends += 1
        else:
            break
        # The manifest is written before the records are removed.
        if remote.read(MANIFEST) != (folder / MANIFEST).read_bytes():
            # Half of a manifest is damage; without one, the artefact is incomplete.
            with pytest.raises(CheckError if MANIFEST in remote.files() else MissingError):
                download_artefact(remote, tmp_path / f"early-{left}")
            assert not (tmp_path / f"early-{left}").exists()
        records = {name for name in FILES if (remote.read(f"{DONE}/{name}.json") or b"").endswith(b"}")}
        for later in range(8) if left % 2 else ():
            # A second interruption, which may leave half of a plan over a complete one.
            with suppress(PartialError):
                upload_artefact(folder, through(remote, later))
        second = through(remote, 1000)
        upload_artefact(folder, second)
        assert remote_content(remote) == content(folder), left
        written = {path.removeprefix(remote.path + "/") for path, mode in second.filesystem.opened if mode == "wb"}
        assert not written & records, left
    assert ends > 3 * len(FILES)


def test_a_download_that_ends_at_any_request_resumes(remote: RemoteFolder, tmp_path: Path) -> None:
    folder, ends = artefact(tmp_path / "cider"), 0
    upload_artefact(folder, remote)
    for left in range(100):
        out = tmp_path / "copies" / str(left)
        try:
            download_artefact(through(remote, left), out)
        except PartialError:
            ends += 1
        else:
            break
        assert not out.exists()
        download_artefact(remote, out)
        assert content(out) == content(folder), left
    assert ends > len(FILES)


def test_a_replacement_that_ends_at_any_request_is_complete_or_none(tmp_path: Path) -> None:
    old = artefact(tmp_path / "old", 1, {"a": b"a dog", "gone": b"x", "same": b"y"})
    new = artefact(tmp_path / "new", 2, {"a": b"a cat", "same": b"y"})
    for left in range(200):
        remote = open_remote(f"memory://{tmp_path}/replaced/{left}")
        upload_artefact(old, remote)
        try:
            upload_artefact(new, through(remote, left), replace=True)
        except PartialError:
            out = tmp_path / f"out-{left}"
            try:
                download_artefact(remote, out)
            except (MissingError, CheckError):
                assert not out.exists()
            else:
                assert content(out) in (content(old), content(new)), left
            # Either build may be pushed next.
            for folder in (new, old) if left % 2 else (old, new):
                upload_artefact(folder, remote, replace=True)
                assert remote_content(remote) == content(folder), left
        else:
            assert remote_content(remote) == content(new)
            return
    pytest.fail("the upload never ended")


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body[:-1] + b"?"])
def test_a_damaged_copy_is_refused_and_sizes_are_repaired(
    change: Callable[[bytes], bytes], remote: RemoteFolder, tmp_path: Path
) -> None:
    folder = artefact(tmp_path / "cider")
    upload_artefact(folder, remote)
    remote.write("a", change(FILES["a"]))
    with pytest.raises(CheckError, match=r"cider/a: expected sha256 .* found"):
        download_artefact(remote, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    # Only a difference in size is visible without reading the remote files.
    assert upload_artefact(folder, remote)[1] is (len(change(FILES["a"])) != len(FILES["a"]))


def test_local_damage_is_not_spread(remote: RemoteFolder, tmp_path: Path) -> None:
    folder = artefact(tmp_path / "cider")
    (folder / "b/c").write_bytes(b"two cats")
    with pytest.raises(CheckError, match=r"b/c: expected sha256 .*relabel verify"):
        upload_artefact(folder, remote)
    assert MANIFEST not in remote.files()


def test_another_build_is_replaced_on_demand(remote: RemoteFolder, tmp_path: Path) -> None:
    old, new = artefact(tmp_path / "old"), artefact(tmp_path / "new", 2, {"a": b"a cat"})
    upload_artefact(old, remote)
    with pytest.raises(UsageError, match="--replace"):
        upload_artefact(new, remote)
    assert remote_content(remote) == content(old)
    download_artefact(remote, tmp_path / "copy")
    upload_artefact(new, remote, replace=True)
    assert remote_content(remote) == content(new)
    with pytest.raises(UsageError, match="--replace"):
        download_artefact(remote, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(old)
    download_artefact(remote, tmp_path / "copy", replace=True)
    assert content(tmp_path / "copy") == content(new)


def test_folders_of_others_are_refused(remote: RemoteFolder, tmp_path: Path) -> None:
    folder = artefact(tmp_path / "cider")
    remote.write("notes.txt", b"mine")
    with pytest.raises(CheckError, match=r"found notes\.txt, which is no file of an artefact"):
        upload_artefact(folder, remote)
    assert remote_content(remote) == {"notes.txt": b"mine"}
    remote.remove("notes.txt")
    upload_artefact(artefact(tmp_path / "sbert", name="sbert"), remote)
    with pytest.raises(CheckError, match="found encoding sbert, where encoding cider would be written"):
        upload_artefact(folder, remote, replace=True)


def test_a_file_of_others_beside_a_complete_artefact_stays(remote: RemoteFolder, tmp_path: Path) -> None:
    folder = artefact(tmp_path / "cider")
    upload_artefact(folder, remote)
    remote.write("notes.txt", b"mine")
    assert not upload_artefact(folder, remote)[1]
    assert remote.read("notes.txt") == b"mine"


def test_a_manifest_that_names_files_elsewhere_is_refused(remote: RemoteFolder, tmp_path: Path) -> None:
    upload_artefact(artefact(tmp_path / "cider"), remote)
    body = remote.read(MANIFEST)
    assert body is not None
    remote.write(MANIFEST, body.replace(b'"a"', b'"../a"'))
    with pytest.raises(CheckError, match=r"expected digest|outside its folder"):
        download_artefact(remote, tmp_path / "copy")


def test_no_artefact(remote: RemoteFolder, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no artefact here"):
        download_artefact(remote, tmp_path / "copy")
    with pytest.raises(MissingError, match="no artefact here"):
        upload_artefact(tmp_path, remote)
