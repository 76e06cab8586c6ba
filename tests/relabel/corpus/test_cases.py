"""Contract: captions as people have them are read, or refused with their place and what to do. Nothing is merged or
lost in silence. The inputs have the shapes of public bug reports and of published files, with invented text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.golden.hostile import _tar as tar_of
from tests.relabel.corpus.readers.reading import captions_of, opened, read
from tests.relabel_cli.runner import invoke

import relabel
from relabel.core.errors import CheckError, RelabelError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.params import IngestParams
from relabel.corpus.readers import open_input
from relabel.store.manifest import read_manifest

JPG = b"\xff\xd8fake"


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, **params: Any) -> list[tuple[str, str]]:
    """Return caption id without the namespace, and text."""
    return [(caption.caption_id[2:], caption.text) for caption in read(path, **params)]


def refused(path: Path, *parts: str, **params: Any) -> None:
    with pytest.raises(RelabelError) as caught:
        read(path, **params)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def download(folder: Path, site: str, *texts: str | None, failed: int = 0) -> None:
    """Write what img2dataset writes: metadata, and a shard of the images that were downloaded."""
    count = len(texts) + failed
    status = ["success"] * len(texts) + ["failed_to_download"] * failed
    columns = {
        "url": [f"http://{site}.test/{n}" for n in range(count)],
        "caption": [*texts, *["gone"] * failed],
        "key": [f"{n:09}" for n in range(count)],
        "status": status,
    }
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "00000.parquet")
    members = [(f"{n:09}.txt", (text or "").encode()) for n, text in enumerate(texts)]
    write(folder / "00000.tar", tar_of(*members))


# 02


def test_equal_keys_of_two_downloads_are_never_one_image(tmp_path: Path) -> None:
    download(tmp_path / "cc12m", "cc12m", "a red cart", "kids at sea")
    download(tmp_path / "cc3m", "cc3m", "a dog", "two cats")
    both = ("cc12m/00000.parquet: row 0", "cc3m/00000.parquet: row 0", "--image-id-column url", "--ids folder")
    refused(tmp_path, *both)
    urls = [f"http://{site}.test/{n}#0" for site in ("cc12m", "cc3m") for n in range(2)]
    assert [name for name, _ in rows(tmp_path, image_id_column="url")] == urls
    assert [name for name, _ in rows(tmp_path, ids="folder")][::3] == ["cc12m/000000000#0", "cc3m/000000001#0"]
    # The shards alone have the same keys.
    shards = ("cc12m/00000.tar: 000000000", "cc3m/00000.tar: 000000000", "--ids shard")
    refused(tmp_path, *shards, format="webdataset")
    assert rows(tmp_path, format="webdataset", ids="shard")[0][0] == "cc12m/00000/000000000#0"
    assert len(rows(tmp_path, format="webdataset", ids="shard")) == 4


def test_bare_file_names_in_several_folders_are_never_one_image(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder / "captions.csv", f"image,caption\n1.jpg,a dog of {folder}\n")
    refused(tmp_path, "b/captions.csv:2: image d:1.jpg", "a/captions.csv: row 2", "--ids folder")
    assert [name for name, _ in rows(tmp_path, ids="folder")] == ["a/1.jpg#0", "b/1.jpg#0"]
    # Tables in one folder share images.
    for name in ("a", "b"):
        write(tmp_path / "one" / f"{name}.csv", f"image,caption\n1.jpg,a dog of {name}\n")
    assert [name for name, _ in rows(tmp_path / "one")] == ["1.jpg#0", "1.jpg#1"]


def test_images_of_tables_in_several_folders_are_said(tmp_path: Path) -> None:
    for folder in "ab":
        write(tmp_path / "d" / folder / "c.csv", f"image_id,caption\n7,a {folder}\n")
    source = opened(tmp_path / "d")
    assert [caption.image_id for caption in captions_of(source)] == ["d:7", "d:7"]
    (warning,) = source.warnings
    assert all(part in warning for part in ("have 1 more captions", "c.csv:2", "--ids folder"))
    source = opened(tmp_path / "d", ids="folder")
    assert [caption.image_id for caption in captions_of(source)] == ["d:a/7", "d:b/7"]
    assert source.warnings == []


def test_two_members_of_one_name_in_a_tar(tmp_path: Path) -> None:
    for names in (("1.txt", "1.txt"), ("1.txt", "2.txt", "1.txt")):
        path = write(tmp_path / "a.tar", tar_of(*((name, b"a dog") for name in names)))
        refused(path, "a.tar", "1")


def test_two_rows_of_a_table_of_images_are_never_one_image(tmp_path: Path) -> None:
    images = [{"bytes": b"1", "path": "a.png"}, {"bytes": b"2", "path": "a.png"}]
    pq.write_table(pa.table({"image": images, "text": ["a dog", "two cats"]}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "row 1: image d:a.png", "a.parquet: row 0", "--image-per-row")
    assert [name for name, _ in rows(tmp_path / "a.parquet", image_per_row=True)] == ["train-0#0", "train-1#0"]
    images = [{"bytes": b"1", "path": None}, {"bytes": b"2", "path": None}]
    pq.write_table(pa.table({"image": images, "text": ["a dog", "two cats"]}), tmp_path / "b.parquet")
    refused(tmp_path / "b.parquet", "b.parquet: row 0: an image without a path", "--image-per-row")


# 03


@pytest.mark.parametrize(
    "field",
    [
        """['A man pulls a cart', "The porter's cart"]""",
        """['A man pulls a cart' "The porter's cart"]""",
        """['A man pulls a cart'\n "The porter's cart"]""",
        """('A man pulls a cart', "The porter's cart")""",
        """[ "A man pulls a cart", "The porter's cart"]""",
        """["A man pulls a cart","The porter\\u0027s cart"]""",
        """[u'A man pulls a cart', u"The porter's cart"]""",
        """{'A man pulls a cart', "The porter's cart"}""",
        """array(['A man pulls a cart', "The porter's cart"], dtype=object)""",
        """  [np.str_('A man pulls a cart'), np.str_("The porter's cart")]""",
    ],
)
def test_a_list_that_was_written_as_text(tmp_path: Path, field: str) -> None:
    quoted = field.replace('"', '""')
    path = write(tmp_path / "a.csv", f'image,captions\n1.jpg,"{quoted}"\n2.jpg,"[]"\n3.jpg,"(a dog)"\n')
    expected = [("1.jpg#0", "A man pulls a cart"), ("1.jpg#1", "The porter's cart"), ("3.jpg#0", "(a dog)")]
    assert rows(path) == expected


def test_a_list_of_images_that_was_written_as_text(tmp_path: Path) -> None:
    for field in ("[np.str_('é.jpg'), np.str_('7')]", '["\\u00e9.jpg", "7"]', "('é.jpg', '7')", "['é.jpg', 7.0]"):
        quoted = field.replace('"', '""')
        path = write(tmp_path / "a.csv", f'images,text\n"{quoted}",a dog\n"[]",two cats\n[y],x\n')
        source = opened(path)
        assert [caption.image_id for caption in captions_of(source)] == ["d:é.jpg", "d:7", "d:[y]"]
        assert source.left_out == {"record without an image": (1, f"{path}:3")}


def test_a_missing_text_in_a_list_keeps_the_positions_of_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "image,captions\n1.jpg,\"[None, 'a dog', 'two cats']\"\n")
    source = opened(path)
    assert [caption.caption_id for caption in captions_of(source)] == ["d:1.jpg#1", "d:1.jpg#2"]
    assert source.left_out == {"empty caption": (1, f"{path}:2")}


def test_what_looks_like_a_list_and_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "image,captions\n1.jpg,\"['a dog', 'two\"\n")
    refused(path, "a.csv:2: looks like a list of captions, but does not parse", "ingest.lists=false")
    for field in ("[['a', 'b'], ['c']]", "[{'raw': 'a dog'}]", "['a', 7]"):
        nested = write(tmp_path / "b.csv", f'image,captions\n1.jpg,a dog\n2.jpg,"{field}"\n')
        refused(nested, "b.csv:3: looks like a list of captions, but does not parse")
    assert rows(path, lists=False) == [("1.jpg#0", "['a dog', 'two")]


# 04

TOKENS = '1.jpg#0\tA man .\n1.jpg#1\tA porter , tired .\n2.jpg#0\t"Kids" build .\n2.jpg#1\tAt sea .\n'


def test_token_files(tmp_path: Path) -> None:
    expected = [("1.jpg#0", "A man ."), ("1.jpg#1", "A porter , tired ."), ("2.jpg#0", '"Kids" build .')]
    expected.append(("2.jpg#1", "At sea ."))
    for name in ("results.token", "tok.txt", "tok.tsv"):
        assert rows(write(tmp_path / name, TOKENS)) == expected
    path = write(tmp_path / "named.tsv", TOKENS.replace('"', ""))
    captions = read(path, columns=("image", "caption"))
    assert [caption.image_id for caption in captions] == ["d:1.jpg", "d:1.jpg", "d:2.jpg", "d:2.jpg"]
    # Positions order the captions of an image, wherever they are in the file.
    mixed = Corpus.from_captions(read(write(tmp_path / "mixed.token", "1.jpg#2\tc\n2.jpg#0\td\n1.jpg#0\ta\n")))
    assert (mixed.caption_ids, mixed.texts) == (["d:1.jpg#0", "d:1.jpg#2", "d:2.jpg#0"], ["a", "c", "d"])
    chinese = write(tmp_path / "f8kcn.caption.txt", "1.jpg#zhc#0 一辆 手推车\n1.jpg#zhc#1 手推车\n")
    assert rows(chinese) == [("1.jpg#zhc#0", "一辆 手推车"), ("1.jpg#zhc#1", "手推车")]


# 07


@pytest.mark.parametrize(
    ("word", "split"),
    [
        *(("Train", "train"), ("train2014", "train"), ("restval", "train"), ("valid", "val"), ("VALIDATION", "val")),
        *(("dev", "val"), ("val2017", "val"), ("testing", "test"), (" Test ", "test"), ("TestSet", "test")),
        *(("test1", "test"), ("val1k", "val"), ("train0", "train"), ("minival2014", "val")),
    ],
)
def test_words_for_splits(tmp_path: Path, word: str, split: str) -> None:
    for name in ("split", "set", "Partition"):
        path = write(tmp_path / "a.csv", f"image,caption,{name}\na.jpg,a dog,{word}\n")
        assert [caption.split for caption in read(path)] == [split]
    write(tmp_path / "hive" / f"split={word}" / "0.csv", "image,caption\na.jpg,a dog\n")
    assert [caption.split for caption in read(tmp_path / "hive")] == [split]
    named = write(tmp_path / f"captions_{word.strip()}.csv", "image,caption\na.jpg,a dog\n")
    assert [caption.split for caption in read(named)] == [split]


def test_other_names_of_splits_are_listed_and_can_be_mapped(tmp_path: Path) -> None:
    names = ["train", "qual_dev", "test", "qual_dev"]
    records = [{"split": name, "image_file": f"{n}.jpg", "description": "a pier"} for n, name in enumerate(names)]
    path = write(tmp_path / "docci.jsonlines", "\n".join(map(json.dumps, records)))
    refused(path, "unknown split 'qual_dev'", "'qual_dev' 2, 'train' 1, 'test' 1", "ingest.split_names={qual_dev: val}")
    assert [c.split for c in read(path, split_names={"Qual_Dev": "val"})] == ["train", "val", "test", "val"]
    path = write(tmp_path / "a.csv", "image,caption,split\n1,a,train\n2,b,\n")
    refused(path, "unknown split ''", "'train' 1, '' 1", """ingest.split_names={"": val}'""")


def test_splits_that_datasets_names_are_mapped_or_named(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    parts = {name: datasets.Dataset.from_dict({"image": [name], "text": ["x"]}) for name in ("learn", "exam")}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "d")
    refused(tmp_path / "d", "unknown splits: exam, learn", "ingest.split_names={exam: val}")
    found = read(tmp_path / "d", split_names={"learn": "train", "exam": "test"})
    assert {caption.image_id: caption.split for caption in found} == {"d:learn": "train", "d:exam": "test"}


# 09


def test_rows_that_would_swallow_rows(tmp_path: Path) -> None:
    lines = ["a harbour\t1.jpg", '"the lamp\t2.jpg', "a cart\t3.jpg", 'and so they left"\t4.jpg', "last\t5.jpg"]
    path = write(tmp_path / "merge.tsv", "\n".join(lines) + "\n")
    refused(path, "merge.tsv:2: a quoted field spans several rows", "ingest.quotes=false", columns=("caption", "url"))
    texts = [text for _, text in rows(path, columns=("caption", "url"), quotes=False)]
    assert texts == [line.split("\t")[0] for line in lines]
    # Flickr30K's file with a header writes no quotes around fields.
    path = write(tmp_path / "results.csv", 'image_name| comment\n1.jpg| "No Parking" reads a sign .\n')
    assert rows(path) == [("1.jpg#0", '"No Parking" reads a sign .')]
    for separator in "\t|":
        lines = [f"image{separator}caption", f'1.jpg{separator}"a cart', f'2.jpg{separator}left"', f"3.jpg{separator}x"]
        path = write(tmp_path / "header.txt", "\n".join(lines) + "\n")
        refused(path, "header.txt:2: a quoted field spans several rows", "ingest.quotes=false")
        assert len(read(path, quotes=False)) == 3


# 13


@pytest.mark.parametrize(
    ("name", "content", "kept", "reason", "place"),
    [
        ("a.csv", "image,caption\n1,a dog\n2,\n3,nan\n4,two cats\n", [1, 4], "empty caption", "a.csv:3"),
        ("a.jsonl", '{"image":1,"caption":"a dog"}\n{"image":2,"caption":NaN}\n', [1], "empty caption", "a.jsonl:2"),
        ("a.jsonl", '{"image":1,"caption":"a"}\n{"image":2\n', [1], "not a JSON object", "a.jsonl:2: not JSON: Exp"),
        ("a.jsonl", '{"image":1,"caption":"a"}\n{"image":2}\n', [1], "empty caption", "a.jsonl:2"),
        ("a.json", '[{"image":1,"caption":"a"},{"image":2,"caption":7}]', [1], "caption that is not text", "record 1"),
        ("a.tar", tar_of(("1.txt", b"a"), ("2.jpg", JPG)), [1], "sample without a caption", "a.tar: 2: it has jpg"),
        ("a.tar", tar_of(("1.txt", b"a"), ("2.txt", b"")), [1], "empty caption", "a.tar: 2"),
        ("a.tar", tar_of(("1.txt", b"a"), ("2.json", b'{"caption": null}')), [1], "empty caption", "a.tar: 2"),
        ("a.tar", tar_of(("1.txt", b"a"), ("2.json", b"{")), [1], "JSON of a sample that does not parse", "a.tar: 2"),
    ],
)
def test_records_without_a_caption_are_left_out_and_counted(
    tmp_path: Path, name: str, content: str | bytes, kept: list[int], reason: str, place: str
) -> None:
    path = write(tmp_path / name, content)
    source = opened(path)
    assert [caption.image_id for caption in captions_of(source)] == [f"d:{image}" for image in kept]
    ((found, (_, first)),) = source.left_out.items()
    assert found == reason
    assert place in first
    refused(path, reason, place, bad_records="error")


def test_images_without_captions_are_no_fault(tmp_path: Path) -> None:
    images = [
        {"filename": "p1.jpg", "split": "train", "sentences": []},
        {"filename": "p2.jpg", "split": "test", "sentences": [{"raw": "a dog", "sentid": 0}]},
    ]
    source = opened(write(tmp_path / "nosent.json", json.dumps({"images": images})))
    assert [caption[:4] for caption in captions_of(source)] == [("d:0", "d:p2", "test", "a dog")]
    assert not source.left_out
    pq.write_table(pa.table({"image_id": ["a", "b"], "caption": [["x", None], []]}), tmp_path / "a.parquet")
    source = opened(tmp_path / "a.parquet")
    assert [caption.text for caption in captions_of(source)] == ["x"]
    assert source.left_out == {"empty caption": (1, f"{tmp_path}/a.parquet: row 0")}


def test_failed_downloads_and_empty_captions_are_counted_apart(tmp_path: Path) -> None:
    download(tmp_path / "out", "cc", "a dog", None, failed=3)
    source = opened(tmp_path / "out")
    assert [caption.image_id for caption in captions_of(source)] == ["d:000000000"]
    assert {reason: count for reason, (count, _) in source.left_out.items()} == {
        "empty caption": 1,
        "image not downloaded: failed_to_download": 3,
    }


def test_more_than_half_of_a_file_is_not_left_out(tmp_path: Path) -> None:
    body = "image,caption\n1.jpg,a dog\n" + "2.jpg,one,two\n" * 2
    refused(write(tmp_path / "a.csv", body), "2 of 3 captions cannot be read", "2 fields do not match", "a.csv:3")
    body = "image,caption\n1.jpg,a dog\n" + "2.jpg,\n" * 11
    refused(write(tmp_path / "b.csv", body), "11 of 12 captions cannot be read", "b.csv:3")


# 10

TWO = [{"image_id": "a", "text": "a dog"}, {"image_id": "b", "text": "two cats"}]
OF_TWO = ["mine:a#0", "mine:b#0"]


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        (TWO, OF_TWO),
        ([*TWO, {"image_id": "c", "text": None}], OF_TWO),
        ([("a", "a dog"), ("b", "two cats")], OF_TWO),
        ([["a", "a dog"], ["b", "two cats"], ["c", "x"]], [*OF_TWO, "mine:c#0"]),
        ((["a", "b"], ["a dog", "two cats"]), OF_TWO),
        ({"image_id": ["a", "b", "c"], "text": ["a dog", "two cats", float("nan")]}, OF_TWO),
    ],
)
def test_captions_in_memory(tmp_path: Path, captions: Any, expected: list[str]) -> None:
    assert relabel.ingest(tmp_path / "mine", captions).caption_ids == expected


@pytest.mark.parametrize(
    ("captions", "parts"),
    [
        ([*TWO, 7], ["captions: row 2: a record of type int", "(ids, texts)"]),
        ([["a", "a dog"], ["b", "two cats"]], ["two lists of two", "Give tuples"]),
        (
            {"image_id": ["a"], "remark": ["a dog"]},
            ["captions: no column of captions", "Name the column with text_column"],
        ),
        ({"image_id": ["a", None], "text": ["a dog", "x"]}, ["captions: row 1: the image id is blank"]),
        (["a dog", "two cats"], ["captions: row 0: a record of type str"]),
    ],
)
def test_errors_about_captions_in_memory_name_parameters_and_rows(
    tmp_path: Path, captions: Any, parts: list[str]
) -> None:
    with pytest.raises(RelabelError) as caught:
        relabel.ingest(tmp_path / "mine", captions)
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "parquet" not in message
    assert "--" not in message


# 14


def test_annotations_of_any_year_and_dataset(tmp_path: Path) -> None:
    for start, name in enumerate(("captions_train2017.json", "captions_val2017.json")):
        images = [{"id": start, "file_name": "VAL_1.jpg"}, {"id": start + 7, "file_name": "VAL_2.jpg"}]
        captions = [{"id": 10 * start + k, "image_id": start, "caption": text} for k, text in enumerate("ab")]
        write(tmp_path / "coco" / name, json.dumps({"info": {}, "images": images, "annotations": captions}))
    write(tmp_path / "coco" / "instances_val2017.json", json.dumps({"annotations": [{"id": 1, "bbox": []}]}))
    expected = [("d:0", "d:0", "train", "a"), ("d:1", "d:0", "train", "b")]
    expected += [("d:10", "d:1", "val", "a"), ("d:11", "d:1", "val", "b")]
    assert [caption[:4] for caption in read(tmp_path / "coco")] == expected
    assert [caption[:4] for caption in read(tmp_path / "coco" / "captions_val2017.json")] == expected[2:]


# 16

BARS = "image_name| comment_number| comment\n1.jpg| 0| A man .\n1.jpg| 1| A porter , tired .\n2.jpg| 1   At sea .\n"


def test_bars_and_spaces_after_separators(tmp_path: Path) -> None:
    path = write(tmp_path / "results.csv", BARS)
    for params in ({}, {"delimiter": "|"}):
        source = opened(path, **params)
        texts = [(caption.image_id, caption.text) for caption in captions_of(source)]
        assert texts == [("d:1.jpg", "A man ."), ("d:1.jpg", "A porter , tired .")]
        ((reason, (count, first)),) = source.left_out.items()
        assert (reason, count, "results.csv:4" in first) == ("fields do not match the header", 1, True)
    path = write(tmp_path / "header.csv", 'image, caption\na.jpg, "a dog, wet"\nb.jpg, two cats \n')
    assert rows(path) == [("a.jpg#0", "a dog, wet"), ("b.jpg#0", "two cats ")]


# 17, 23

XM3600 = {"image/key": "00ab", "image/locale": "de", "de": {"caption": ["Ein Hund", "Hund"]}, "ar": {"caption": []}}
TALK = {
    "id": "1",
    "image": "1.jpg",
    "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "A view"}],
}


@pytest.mark.parametrize(
    ("body", "params", "expected"),
    [
        ({"a.jpg": ["a dog", "dog"], "b.jpg": ["cat"]}, {}, "a.jpg#0 a dog; a.jpg#1 dog; b.jpg#0 cat"),
        ({"a.jpg": "a dog", "b.jpg": "cats"}, {}, "a.jpg#0 a dog; b.jpg#0 cats"),
        ({"a": {"caption": "a dog", "split": "val"}}, {}, "a#0 a dog"),
        ({"a.jpg": [{"raw": "x"}, {"raw": "y"}], "b.jpg": [{"raw": "z"}]}, {}, "a.jpg#0 x; a.jpg#1 y; b.jpg#0 z"),
        ({"image_urls": ["http://a/1", "http://a/2"], "captions": ["x", "y"]}, {}, "http://a/1#0 x; http://a/2#0 y"),
        ({"image": {"0": "a", "1": "b"}, "caption": {"0": "x", "1": "y"}}, {}, "a#0 x; b#0 y"),
        ({"info": {}, "annotations": [{"image_id": "x1", "raw_caption": "A!", "caption": "a"}]}, {}, "x1#0 a"),
        ({"data": [{"image_id": "0a", "caption_id": 1, "caption_str": "s", "set_name": "val"}]}, {}, "1 s"),
        ({"x": {"y": [{"image": 1, "caption": "a"}]}}, {"records": "x.y"}, "1#0 a"),
        ({"info": {}, "data": {"items": [{"image": 1, "caption": "a"}], "count": 1}}, {}, "1#0 a"),
        ({"train": [{"image": 1, "caption": "a"}], "val": [{"image": 2, "caption": "b"}]}, {}, "1#0 a; 2#0 b"),
        ({"train": {"a.jpg": ["x"]}, "val": {"b.jpg": ["y", "z"]}}, {}, "a.jpg#0 x; b.jpg#0 y; b.jpg#1 z"),
        ({"columns": ["image", "caption"], "index": [0], "data": [["a", "x"]]}, {}, "a#0 x"),  # pandas' orient="split"
        ([["a", "x"], ["b", "y"]], {}, "a#0 x; b#0 y"),
        ([{"image": 7, "caption": "a", "caption_2": "b"}], {}, "7#0 a; 7#1 b"),
        ([{"url": "http://a/x.jpg#1", "caption": "a"}], {}, "http://a/x.jpg#1#0 a"),
        ([XM3600], {"text_column": "de.caption"}, "00ab#0 Ein Hund; 00ab#1 Hund"),
        ([TALK], {"text_column": "conversations[1].value"}, "1.jpg#0 A view"),
        ([{"image": 7, "caption_0": "a", "caption_10": "c", "Caption_2": "b"}], {}, "7#0 a; 7#1 b; 7#2 c"),
        ([{"query_text": "x", "image_ids": [11, 12]}], {}, "11#0 x; 12#0 x"),
        ({"images": [{"file_name": "a.jpg", "title": "x"}]}, {}, "a.jpg#0 x"),
        ({"data": {"images": [{"filename": "a.jpg", "sentences": [{"raw": "x"}]}]}}, {}, "a#0 x"),
        ({"a.jpg": [{"raw": "x"}, {"raw": "y"}], "b.jpg": []}, {}, "a.jpg#0 x; a.jpg#1 y"),
        ({"COCO_1": "a dog", "COCO_2": ["x", "y"]}, {}, "COCO_1#0 a dog; COCO_2#0 x; COCO_2#1 y"),
        # pandas' orient="index", and columns that were written in different orders
        ({"0": {"image_name": "a", "caption": "x"}, "1": {"image_name": "a", "caption": "y"}}, {}, "a#0 x; a#1 y"),
        ({"images": {"1": "a", "2": "b"}, "captions": {"2": "two cats", "1": "a dog"}}, {}, "a#0 a dog; b#0 two cats"),
        ({"image": "a.jpg", "captions": ["x", "y"], "mask": {"0": {"caption": "z"}}}, {}, "a.jpg#0 x; a.jpg#1 y"),
        ([{"image_url": "http://a/1.jpg", "url": "http://a", "caption": "x"}], {}, "http://a/1.jpg#0 x"),
        ([{"image": 7, "title": "t", "caption_1": "a", "caption_2": "b"}], {}, "7#0 a; 7#1 b"),
    ],
)  # fmt: skip
def test_forms_of_json(tmp_path: Path, body: Any, params: dict[str, Any], expected: str) -> None:
    pairs = [tuple(pair.split(" ", 1)) for pair in expected.split("; ")]
    assert rows(write(tmp_path / "a.json", json.dumps(body, indent=1)), **params) == pairs
    if isinstance(body, list) and isinstance(body[0], dict):
        assert rows(write(tmp_path / "b.jsonl", json.dumps(body[0])), **params) == pairs


def test_a_key_of_captions_is_no_image(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "key,video_id,url,sentence\nret0,v1,u,a\nret1,v1,u,b\nret2,v2,u,c\n")
    assert [caption.image_id for caption in read(path)] == ["d:v1", "d:v1", "d:v2"]


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ({"caption": "a dog"}, ["no column of image ids. There is caption"]),
        ({"name": "my set", "license": "CC BY"}, ["no column of captions"]),
        ({"model": "vit", "data": "coco"}, ["no column of captions"]),
        ({"train": "train.csv", "val": "val.csv"}, ["no column of captions"]),
        ({"a dog runs": "a.jpg", "two cats": "b.jpg"}, ["no column of captions"]),
        ({"version": "1.0", "a.jpg": ["x"], "b.jpg": ["y"]}, ["some keys are not images", "version"]),
        ({"info": "my captions", "a.jpg": "x"}, ["some keys are not images", "info"]),
        ({"image": {"1": "a"}, "caption": {"2": "x"}}, ["columns image and caption have different keys"]),
        ({"annotations": [{"image": 1, "caption": "a"}], "splits": {"val": [1]}}, ["'splits' is", "--in-split"]),
        ({"train": [{"image": 1, "caption": "a"}], "qual": [{"image": 2, "caption": "b"}]}, ["'train' 1, 'qual' 1"]),
        ([{"images": ["a", "b"], "captions": ["x", "y"]}], ["2 images and 2 captions"]),
        (
            [{"image": n, "caption": "a"} for n in range(100)] + [{"image": 1, "text": "b"}],
            ["record 100: earlier records do not have the column text"],
        ),
        (
            [{"image": n, "caption": "a"} for n in range(100)] + [{"image": 1, "split": "val"}],
            ["100: earlier records do not have the column split"],
        ),
        ([{"key": 1, "caption": "a", "status": "draft"}], ["status 'draft' is not a status of img2dataset"]),
        ({"columns": ["image", None], "data": [["a", "x"]]}, ["no column of captions"]),
        ({"videos": [{"video_id": [], "split": "val"}], "sentences": [{"video_id": "v0", "text": "a"}]}, ["split ''"]),
    ],
)
def test_json_that_is_not_read_as_something_else(tmp_path: Path, body: Any, parts: list[str]) -> None:
    refused(write(tmp_path / "a.json", json.dumps(body)), "a.json", *parts)


def test_splits_of_a_file_and_of_one_record(tmp_path: Path) -> None:
    records = [{"image": n, "caption": "a dog"} for n in range(2)]
    bodies = [{"split": "val", "data": records}, {"split": "val", "image": ["0", "1"], "caption": ["a", "b"]}]
    bodies.append({"info": {"version": 1}, "val": records, "dev": [{"image": 5, "caption": "c"}]})
    bodies.append({"images": [{"filename": "0.jpg", "split": "val"}, KARPATHY_IMAGE]})
    for body in bodies:
        assert {caption.split for caption in read(write(tmp_path / "a.json", json.dumps(body)))} == {"val"}


KARPATHY_IMAGE = {"filename": "1.jpg", "split": "val", "sentences": [{"raw": "a dog", "sentid": 1}]}


def test_texts_about_the_data_are_not_read(tmp_path: Path) -> None:
    for name, folder in (("captions.txt", "table"), ("1.txt", "texts")):
        body = "image,caption\n1,x\n1,y\n" if folder == "table" else "x\ny\n"
        write(tmp_path / folder / name, body)
        for other in ("README.txt", "LICENSE.txt", "readme_data.txt"):
            write(tmp_path / folder / other, "A data set.\nOf captions.\n")
        assert rows(tmp_path / folder) == [("1#0", "x"), ("1#1", "y")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("val.json", '{"2.jpg": ["b", "c"]}'),
        ("val.json", '[["2.jpg", "b"]]'),
        ("val.json", '{"image": "2.jpg", "caption": "b"}\n{"image": "3.jpg", "caption": "c"}\n'),
        ("val.json", '{"image": "2.jpg", "caption": "两只猫"}'.encode("gb18030")),
        ("val.csv.bz2", b"BZh9"),
        ("val.xlsx", b"PK\3\4"),
        ("val.feather", b"ARROW1"),
        ("2.txt", "two cats\n"),
    ],
)
def test_files_next_to_a_table_are_never_passed_over(tmp_path: Path, name: str, content: str | bytes) -> None:
    write(tmp_path / "train.csv", "image,caption\n1.jpg,a dog\n")
    write(tmp_path / name, content)
    refused(tmp_path, "files of several formats: ", f": {name}", "csv: train.csv", "--format")
    assert rows(tmp_path, format="csv") == [("1.jpg#0", "a dog")]


def test_tables_of_any_ending_and_in_linked_folders_are_read(tmp_path: Path) -> None:
    write(tmp_path / "in" / "train.csv", "image,caption\n1,a\n")
    for name, separator in (("b.psv", "|"), ("c.tab", "\t"), ("d.txt", ";"), ("e.tsv", ",")):
        write(tmp_path / "other" / name, f"image{separator}caption\n{name}{separator}x\n")
    (tmp_path / "in" / "val").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "up").symlink_to(tmp_path / "in")
    images = [("d:1", "train"), ("d:b.psv", "val"), ("d:c.tab", "val"), ("d:d.txt", "val"), ("d:e.tsv", "val")]
    assert sorted(caption[1:3] for caption in read(tmp_path / "in")) == images


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"a.csv": "image,caption\n1,x\n", "b.csv": "image,caption,split\n2,y,val\n"}, ["not have the column split"]),
        ({"a.csv": "image,caption_1,caption_2\n1,x,y\n", "b.csv": "image,caption_1,caption_2,caption_3\n1,x,y,z\n"},
         ["b.csv:2: earlier records do not have the column caption_3"]),
        ({"a.csv": "image,caption\n1,x\n", "b.csv": "2.jpg,b\n3.jpg,c\n"}, ["b.csv:2", "a.csv has it", "2.jpg, b"]),
        ({"meta.json": '{"lr": 1}', "x.json": '[{"image": 1, "caption": "x"}]'}, ["meta.json", "x.json has it"]),
        ({"images.txt": "1.jpg\n2.jpg\n", "captions.txt": "a dog\ncats\n"}, ["text: captions.txt; names: images.txt"]),
        ({"x_caps.txt": "a\nb\n", "captions.csv": "image,caption\n1,a\n"}, ["scan: x_caps.txt"]),
    ],
)  # fmt: skip
def test_files_of_a_folder_have_one_layout(tmp_path: Path, files: dict[str, str], parts: list[str]) -> None:
    for name, content in files.items():
        write(tmp_path / name, content)
    refused(tmp_path, *parts)


def test_shards_whose_members_are_no_captions_of_images(tmp_path: Path) -> None:
    members = [("README.txt", b"a\nb"), ("1.txt", b"a dog\n\ntwo dogs"), ("2.json", b'["x", "y"]')]
    members.append(("3.json", b'{"caption_0": "p", "caption_1": "q"}'))
    source = opened(write(tmp_path / "a.tar", tar_of(*members)))
    assert [caption.text for caption in captions_of(source)] == ["a dog", "two dogs", "x", "y", "p", "q"]
    assert source.left_out == {"text that does not belong to one image": (1, f"{tmp_path}/a.tar: README.txt")}
    refused(
        write(tmp_path / "b.tar", tar_of(("t.txt", b"image,caption\n1,x"))), "text that does not belong to one image"
    )
    scattered = tar_of(("1.jpg", JPG), ("2.jpg", JPG), ("1.txt", b"a"), ("2.txt", b"b"))
    refused(write(tmp_path / "c.tar", scattered), "members of the sample are not adjacent", "tar --sort=name")


def test_files_that_were_joined(tmp_path: Path) -> None:
    table = "\ufeffimage,caption\n1,x\n"
    source = opened(write(tmp_path / "a.csv", table + table.replace("1,x", "2,y")))
    assert [caption.text for caption in captions_of(source)] == ["x", "y"]
    assert source.left_out == {"header in the middle of the file": (1, f"{tmp_path}/a.csv:3")}
    lines = ['\ufeff{"image": 1, "caption": "x"}\n', '\ufeff{"image": 2, "caption": "y"}\n']
    assert rows(write(tmp_path / "a.jsonl", "".join(lines))) == [("1#0", "x"), ("2#0", "y")]


def test_splits_beside_the_captions_of_videos(tmp_path: Path) -> None:
    videos: list[dict[str, Any]] = [{"video_id": "v0", "split": "train"}, {"video_id": "v1", "split": "validate"}]
    sentences = [{"caption": f"a car {n}", "video_id": f"v{n}", "sen_id": n} for n in range(2)]
    path = write(tmp_path / "msrvtt.json", json.dumps({"videos": videos, "sentences": sentences}))
    refused(path, "unknown split 'validate'; there are 'train' 1, 'validate' 1")
    captions = read(path, split_names={"validate": "val"})
    assert [caption[:3] for caption in captions] == [("d:0", "d:v0", "train"), ("d:1", "d:v1", "val")]
    # MSR-VTT numbers its videos as well.
    numbered = [video | {"id": number} for number, video in enumerate(videos)]
    path = write(tmp_path / "msrvtt.json", json.dumps({"videos": numbered, "sentences": sentences}))
    assert read(path, split_names={"validate": "val"}) == captions


def test_two_values_of_one_image_are_not_one(tmp_path: Path) -> None:
    refused(write(tmp_path / "a.json", '{"a.jpg": ["x"], "a.jpg": ["y"]}'), "a.json: not JSON", "duplicate key 'a.jpg'")


def test_caption_ids_that_count_within_an_image(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "image,caption_id,caption\n1.jpg,0,x\n1.jpg,1,y\n2.jpg,0,z\n")
    with pytest.raises(CheckError, match=r"""a\.csv:4: caption id d:0 appears twice .*ingest\.caption_id_column=""'"""):
        Corpus.from_captions(read(path))
    assert [name for name, _ in rows(path, caption_id_column="")] == ["1.jpg#0", "1.jpg#1", "2.jpg#0"]


def test_objects_without_a_caption_say_what_they_have_and_how_to_name_it(tmp_path: Path) -> None:
    path = write(tmp_path / "sharegpt.json", json.dumps([TALK]))
    refused(path, "conversations[].{from, value}", "--text-column 'conversations[].value'")
    path = write(tmp_path / "xm.jsonl", json.dumps(XM3600))
    refused(path, "de.{caption}", "--text-column 'de.caption'")
    path = write(
        tmp_path / "two.json", json.dumps({"a": [{"text": "x", "image": 1}], "b": [{"text": "y", "image": 2}]})
    )
    refused(path, "captions under several keys: a, b", "--set ingest.records=KEY")


# 19, 20


@pytest.mark.parametrize("name", ["captions.txt", "captions.dat", "captions"])
def test_the_content_decides_not_the_ending(tmp_path: Path, name: str) -> None:
    assert rows(write(tmp_path / name, 'image,caption\n1_aa.jpg,"A porter , tired ."\n')) == [
        ("1_aa.jpg#0", "A porter , tired .")
    ]
    lines = '{"image": "a", "caption": "x"}\n{"image": "b", "caption": "y"}\n'
    assert rows(write(tmp_path / name, lines)) == [("a#0", "x"), ("b#0", "y")]
    pq.write_table(pa.table({"image": ["a"], "caption": ["x"]}), tmp_path / name)
    assert rows(tmp_path / name) == [("a#0", "x")]


def test_a_folder_of_files_with_other_endings(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / "txt" / f"{name}.txt", f"image,caption\n{name}.jpg,a dog\n")
        write(tmp_path / "lines" / f"{name}.json", f'{{"image": "{name}.jpg", "caption": "a"}}\n' + '{"image": 2}\n')
    for folder in ("txt", "lines"):
        assert [caption[1:3] for caption in read(tmp_path / folder)] == [
            ("d:test.jpg", "test"),
            ("d:train.jpg", "train"),
        ]
    write(tmp_path / "birds" / "001.Tern" / "a_1.txt", "a white bird\n\na tern on a rock\n")
    write(tmp_path / "birds" / "002.Crow" / "b_1.txt", "a black bird")
    expected = [("a_1#0", "a white bird"), ("a_1#1", "a tern on a rock"), ("b_1#0", "a black bird")]
    assert rows(tmp_path / "birds") == expected


def test_captions_of_two_formats_in_one_folder(tmp_path: Path) -> None:
    """Files that describe others are not read, and captions are never passed over."""
    folder = tmp_path / "d"
    write(folder / "a.csv", "image,caption\n1.jpg,a dog\n")
    write(folder / "info.json", '{"description": "Dogs", "features": [{"name": "caption"}]}')
    write(folder / "README.txt", "Captions of dogs.\n")
    assert rows(folder) == [("1.jpg#0", "a dog")]
    write(folder / "b.json", '[{"image": "2.jpg", "caption": "a cat"}]')
    refused(folder, "files of several formats: csv, json", "--format")


def test_files_that_excel_or_a_packer_wrote(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "a.csv", "sep=;\nimage;caption\n1.jpg;a dog, a cat\n")) == [
        ("1.jpg#0", "a dog, a cat")
    ]
    for name, head in (
        ("a.xlsx", b"PK\3\4"),
        ("a.csv.xz", b"\xfd7zXZ\0"),
        ("a.csv.bz2", b"BZh9"),
        ("a.zip", b"PK\3\4"),
    ):
        refused(write(tmp_path / name, head + bytes(99)), name, "Unpack it")
    refused(write(tmp_path / "b.csv", "image,caption\n1.jpg,a\n".encode("utf-16-le")), "utf-16-le", "ingest.encoding")


def test_a_header_that_the_columns_replace(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "image,caption\n1.jpg,a dog\n")
    refused(path, "a.csv:1: the first line is a header", "Remove --columns", columns=("image", "caption"))


def test_names_in_any_case_and_whole_numbers_as_floats(tmp_path: Path) -> None:
    columns = {"SAMPLE_ID": [1.0, 2.0], " URL": ["http://a/1", "http://a/2"], "TEXT": ["a dog", "cats"]}
    pq.write_table(pa.table(columns), tmp_path / "laion.parquet")
    assert rows(tmp_path / "laion.parquet") == [("http://a/1#0", "a dog"), ("http://a/2#0", "cats")]
    assert [name for name, _ in rows(tmp_path / "laion.parquet", image_id_column="sample_id")] == ["1#0", "2#0"]
    assert rows(write(tmp_path / "a.csv", "Image ID,Caption\n7.0,a dog\n")) == [("7#0", "a dog")]


# Encodings


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "image,caption\n1,ein Café\n"),
        ("a.jsonl", '{"image": 1, "caption": "ein Café"}\n'),
        ("a.json", '[{"image": 1, "caption": "ein Café"}]'),
        ("1.txt", "ein Café\n"),
        ("a.tar", "ein Café\n"),
    ],
)
def test_encodings_of_every_container(tmp_path: Path, name: str, content: str, encoding: str) -> None:
    raw = content.encode(encoding)
    write(tmp_path / name, tar_of(("1.txt", raw)) if name == "a.tar" else raw)
    assert rows(tmp_path) == [("1#0", "ein Café")]
    other = content.encode("latin-1")
    write(tmp_path / name, tar_of(("1.txt", other)) if name == "a.tar" else other)
    refused(tmp_path, "not UTF-8", "ingest.encoding", name)
    assert rows(tmp_path, encoding="latin-1") == [("1#0", "ein Café")]


def test_advice_names_an_option_that_the_verb_has_or_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "talk.json", json.dumps([TALK]))
    write(tmp_path / "none.csv", "caption,alt\na dog,b\n")
    code, output = invoke("ingest", "--dataset", "d", "--path", "talk.json")
    assert (code, "--text-column 'conversations[].value'" in output) == (4, True), output
    code, output = invoke("run", "talk.json")
    assert (code, "--set 'ingest.text_column=conversations[].value'" in output) == (4, True), output
    code, output = invoke("run", "none.csv")
    assert "--set 'ingest.image_id_column=NAME'" in output, output
    assert "pass --set ingest.image_per_row=true." in output, output
    assert "--set 'ingest.columns=[caption,url]'" in output, output
    # The settings that are named work.
    settings = ("--set", "ingest.text_column=conversations[1].value", "--set", "ingest.lists=false")
    code, output = invoke("ingest", "--dataset", "d", "--path", "talk.json", *settings)
    assert code == 0, output


def test_what_was_left_out_is_in_the_summary_the_manifest_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", "image,caption\n1,a dog\n2,\n3,cats\n4,x,y\n")
    code, output = invoke("ingest", "--dataset", "d", "--path", "a.csv")
    assert code == 0, output
    assert re.search(r"left out +1 empty caption \(first: a.csv:3\)", output), output
    assert re.search(r"left out +1 fields do not match the header \(first: a.csv:5: .*found 3 fields\)", output), output
    left_out = read_manifest(tmp_path / "labels/d/corpus", "corpus").metadata["report"]["left_out"]
    assert left_out["empty caption"] == {"count": 1, "first": "a.csv:3"}
    code, output = invoke("ingest", "--dataset", "d", "--path", "a.csv", "--json")
    assert '"left_out"' in output


@pytest.mark.parametrize(
    ("duplicates", "said", "ids"),
    [
        ("keep", "kept, .*ingest.duplicates=drop", ["d:1#0", "d:1#1", "d:1#2"]),
        ("drop", "left out", ["d:1#0", "d:1#2"]),
    ],
)
def test_repeated_rows_are_said_and_can_be_dropped(
    duplicates: str, said: str, ids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", "image,caption\n1,a dog\n1,a dog\n1,A dog\n")
    command = ("ingest", "--dataset", "d", "--path", "a.csv", "--set", f"ingest.duplicates={duplicates}")
    code, output = invoke(*command)
    assert code == 0, output
    assert re.search(rf"repeated +1 caption.* \(first: a.csv:3\); {said}", output), output
    report = read_manifest(tmp_path / "labels/d/corpus", "corpus").metadata["report"]
    assert report["repeated"] == {"count": 1, "first": "a.csv:3", "duplicates": duplicates}
    assert Corpus.open(tmp_path / "labels/d/corpus").caption_ids == ids
    assert '"repeated"' in invoke(*command, "--json")[1]


# Bounded memory


def test_large_records_are_refused_by_file_and_record(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"image": [str(n) for n in range(5000)], "caption": texts}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "a.parquet: row 0: caption of 1,000,000 characters")
    # Lists that stand for 8 GB of text, each short enough for a caption.
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 40_000, pa.int32()), pa.array(["x" * 200_000]))
    for size in (5, 40_000):
        lists = pa.ListArray.from_arrays(pa.array(range(0, 40_001, size), pa.int32()), texts)
        images = [str(n) for n in range(len(lists))]
        pq.write_table(pa.table({"image": images, "caption": lists}), tmp_path / "b.parquet")
        source = open_input(IngestParams(dataset="d", path=tmp_path / "b.parquet"), Runtime(memory=256 << 20))
        with pytest.raises(CheckError, match=r"b\.parquet: row \d+: .* do not fit into memory"):
            for _ in source.read():
                pass
    path = write(tmp_path / "a.csv", "image,caption\n1," + "x" * (20 << 20))
    refused(path, "a.csv:2: a line of more than 16,777,216 characters")


def test_a_long_header_of_a_tar_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", tar_of(("1.txt", b"a"), ("x" * 100_000 + ".txt", b"b")))
    with pytest.raises(CheckError, match=re.escape("a.tar: not a complete tar file: header of 100,017 bytes")):
        read(path)
