"""Contract: the format of captions follows from the suffix or content of their path, and splits from names of files.
A path of no format, or of several, is refused with a list of all formats.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.relabel.corpus.readers.reading import captions_of, opened

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus.readers.files import find_files, split_of_name, table_files


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.csv.gz"], "csv"),
        (["a.jsonl"], "jsonl"),
        (["state.json", "data-00000-of-00001.arrow"], "arrow"),
        (["dataset_dict.json", "train/data-00000-of-00001.arrow"], "arrow"),
        (["train_caps.txt", "train_ids.txt"], "scan"),
        (["annotations/captions_train2014.json"], "coco"),
        (["coco_karpathy_train.json", "coco_karpathy_val.json"], "json"),
        (["00000.tar", "00000_stats.json"], "webdataset"),
    ],
)
def test_the_format_of_a_folder_or_file(tmp_path: Path, names: list[str], expected: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" if name == "state.json" else "")
    assert find_files(tmp_path, None)[0] == expected
    if expected in ("csv", "jsonl", "webdataset"):
        assert find_files(tmp_path / names[0], None)[0] == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xef\xbb\xbf\n [{", "json"),
        (b' {"images": []}', "json"),
        (b'{"image": "1"}\n{"image": "2"}\n', "jsonl"),
        ('{"image": "1"}\n{"image": "2"}\n'.encode("utf-16"), "jsonl"),
        (b"[sic] dogs,image\nx,y\n", "csv"),
        (b"image,caption\nx,y\n", "csv"),
        (b"PAR1", "parquet"),
        (b"ARROW1\0\0", "arrow"),
    ],
)
def test_the_content_tells_the_container(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "a.dat").write_bytes(content)
    if expected == "parquet":
        with pytest.raises(CheckError, match="not Parquet"):
            find_files(tmp_path / "a.dat", None)
        return
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    assert {find_files(path, None)[0] for path in tmp_path.iterdir()} == {expected}


def test_an_unclear_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    for path in (tmp_path, tmp_path / "a.bin"):
        with pytest.raises(UsageError, match=r"Set the format with --format: one of coco, karpathy, json, jsonl, csv"):
            find_files(path, None)
    with pytest.raises(MissingError, match="no such file"):
        find_files(tmp_path / "none.csv", None)


def test_a_folder_contains_files_of_the_format(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("b.csv", "a.csv.gz", "c.txt", ".d.csv", "data/e.csv", "cache-1.csv"):
        (tmp_path / name).touch()
    assert [path.name for path in table_files(tmp_path, (".csv", ".csv.gz"))] == ["a.csv.gz", "b.csv", "e.csv"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00002.parquet", "train"),
        ("validation/data-00000-of-00001.arrow", "val"),
        ("Train_GCC-training.tsv", "train"),
        ("train_test.csv", None),
        ("strained.csv", None),
        ("f8k_dev1k.csv", "val"),
        ("captions_test-dev2017.json", "test"),
    ],
)
def test_the_split_of_a_name(name: str, split: str | None) -> None:
    assert split_of_name(Path("mine") / name, Path("mine")) == split


def test_the_note_names_the_columns_and_splits_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "coco_karpathy_test.json.gz"  # BLIP's captions
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf \n[{"image": "1.jpg", "caption": ["a dog", "two"]}]'))
    source = opened(path)
    assert source.note == (
        "format json; images: column image; captions: column caption; caption ids: image and position; "
        "splits: names of files (test)"
    )
    captions = [(caption.caption_id, caption.split, caption.text) for caption in captions_of(source)]
    assert captions == [("d:1.jpg#0", "test", "a dog"), ("d:1.jpg#1", "test", "two")]
