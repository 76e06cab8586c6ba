"""Contract: JSON lines, CSV and Parquet give the same captions with unchanged text. Ragged, mistyped and undecodable
records are refused with file, line (or row) and reason.

Contract: captions of webdataset's shards come from .txt or .json members under the key of their sample. Images
are skipped, memory does not grow with a shard, and repeated keys are refused.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.corpus.params import Format, IngestParams
from relabel.corpus.readers.columns import Columns
from relabel.corpus.readers.tables import open_table
from relabel.corpus.readers.webdataset import read_webdataset, webdataset_digest

NAMES = ("caption_id", "image_id", "text", "split")


def write_jsonl(path: Path, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def write_csv(path: Path, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([names, *rows])
    return path


def write_parquet(path: Path, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Path:
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


def read(form: Format, path: Path, chosen: Columns | None = None, /, **params: Any) -> Iterator[Caption]:
    table = open_table(path, IngestParams(dataset="d", format=form, path=path, **params), Counter())
    return table.captions(chosen or Columns(), "d", {})


WRITERS: dict[Format, Callable[..., Path]] = {"jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet}


@pytest.mark.parametrize(
    ("name", "where"), [("jsonl", "a.jsonl:2"), ("csv", "a.csv:3"), ("parquet", "a.parquet: row 1")]
)
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("1", "a", "x", "test"), "caption id d:1 appears twice"),
        (("2", "a", " ", "test"), "caption d:2 is empty"),
        (("2", "a", "x", "val"), "image d:a is in two splits, test and val"),
    ],
)
def test_bad_captions_are_refused_with_their_line(
    tmp_path: Path, name: Format, where: str, row: tuple[str, ...], message: str
) -> None:
    write = WRITERS[name]
    path = write(tmp_path / f"a.{name}", NAMES, [("1", "a", "x", "test"), row])
    with pytest.raises(CheckError, match=re.escape(f"{where}: {message}")):
        Corpus.from_captions(read(name, path))


@pytest.mark.parametrize("name", WRITERS)
def test_ids_are_derived_from_image_and_position(tmp_path: Path, name: Format) -> None:
    write = WRITERS[name]
    path = write(tmp_path / f"a.{name}", ("image", "caption"), [("a.jpg", "x"), ("b.jpg", "y"), ("a.jpg", "z")])
    assert [c[:4] for c in read(name, path)] == [
        ("d:a.jpg#0", "d:a.jpg", "train", "x"),
        ("d:b.jpg#0", "d:b.jpg", "train", "y"),
        ("d:a.jpg#1", "d:a.jpg", "train", "z"),
    ]


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_a_row_may_hold_a_list_of_captions(tmp_path: Path, name: Format) -> None:
    write = WRITERS[name]
    rows = [(7, ["x", "y"], ["1", "2"]), (8, ["z"], ["3"])]
    path = write(tmp_path / f"a.{name}", ("image_id", "captions", "ids"), rows)
    assert [c[:2] for c in read(name, path)] == [("d:7#0", "d:7"), ("d:7#1", "d:7"), ("d:8#0", "d:8")]
    assert [c.caption_id for c in read(name, path, Columns("ids"))] == ["d:1", "d:2", "d:3"]
    write(path, ("image_id", "captions", "ids"), [(7, ["x", "y"], ["1"])])
    with pytest.raises(CheckError, match="'ids': expected a list of 2 ids, one per caption"):
        list(read(name, path, Columns("ids")))
    write(path, ("image_id", "captions"), [(7, ["x"]), (8, [])])
    with pytest.raises(CheckError, match="'captions': expected a string or a list of strings, found \\[\\]"):
        list(read(name, path))


def test_hugging_face_datasets_are_read_as_saved_and_as_on_the_hub(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = [{"path": "a.png", "bytes": b"1"}, {"path": "b.png", "bytes": b"2"}]
    features = datasets.Features(
        {"image": datasets.Image(decode=False), "captions": datasets.List(datasets.Value("string"))}
    )
    rows = datasets.Dataset.from_dict({"image": images, "captions": [["x", "y"], ["z"]]}, features=features)
    rows.save_to_disk(str(tmp_path / "saved"))
    rows.to_parquet(str(tmp_path / "hub.parquet"))
    expected = [("d:a.png#0", "d:a.png", "train", "x"), ("d:a.png#1", "d:a.png", "train", "y")]
    expected.append(("d:b.png#0", "d:b.png", "train", "z"))
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    assert [c[:4] for c in read("arrow", arrow)] == expected
    assert [c[:4] for c in read("parquet", tmp_path / "hub.parquet")] == expected
    per_row = read("arrow", arrow, Columns(image_per_row=True))
    assert [c.image_id for c in per_row] == ["d:train-0", "d:train-0", "d:train-1"]


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


def test_repeated_keys_are_refused_or_prefixed_by_their_shard(tmp_path: Path) -> None:
    first, second = (write_shard(tmp_path / f"{n}.tar", sample("1", "x")) for n in range(2))
    counts: dict[str, int] = {}
    list(read_webdataset(first, "d", TRAIN, counts=counts))
    with pytest.raises(CheckError, match=r"1\.tar: 1: this key is also that of another sample\. Give --ids shard"):
        list(read_webdataset(second, "d", TRAIN, counts=counts))
    assert next(read_webdataset(second, "d", TRAIN, "shard")).image_id == "d:1/1"


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
