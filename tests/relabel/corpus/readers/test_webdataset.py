"""Contract: captions of webdataset's shards come from .txt or .json members under the key of their sample. Images
are skipped, memory does not grow with a shard, and repeated keys are refused.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from relabel.core.errors import CheckError
from relabel.corpus import Corpus
from relabel.corpus.readers.columns import Columns
from relabel.corpus.readers.webdataset import read_webdataset, webdataset_digest

TRAIN = Columns(in_split="train")


def write_shard(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    """Write a shard as webdataset's TarWriter does, with adjacent members of a sample."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return path


def sample(key: str, text: str) -> list[tuple[str, bytes]]:
    return [(f"{key}.jpg", b"\xff" * 3000), (f"{key}.txt", text.encode())]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_text_members(tmp_path: Path, name: str) -> None:
    path = write_shard(tmp_path / name, [*sample("a/1", "a dog\n"), *sample("a/2", "عربي")])
    assert [c[:4] for c in read_webdataset(path, "d", TRAIN)] == [
        ("d:a/1#0", "d:a/1", "train", "a dog"),
        ("d:a/2#0", "d:a/2", "train", "عربي"),
    ]


def test_json_members(tmp_path: Path) -> None:
    record = {"captions": ["x", "y"], "id": "im7", "alt": "z", "fold": "val"}
    path = write_shard(tmp_path / "a.tar", [("1.json", json.dumps(record).encode()), ("1.cls", b"3")])
    assert [c[:2] for c in read_webdataset(path, "d", TRAIN)] == [("d:1#0", "d:1"), ("d:1#1", "d:1")]
    columns = Columns(image_id="id", text="alt", split="fold")
    assert [c[:4] for c in read_webdataset(path, "d", columns)] == [("d:im7#0", "d:im7", "val", "z")]


def test_another_ending_can_be_named(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", [("1.jpg", b"1"), ("1.caption", b"a dog")])
    assert next(read_webdataset(path, "d", Columns(text="caption", in_split="test"))).text == "a dog"
    with pytest.raises(CheckError, match=re.escape("no .txt or .json member; there is jpg, caption. Name the ending")):
        list(read_webdataset(path, "d", TRAIN))


def test_repeated_keys_are_refused_or_prefixed_by_their_shard(tmp_path: Path) -> None:
    first, second = (write_shard(tmp_path / f"{n}.tar", sample("1", "x")) for n in range(2))
    counts: dict[str, int] = {}
    list(read_webdataset(first, "d", TRAIN, counts=counts))
    with pytest.raises(CheckError, match=r"1\.tar: 1: this key is also that of another sample\. Give --ids shard"):
        list(read_webdataset(second, "d", TRAIN, counts=counts))
    assert next(read_webdataset(second, "d", TRAIN, "shard")).image_id == "d:1/1"


def test_captions_are_inputs_and_images_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    digests = []
    for image, text in ((b"1", b"x"), (b"2", b"x"), (b"2", b"y")):
        digests.append(webdataset_digest(write_shard(path, [("1.jpg", image), ("1.txt", text)]), TRAIN))
    assert digests[0] == digests[1] != digests[2]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", [("1.txt", b"caf\xe9")])
    with pytest.raises(CheckError, match=r"a\.tar: 1: not Unicode text"):
        Corpus.from_captions(read_webdataset(path, "d", TRAIN))


def test_memory_does_not_grow_with_a_shard(tmp_path: Path) -> None:
    members = [member for n in range(3000) for member in ((f"{n}.jpg", b"1" * 2000), (f"{n}.txt", b"a dog"))]
    path = write_shard(tmp_path / "a.tar", members)
    tracemalloc.start()
    try:
        for _ in webdataset_digest(path, TRAIN):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 6,000 members take 4 MB if they are kept, and the images 6 MB.
    assert peak < 1_000_000
