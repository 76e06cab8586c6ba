"""Contract: text files are strict UTF-8, plain or gzip; a line ends at LF or CR LF, and bytes that are no text are
refused with their line.

Contract: parameter models reject unknown fields, true and false as numbers, and numbers that are not finite.
The description of an error names the field, the reason and a shortened value.

A key of YAML that is no text or appears twice is a UsageError that names line and column. A whole number is
decimal.

Contract: a name that becomes a folder is a single part of a path; every function that takes a name refuses
others.

Contract: an amount of memory is parsed with its unit, and anything else is refused with an example.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from relabel.config import Config
from relabel.core.errors import CheckError, UsageError
from relabel.core.parameters import Parameters, Seed, check_name, describe, parse_yaml
from relabel.core.parsing import read_lines, read_text
from relabel.core.runtime import Runtime, parse_size
from relabel.corpus.params import IngestParams
from relabel.stages import Session


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\r\ntwo\u2028still two\x0bstill\x85\r\r\n\nfour ".encode())
    lines = ["one", "two\u2028still two\x0bstill\x85\r", "", "four "]
    assert list(read_lines(path)) == [(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]


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


class Params(Parameters):
    k: int = 10
    rate: float | None = None
    seed: Seed = 0


@pytest.mark.parametrize(
    ("values", "name", "reason"),
    [
        ({"n": 1}, "n", "no such parameter"),
        ({"k": True}, "k", "not valid here"),
        ({"k": 1.5}, "k", "valid integer"),
        ({"rate": float("nan")}, "rate", "finite"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], name: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate(values)
    assert re.match(f"{name}: .*{reason}", describe(caught.value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1, column 5"),
        ("a: 1\nb: 2\na: 3", "key 'a' appears twice.*line 3, column 1"),
        ("a: {b: 1, b: 2}", "key 'b' appears twice.*line 1, column 11"),
        ("a: x\n1: x", "a key that is not text; quote it.*line 2, column 1"),
        ("no: x", "not text"),
        ("a: 1:30", "1:30"),
        ("a: 0x10", "0x10"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, "--set a")
    assert re.search(message, str(caught.value), re.DOTALL)


BAD = ["", ".", "..", "../lookup", "/tmp/d", "a/b", "a\\b", ".hidden", "-rf", "+x", "x" * 101, "a b", "ä", "a\n", "a\0"]


@pytest.mark.parametrize("name", BAD)
def test_any_other_name_is_refused_and_leads_out_of_no_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name a label") as error:
        check_name("label", name)
    assert error.value.exit_code == 2
    assert len(str(error.value)) < 400
    session = Session(Config(ingest=IngestParams(dataset="mine")), Runtime(), tmp_path)
    assert session.folder("encodings", "test") == tmp_path / "mine" / "encodings" / "test"
    for names in ((name,), ("encodings", name), ("encodings", "test", name)):
        with pytest.raises(UsageError):
            session.folder(*names)


def test_amounts_of_memory() -> None:
    amounts = {"512MiB": 512 << 20, "4GiB": 4 << 30, "4G": 4 << 30, "4GB": 4_000_000_000, "1TiB": 1 << 40}
    amounts |= {"1000000": 1_000_000, "1.5 gib": 3 << 29, " 300000 KiB ": 300_000 << 10}
    assert {text: parse_size(text) for text in amounts} == amounts


@pytest.mark.parametrize("text", ["", "GiB", "4 gigs", "-4GiB", "4GiBs", "inf", "nan", "1e9", "4,5GiB", "٤GiB"])
def test_invalid_amounts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="4GiB or 512MiB"):
        parse_size(text)
