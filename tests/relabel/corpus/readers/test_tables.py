"""Contract: JSON lines, CSV and Parquet give the same captions with unchanged text. Ragged, mistyped and undecodable
records are refused with file, line (or row) and reason.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
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

NAMES = ("caption_id", "image_id", "text", "split")
ROWS = [
    ("1", "a", "A dog. ", "train"),
    ("2", "a", 'A dog,\r\n\n"quoted"', "restval"),
    ("d:3", "b", "nul \0, emoji 🐕, عربي", "dev"),
    ("4", "c", "word " * 2000, "test"),
]


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


@pytest.mark.parametrize("name", WRITERS)
def test_text_is_unchanged(tmp_path: Path, name: Format) -> None:
    write = WRITERS[name]
    captions = list(read(name, write(tmp_path / f"a.{name}", NAMES, ROWS)))
    splits = ("train", "train", "val", "test")
    assert [c[:4] for c in captions] == [
        (f"d:{row[0].removeprefix('d:')}", f"d:{row[1]}", split, row[2])
        for row, split in zip(ROWS, splits, strict=True)
    ]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("names", "columns", "message"),
    [
        (("caption_id", "image_id", "words", "split"), Columns(), "no column of captions"),
        (("caption_id", "image_id", "text", "fold"), Columns(split="split"), "no column 'split'"),
        (NAMES, Columns(text="caption"), "no column 'caption'"),
    ],
)
def test_missing_columns_are_named(
    tmp_path: Path, name: Format, names: tuple[str, ...], columns: Columns, message: str
) -> None:
    write = WRITERS[name]
    path = write(tmp_path / f"a.{name}", names, ROWS)
    with pytest.raises(CheckError, match=re.escape(message)) as caught:
        list(read(name, path, columns))
    assert str(caught.value).startswith(str(path))
    assert f"There are {', '.join(names)}. Name the column with --" in str(caught.value)


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


def test_invalid_utf8_in_parquet_is_refused_with_its_row(tmp_path: Path) -> None:
    good = pa.array(["fine", "cafX", "x"])
    raw = bytearray(good.buffers()[2].to_pybytes())
    raw[raw.index(b"X")] = 0xE9
    texts = pa.StringArray.from_buffers(3, good.buffers()[1], pa.py_buffer(bytes(raw)))
    path = tmp_path / "a.parquet"
    columns = {"caption_id": ["1", "2", "3"], "image_id": ["1"] * 3, "text": texts, "split": ["test"] * 3}
    pq.write_table(pa.table(columns), path, use_dictionary=False)
    with pytest.raises(CheckError, match=re.escape(f"{path}: from row 0: ") + ".*UTF8 sequence at string index 1"):
        list(read("parquet", path))


CSV_HEADER = "caption_id,image_id,text,split\n"


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (CSV_HEADER + '1,2,"a\nb",test\n3,4,x\n', 4, "expected the columns caption_id, image_id, text, split; found 3"),
        (CSV_HEADER + "1,2,x, y,test\n", 2, "expected the columns caption_id, image_id, text, split; found 5"),
        (CSV_HEADER + '1,2,x,test\n1,2,"x\n,test\n', 3, "not CSV: unexpected end of data"),
        (CSV_HEADER + '1,2,"x"y,test\n', 2, "not CSV: ',' expected after '\"'"),
        ("caption_id,image_id,text,text\n", 1, "column 'text' appears twice"),
    ],
)
def test_ragged_csv_is_refused(tmp_path: Path, text: str, where: int, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(CheckError, match=re.escape(f"{path}:{where}: {message}")):
        list(read("csv", path))


def test_csv_dialects(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    raw = "\ufeffcaption_id\timage_id\ttext\tsplit\r\n\r\n1\t2\ta, b\ttest\r\n"
    path.write_bytes(gzip.compress(raw.encode()))
    assert list(read("csv", path)) == [Caption("d:1", "d:2", "test", "a, b", f"{path}:3")]


def test_parquet_of_dictionaries_and_large_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array(["x", "y"], pa.large_string())
    split = pa.array(["test", "test"]).dictionary_encode()
    pq.write_table(pa.table({"caption_id": [1, 2], "image_id": [1, 1], "text": texts, "split": split}), path)
    assert [c.text for c in read("parquet", path)] == ["x", "y"]


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


def test_cc3m_has_no_header(tmp_path: Path) -> None:
    path = tmp_path / "Train_GCC-training.tsv"
    path.write_text('a " dog " runs\thttp://x.org/1\n"two cats\thttp://x.org/2\n')
    with pytest.raises(CheckError, match="name the columns, as in --columns caption,url"):
        list(read("csv", path, quotes=False))
    captions = list(read("csv", path, columns=["caption", "url"], quotes=False))
    assert [(c.image_id, c.text) for c in captions] == [
        ("d:http://x.org/1", 'a " dog " runs'),
        ("d:http://x.org/2", '"two cats'),
    ]
    with pytest.raises(CheckError, match=r"not CSV.*set quotes to false"):
        list(read("csv", path, columns=["caption", "url"]))


def test_failed_img2dataset_rows_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "00000.parquet"
    status = ["success", "failed_to_download", "failed_to_resize", "failed_to_download"]
    keys = [f"{n:09}" for n in range(4)]
    pq.write_table(pa.table({"url": keys, "caption": ["x", None, "y", "z"], "key": keys, "status": status}), path)
    skipped: Counter[str] = Counter()
    table = open_table(path, IngestParams(dataset="d", format="img2dataset", path=path), skipped)
    captions = list(table.captions(Columns(image_id="key"), "d", {}))
    assert [c[:2] for c in captions] == [("d:000000000#0", "d:000000000")]
    assert skipped == {"failed_to_download": 2, "failed_to_resize": 1}


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


def test_an_image_without_a_path_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [{"bytes": b"1", "path": None}], "text": ["x"]}), path)
    with pytest.raises(CheckError, match=r"row 0: 'image' is an image without a path.*--image-per-row"):
        list(read("parquet", path))
