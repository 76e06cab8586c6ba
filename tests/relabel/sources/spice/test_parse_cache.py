"""Contract: a text is parsed once per version of the parser, and a kept parse equals a fresh one.

Failures are not kept. Processes may share a cache and be killed at any instant. A damaged entry is parsed again; a
damaged file or one of somebody else is refused and left as it is; a file that cannot be used costs time only.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from relabel.core.errors import CheckError
from relabel.core.runtime import SILENT
from relabel.sources.spice import parse_cache
from relabel.sources.spice.parse_cache import CachedParser
from relabel.sources.spice.parser import ParseFailure, SpiceParser

ROOT = Path(__file__).parents[4]
TEXTS = ["a dog", "two cats", "", "café 图 \ud800", 'a "quoted" \\ text', "a 'b'); DROP TABLE parses", "odd", "a dog"]


class Parser:
    """Parser that returns words as tuples, and counts the texts that it is given."""

    def __init__(self, version: str = "1", bad: Sequence[str] = ()) -> None:
        self.requests: Counter[str] = Counter()
        self.number, self.bad = version, bad

    def version(self) -> str:
        return self.number

    def parse(self, texts: list[str], advance: Callable[[int], None]) -> list[Any]:
        self.requests.update(texts)
        advance(len(texts))
        return [ParseFailure("odd") if text in self.bad else tuples(text) for text in texts]

    def close(self) -> None:
        pass


class Notes:
    """Progress that collects notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


def tuples(text: str) -> list[list[str]]:
    return [[word, text[::-1], "near"] for word in text.split()]


def cached(path: Path, parser: Parser, progress: Any = SILENT) -> CachedParser:
    return CachedParser(parser, path, progress)  # type: ignore[arg-type]


def test_a_text_is_parsed_once_and_a_kept_parse_equals_a_fresh_one(tmp_path: Path) -> None:
    path, first, second, done = tmp_path / "data/spice/kept", Parser(bad=["odd"]), Parser(), list[int]()
    fresh = cached(path, first).parse(TEXTS, done.append)
    assert fresh == [ParseFailure("odd") if text == "odd" else tuples(text) for text in TEXTS]
    assert first.requests == Counter(set(TEXTS))
    assert sum(done) == len(TEXTS)
    done.clear()
    again = cached(path, second).parse([*TEXTS, "new"], done.append)
    assert again == [tuples(text) for text in [*TEXTS, "new"]]
    assert second.requests == Counter(["odd", "new"])
    assert sum(done) == len(TEXTS) + 1


def test_another_version_of_the_parser_parses_again(tmp_path: Path) -> None:
    cached(tmp_path / "kept", Parser()).parse(TEXTS)
    other = Parser("2")
    cached(tmp_path / "kept", other).parse(TEXTS)
    assert set(other.requests) == set(TEXTS)


def test_the_version_is_that_of_the_jars_and_of_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars = {"spice": "1", "corenlp": "2"}
    monkeypatch.setattr("relabel.sources.spice.parser.parser_files", lambda: jars)
    parser = SpiceParser(list, 1.0)
    versions = [parser.version(), parser.version()]
    jars["corenlp"] = "3"
    versions.append(parser.version())
    (tmp_path / "worker.py").write_text("pass")
    monkeypatch.setattr("relabel.sources.spice.worker.__file__", str(tmp_path / "worker.py"))
    versions.append(parser.version())
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


WRITER = """
import random, sys
from pathlib import Path
from tests.relabel.sources.spice.test_parse_cache import Parser, cached
parser, numbers = cached(Path(sys.argv[1]), Parser()), random.Random(sys.argv[2])
while True:
    parser.parse([f"text {numbers.randrange(4000)}" for _ in range(9)])
    print("stored", flush=True)
"""


def test_processes_share_a_cache_and_may_be_killed(tmp_path: Path) -> None:
    path, chance = tmp_path / "kept", random.Random(3)
    for turn in range(2):
        commands = [[sys.executable, "-c", WRITER, str(path), f"{turn} {i}"] for i in range(2)]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for command in commands]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"stored\n"
        time.sleep(chance.uniform(0.02, 0.4))
        for writer in writers:
            assert writer.poll() is None
            writer.kill()
            writer.communicate()
    parser, texts = Parser(), [f"text {i}" for i in range(4000)]
    assert cached(path, parser).parse(texts) == [tuples(text) for text in texts]
    assert 0 < parser.requests.total() < 4000


def test_a_changed_byte_never_changes_a_parse(tmp_path: Path) -> None:
    path, chance, outcomes = tmp_path / "kept", random.Random(5), Counter[str]()
    texts = [f"text {i}" for i in range(60)]
    cached(path, Parser()).parse(texts)
    whole = path.read_bytes()
    for _ in range(150):
        damaged, parser = bytearray(whole), Parser()
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            assert cached(path, parser).parse(texts) == [tuples(text) for text in texts]
            outcomes["parsed again" if parser.requests else "kept"] += 1
        except CheckError:
            outcomes["refused"] += 1
    assert set(outcomes) == {"kept", "parsed again", "refused"}


@pytest.mark.parametrize("content", ["CREATE TABLE mine (x)", "CREATE TABLE parses (key, value)", None])
def test_the_file_of_somebody_else_is_refused_and_kept(tmp_path: Path, content: str | None) -> None:
    path, parser = tmp_path / "kept", Parser()
    path.write_bytes(b"my notes" * 999)
    if content is not None:
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute(content)
    before = path.read_bytes()
    with pytest.raises(CheckError, match=r"kept: not a cache of SPICE's parses"):
        cached(path, parser).parse(TEXTS)
    assert path.read_bytes() == before
    assert not parser.requests


def test_a_file_that_cannot_be_used_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_cache, "_PATIENCE", 0.01)
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    locked = sqlite3.connect(tmp_path / "locked")
    locked.execute("BEGIN EXCLUSIVE")
    for path in (tmp_path / "file/kept", tmp_path / "folder", tmp_path / "locked"):
        notes, parser = Notes(), Parser()
        unkept = cached(path, parser, notes)
        for _ in range(2):
            assert unkept.parse(TEXTS) == [tuples(text) for text in TEXTS]
        assert set(parser.requests.values()) == {2}
        assert len(notes.lines) == 1
        assert str(path) in notes.lines[0]
