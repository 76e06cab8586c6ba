"""Contract: files are strict UTF-8; anything else is refused with the file, the line and the
reason.

A folder counts as missing, and so does a pipe, which is not opened.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from pathlib import Path

import pytest

from relabel.core.errors import CheckError, MissingError
from relabel.core.parsing import (
    check_regular,
    identifier,
    namespaced,
    read_json,
    read_lines,
    read_text,
    split_name,
)

TOO_DEEP = "Stack overflow" if sys.version_info >= (3, 14) else "recursion"
"""Python's word for JSON that is nested too deeply."""


def test_a_readable_file_is_returned(tmp_path: Path) -> None:
    path, link = tmp_path / "captions.csv", tmp_path / "link"
    path.write_text("a dog")
    link.symlink_to(path)
    assert check_regular(path) == path
    assert check_regular(link) == link


def test_a_missing_file_has_the_message_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(MissingError, match="no list of words") as caught:
        check_regular(path, "no list of words", "Write one.")
    assert caught.value.where == str(path)
    assert caught.value.todo == "Write one."


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="found a folder"):
        check_regular(tmp_path)


@pytest.mark.timeout(10)
def test_a_pipe_is_rejected_without_opening_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    with pytest.raises(MissingError, match="not a regular file"):
        check_regular(tmp_path / "pipe")


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\r\ntwo\u2028still two\x0bstill\x85\r\r\n\nfour ".encode())
    assert list(read_lines(path)) == [
        (f"{path}:1", "one"),
        (f"{path}:2", "two\u2028still two\x0bstill\x85\r"),
        (f"{path}:3", ""),
        (f"{path}:4", "four "),
    ]


@pytest.mark.parametrize(("raw", "lines"), [(b"", []), (b"\n", [""]), (b"a\n", ["a"]), (b"a\n\n", ["a", ""])])
def test_last_line_feed_starts_no_line(tmp_path: Path, raw: bytes, lines: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    assert [line for _, line in read_lines(path)] == lines


def test_gzip_and_byte_order_mark_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfhello\xef\xbb\xbf"))
    assert read_text(path) == "hello\ufeff"


@pytest.mark.parametrize("cut", [5, 25, -1])
def test_broken_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"hello " * 50)[:cut])
    with pytest.raises(CheckError, match=f"^{re.escape(str(path))}: not complete gzip"):
        read_text(path)
    path.write_bytes(b"hello")
    with pytest.raises(CheckError, match="not complete gzip"):
        read_text(path)


def test_missing_file_is_missing(tmp_path: Path) -> None:
    for path in (tmp_path / "a.json", tmp_path):
        with pytest.raises(MissingError, match=re.escape(str(path))) as caught:
            read_json(path)
        assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("raw", "line"),
    [(b"a\nb\n\xffc", 3), (b"caf\xe9", 1), (b"a\n\xed\xa0\xbd", 2), (b"a\n\n\xf0\x9f\x90", 3), (b"\xc0\x80", 1)],
    ids=["stray byte", "latin-1", "surrogate", "cut emoji", "overlong nul"],
)
def test_invalid_utf8_is_refused_with_its_line(tmp_path: Path, raw: bytes, line: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    with pytest.raises(CheckError, match=rf"^{re.escape(str(path))}:{line}: not UTF-8: "):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b" 2}', r": not JSON: Expecting ':' delimiter: line 2 column 6"),
        ("", r": not JSON: Expecting value"),
        ('{"a": 1} {"b"', r": not JSON: Extra data"),
        ('{"a": "x\ny"}', r": not JSON: Invalid control character"),
        ("[" * 200_000, r": not JSON: .*" + TOO_DEEP),
        ("1" * 5000, r": not JSON: .*digits"),
    ],
)
def test_malformed_json_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(CheckError, match=re.escape(str(path)) + message):
        read_json(path)


def test_ids_are_strings_or_whole_numbers() -> None:
    assert [identifier(v, "id", "f:1") for v in ("a", 7, None)] == ["a", "7", ""]
    for value in (1.5, True, []):
        with pytest.raises(CheckError, match="f:1: 'id': expected a string or a whole number"):
            identifier(value, "id", "f:1")


def test_namespace_is_prepended_once() -> None:
    assert [namespaced("coco", v) for v in ("7", "coco:7", "cocoa:7", "")] == ["coco:7", "coco:7", "coco:cocoa:7", ""]


def test_names_of_splits() -> None:
    assert [split_name(s) for s in ("restval", "dev", "testall", "extra")] == ["train", "val", "test", "extra"]
