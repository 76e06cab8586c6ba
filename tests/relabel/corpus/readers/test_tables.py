"""Contract: JSON lines, JSON lists, CSV, Parquet and datasets of Hugging Face give the same captions with unchanged
text. Captions that no corpus can hold are left out, or refused, with file and line (or row, or record). CSV may have a
comma, semicolon, tab or bar, which its header tells, a byte order mark, lists as JSON, or no header and no quotes, as
CC3M's. Of img2dataset, failed downloads are left out and counted.

Contract: captions of webdataset's shards come from .txt or .json members under the key of their sample. Images
are skipped, memory does not grow with a shard, and repeated keys are refused.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.golden.hostile import _tar as tar_of
from tests.relabel.corpus.readers.reading import captions_of, opened, read

from relabel.core.errors import CheckError
from relabel.corpus.params import Format
from relabel.corpus.readers.layouts import Columns
from relabel.corpus.readers.webdataset import webdataset_digest

NAMES = ("caption_id", "image_id", "text", "split")
FORMATS: list[Format] = ["json", "jsonl", "csv", "parquet"]


def write(path: Path, names: Sequence[str], *rows: tuple[Any, ...]) -> Path:
    """Write a table in the format of its suffix."""
    records = [dict(zip(names, row, strict=True)) for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(records, indent=1))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([names, *rows])
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_text_is_unchanged(tmp_path: Path, name: Format) -> None:
    texts = ["A dog. ", 'A dog,\r\n\n"quoted"', "nul \0, emoji 🐕, عربي", "word " * 2000]
    rows = [(f"d:{i}" if i else "0", "a", text, "restval") for i, text in enumerate(texts)]
    captions = read(write(tmp_path / f"a.{name}", NAMES, *rows))
    assert [c[:4] for c in captions] == [(f"d:{i}", "d:a", "train", text) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("name", "line"),
    [("json", "a.json: record 1"), ("jsonl", "a.jsonl:2"), ("csv", "a.csv:3"), ("parquet", "a.parquet: row 1")],
)
def test_bad_captions_are_left_out_or_refused_with_their_line(tmp_path: Path, name: Format, line: str) -> None:
    path = write(tmp_path / f"a.{name}", NAMES, ("1", "a", "x", "test"), ("2", "a", " ", "test"))
    source = opened(path)
    assert [caption.caption_id for caption in captions_of(source)] == ["d:1"]
    assert source.left_out == {"empty caption": (1, f"{tmp_path}/{line}")}
    with pytest.raises(CheckError, match=f"{re.escape(line)}: empty caption"):
        read(path, bad_records="error")


@pytest.mark.parametrize("name", ["json", "jsonl", "parquet"])
def test_a_row_may_hold_a_list_of_captions(tmp_path: Path, name: Format) -> None:
    path, names = tmp_path / f"a.{name}", ("image_id", "captions", "ids")
    write(path, names, (7, ["x", "y"], ["1", "2"]), (8, ["z"], ["3"]))
    assert [c[:2] for c in read(path)] == [("d:7#0", "d:7"), ("d:7#1", "d:7"), ("d:8#0", "d:8")]
    assert [c.caption_id for c in read(path, caption_id_column="ids")] == ["d:1", "d:2", "d:3"]
    write(path, names, (7, ["x", "y"], ["1"]))
    with pytest.raises(CheckError, match="'ids': expected a list of 2 ids"):
        read(path, caption_id_column="ids")
    write(path, names, (7, ["x"], ["1"]), (8, [], []))
    assert [c.image_id for c in read(path)] == ["d:7"], "an image without captions is no fault"


def test_hugging_face_datasets_are_read_as_saved_and_as_on_the_hub(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = [{"path": "a.png", "bytes": b"1"}, {"path": "b.png", "bytes": b"2"}]
    kinds = {"image": datasets.Image(decode=False), "captions": datasets.List(datasets.Value("string"))}
    columns = {"image": images, "captions": [["x", "y"], ["z"]]}
    rows = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    rows.save_to_disk(str(tmp_path / "saved"))
    rows.to_parquet(str(tmp_path / "hub.parquet"))
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    ids = [("d:a.png#0", "x"), ("d:a.png#1", "y"), ("d:b.png#0", "z")]
    for captions in (read(arrow), read(tmp_path / "hub.parquet")):
        assert [c[:4] for c in captions] == [(caption, caption[:-2], "train", text) for caption, text in ids]
    per_row = read(arrow, image_per_row=True)
    assert [c.image_id for c in per_row] == ["d:train-0", "d:train-0", "d:train-1"]
    # The shards of an earlier, larger number stay in the folder.
    rows.save_to_disk(str(tmp_path / "again"), num_shards=2)
    rows.select([0]).save_to_disk(str(tmp_path / "again"), num_shards=1)
    assert len([*(tmp_path / "again").glob("*.arrow")]) == 3
    assert [c.text for c in read(tmp_path / "again")] == ["x", "y"]


CC3M = b'a " dog " runs\thttp://x.org/1\n"two cats\thttp://x.org/2\n'
OF_CC3M = [("http://x.org/1", 'a " dog " runs'), ("http://x.org/2", '"two cats')]
LISTS = b'raw,sentids,filename\n"[""a, b"", ""c""]","[7, 8]",1.jpg\n[sic] x,9,2.jpg\n'


@pytest.mark.parametrize(
    ("name", "content", "params", "expected"),
    [
        ("a.tsv.gz", gzip.compress(b"\xef\xbb\xbfimage\tcaption\r\n\r\n2\ta, b\r\n", mtime=0), {}, [("2", "a, b")]),
        ("Train_GCC-training.tsv", CC3M, {"columns": ["caption", "url"], "quotes": False}, OF_CC3M),
        ("flickr_annotations_30k.csv", LISTS, {}, [("1.jpg", "a, b"), ("1.jpg", "c"), ("2.jpg", "[sic] x")]),
        # The header tells the separator: a caption may hold any of the others.
        ("a.csv", b'\nfilepath;title\n1.jpg;"a, b; c\td; e"\n', {}, [("1.jpg", "a, b; c\td; e")]),
        ("a.csv", b'\nfilepath\ttitle\n1.jpg\t"a, b; c\td\t e"\n', {}, [("1.jpg", "a, b; c\td\t e")]),
        ("a.csv", b'image,caption,"a; b; c"\n1.jpg,x,\n', {"delimiter": ","}, [("1.jpg", "x")]),
        ("a.csv", b"image|caption\n1.jpg|x\n", {"delimiter": "|"}, [("1.jpg", "x")]),
        # Without a header, the first line is a caption.
        ("a.csv", b"a; b; c,1.jpg\n", {"columns": ["caption", "image"]}, [("1.jpg", "a; b; c")]),
    ],
)
def test_csv_dialects(
    tmp_path: Path, name: str, content: bytes, params: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    (tmp_path / name).write_bytes(content)
    captions = read(tmp_path / name, **params)
    assert [(caption.image_id[2:], caption.text) for caption in captions] == expected


@pytest.mark.parametrize(
    ("present", "image", "text"),
    [
        (("caption", "image", "image_id"), "image_id", "caption"),
        (("title", "text", "filepath"), "filepath", "text"),
        (("title", "caption", "url"), "url", "caption"),
        (("title", "image_path"), "image_path", "title"),
        (("raw", "filename"), "filename", "raw"),
        (("sentence", "file_name", "image"), "file_name", "sentence"),
    ],
)
def test_usual_names_of_columns(present: tuple[str, ...], image: str, text: str) -> None:
    found = Columns().find(dict.fromkeys(present), "a.csv")
    assert (found.image_id, found.text) == (image, (text,))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'[{"image": "1", "caption": "x"}, {"image": "2"', "a.json: not JSON: Expecting ',' delimiter"),
        (b'[{"image": "1", "caption": "x"}, 7]', "a.json: record 1: found int: not a JSON object"),
        (
            b'[{"image": "1"}, {"image": "2", "sum": 1}]',
            "record 0: no column of captions. There are image, sum.",
        ),
        (b"image,caption\n1.jpg,x,y\n", "expected the columns image, caption (separator ','); found 3 fields"),
        (b"\nimage^caption\n1.jpg^x\n", "a.csv:3: no column of captions. There is image^caption. Name the column"),
        (CC3M, "--columns caption,url. Set a separator other than , ; | and tab with --set ingest.delimiter=X."),
    ],
)
def test_faulty_tables_are_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / ("a.json" if content.startswith(b"[") else "a.csv")
    path.write_bytes(content)
    with pytest.raises(CheckError, match=re.escape(fault)):
        read(path, quotes=content != CC3M, bad_records="error")


def test_failed_img2dataset_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    status = ["success", "failed_to_download", "failed_to_resize", "failed_to_download"]
    rows = [(f"{n:09}", f"{n:09}", "x", state) for n, state in enumerate(status)]
    path = write(tmp_path / "00000.parquet", ("url", "key", "caption", "status"), *rows)
    source = opened(path)
    assert [c[:2] for c in captions_of(source)] == [("d:000000000#0", "d:000000000")]
    assert source.left_out == {
        "image not downloaded: failed_to_download": (2, f"{path}: row 1"),
        "image not downloaded: failed_to_resize": (1, f"{path}: row 2"),
    }


def write_shard(path: Path, *members: tuple[str, bytes]) -> Path:
    body = tar_of(*members)
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def sample(key: str, text: str) -> list[tuple[str, bytes]]:
    return [(f"{key}.jpg", b"\xff" * 2000), (f"{key}.txt", text.encode())]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_text_members(tmp_path: Path, name: str) -> None:
    path = write_shard(tmp_path / name, *sample("a/1", "a dog\n"), *sample("a/2", "عربي"))
    captions = [("d:a/1#0", "d:a/1", "train", "a dog"), ("d:a/2#0", "d:a/2", "train", "عربي")]
    assert [c[:4] for c in read(path)] == captions


def test_json_members(tmp_path: Path) -> None:
    record = {"captions": ["x", "y"], "id": "im7", "alt": "z", "fold": "val"}
    path = write_shard(tmp_path / "a.tar", ("1.json", json.dumps(record).encode()), ("1.cls", b"3"))
    assert [c[:2] for c in read(path)] == [("d:1#0", "d:1"), ("d:1#1", "d:1")]
    columns = {"image_id_column": "id", "text_column": "alt", "split_column": "fold"}
    assert [c[:4] for c in read(path, **columns)] == [("d:im7#0", "d:im7", "val", "z")]


def test_memory_does_not_grow_with_a_shard(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", *(member for n in range(3000) for member in sample(str(n), "a dog")))
    tracemalloc.start()
    try:
        webdataset_digest(path, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # 6,000 members take 4 MB if they are kept, and the images 6 MB.
    assert peak < 1_000_000
