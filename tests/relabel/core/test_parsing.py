"""Contract: text files are strict UTF-8, plain or gzip; a line ends at LF or CR LF, and bytes that are no text are
refused with their line.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from relabel.core.errors import CheckError
from relabel.core.parsing import (
    read_lines,
    read_text,
)


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
