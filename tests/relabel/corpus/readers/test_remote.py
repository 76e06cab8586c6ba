"""Contract: captions at a URL give the corpus that the same files give locally. Unchanged files are not transferred
again, and removed ones disappear. Of tar files, the captions are transferred alone. Every failure is one line with the
URL. Nothing is written outside the folder of copies.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.golden.hostile import _tar as tar_of
from tests.relabel_cli.runner import invoke

from relabel.core.errors import MissingError, PartialError
from relabel.corpus import Corpus
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.remote import fetch_captions
from relabel.store.manifest import read_manifest


def table(*texts: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"image_id": [f"image of {text}" for text in texts], "text": texts}), sink)
    return sink.getvalue()


IMAGES = [("1.jpg", b"\xff" * 100_000), ("2.jpg", b"\xff" * 100_000)]
SHARD = tar_of(IMAGES[0], ("1.txt", b"a dog"), IMAGES[1], ("2.txt", b"a cat"))
FORMATS: dict[str, dict[str, bytes]] = {
    "parquet": {"train-0.parquet": table("a dog", "a cat"), "val-0.parquet": table("a bus")},
    "webdataset": {"00000.tar": SHARD, "00001.tar": tar_of(("3.txt", b"a bus"))},
    "scan": {"train_caps.txt": b"a dog\na cat\n", "train_ids.txt": b"1\n1\n"},
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path}/captions"


def put(url: str, files: Mapping[str, bytes]) -> None:
    for name, body in files.items():
        fsspec.filesystem("memory").pipe(f"{url}/{name}", body)


def params(url: str, **values: Any) -> IngestParams:
    return IngestParams(dataset="mine", url=url, **values)


def copies(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", FORMATS)
def test_a_url_gives_the_corpus_of_the_local_files(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(url, FORMATS[name])
    for file, body in FORMATS[name].items():
        (tmp_path / "local" / file).parent.mkdir(exist_ok=True)
        (tmp_path / "local" / file).write_bytes(body)
    for option, place in (("url", url), ("path", "local")):
        code, output = invoke("ingest", "--dataset", option, "--namespace", "c", f"--{option}", place)
        assert code == 0, output
    folders = [tmp_path / f"labels/{dataset}/corpus" for dataset in ("url", "path")]
    digests, manifests = [Corpus.open(folder).digest for folder in folders], [read_manifest(f) for f in folders]
    assert digests[0] == digests[1]
    assert (manifests[0].inputs, manifests[0].config) == (manifests[1].inputs, manifests[1].config)
    # Later commands name the dataset alone.
    assert invoke("encode", "--label", "same_image", "--split", "all", "--dataset", "url")[0] == 0


def test_unchanged_files_are_not_transferred_again(url: str, tmp_path: Path) -> None:
    put(url, {name: name.encode() for name in ("a.csv", "b.csv", "c.csv")})
    folder = fetch_captions(params(url), tmp_path)
    before = {name: (folder / name).stat().st_mtime_ns for name in copies(folder)}
    assert fetch_captions(params(url), tmp_path) == folder
    assert {name: (folder / name).stat().st_mtime_ns for name in copies(folder)} == before
    put(url, {"b.csv": b"new"})
    fsspec.filesystem("memory").rm(f"{url}/c.csv")
    folder = fetch_captions(params(url), tmp_path)
    assert copies(folder) == {"a.csv", "b.csv"}
    assert (folder / "b.csv").read_bytes() == b"new"
    assert len(copies(tmp_path)) == 2, "copies of another state are removed"


@pytest.mark.parametrize("name", ["a.csv", "a.tar"])
def test_an_interrupted_transfer_leaves_complete_files(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise RuntimeError("connection lost")
            return super().read(100)

    put(url, {"0.csv": b"x", name: SHARD})
    real = MemoryFileSystem._open

    def opened(system: MemoryFileSystem, path: str, **how: Any) -> Any:
        return Interrupted(SHARD) if path.endswith(name) else real(system, path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "_open", opened)
        with pytest.raises(PartialError, match=rf"^memory:/.*/captions: {name}: RuntimeError: connection lost"):
            fetch_captions(params(url), tmp_path)
    assert copies(next((tmp_path / "remote").glob("*/*"))) == {"0.csv"}
    folder = fetch_captions(params(url), tmp_path)
    assert copies(folder) == {"0.csv", name}
    assert (folder / name).stat().st_size < len(SHARD) / 10 or name == "a.csv"  # the images stay where they are


@pytest.mark.parametrize("name", ["../../a.csv", "/HOME/a.csv", "x/../../a.csv", "x//a.csv", "./a.csv", "a\0.csv"])
def test_a_name_that_leads_out_of_its_folder(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key of an object store may hold any text, and no file system that tests can use has such a key.
    found = {f"{url.removeprefix('memory://')}/{name.replace('HOME', str(tmp_path))}": {"type": "file"}}
    monkeypatch.setattr(MemoryFileSystem, "glob", lambda self, path, detail: found)
    with pytest.raises(MissingError, match="a file outside its folder"):
        fetch_captions(params(f"{url}/**"), tmp_path)
    assert copies(tmp_path) == set()


@pytest.mark.parametrize("pattern", ["caps", "caps/**"])
def test_a_member_of_an_archive_that_leads_out_of_its_folder(pattern: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for member in (f"caps/{tmp_path}/home/evil.csv", "caps/a.csv"):
            archive.writestr(member, "text,image_id\na dog,1\n")
    with pytest.raises(MissingError, match=r"a file outside its folder: .*evil\.csv"):
        fetch_captions(params(f"zip://{pattern}::file://{tmp_path}/a.zip"), tmp_path / "data")
    assert copies(tmp_path) == {"a.zip"}


def test_a_name_that_is_the_folder_of_another_one(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {f"{url.removeprefix('memory://')}/{name}": {"type": "file"} for name in ("a.csv", "a.csv/b.csv")}
    monkeypatch.setattr(MemoryFileSystem, "glob", lambda self, path, detail: found)
    monkeypatch.setattr(MemoryFileSystem, "_open", lambda self, path, **how: io.BytesIO(b"x"))
    with pytest.raises(MissingError, match=r"captions/\*\*: a\.csv/b\.csv: .*exists"):
        fetch_captions(params(f"{url}/**"), tmp_path)
    assert {Path(name).name for name in copies(tmp_path)} == {"a.csv"}
