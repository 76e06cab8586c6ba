"""Contract: a text is parsed once, and a kept parse equals a fresh one. Failures are not kept. Processes may share a
cache and be killed at any instant. A damaged entry is parsed again, and a damaged file is refused.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.relabel.sources.spice.stand_in import RecordedParser, words_parser

from relabel.core.errors import CheckError
from relabel.core.runtime import SILENT
from relabel.sources.spice.parse_cache import CachedParser

ROOT = Path(__file__).parents[4]
TEXTS = ["a dog", "two cats", "", "café 图 \ud800", 'a "quoted" \\ text', "a 'b'); DROP TABLE parses", "odd", "a dog"]


def cached(path: Path, parser: RecordedParser) -> CachedParser:
    return CachedParser(parser, path, SILENT)  # type: ignore[arg-type]


def parsed(texts: list[str]) -> list[Any]:
    return words_parser().parse(texts)


def test_a_text_is_parsed_once_and_a_kept_parse_equals_a_fresh_one(tmp_path: Path) -> None:
    path, first, second, done = tmp_path / "data/spice/kept", words_parser(["odd"]), words_parser(), list[int]()
    fresh = cached(path, first).parse(TEXTS, done.append)
    assert fresh == words_parser(["odd"]).parse(TEXTS)
    assert first.requests == Counter(set(TEXTS))
    assert sum(done) == len(TEXTS)
    done.clear()
    again = cached(path, second).parse([*TEXTS, "new"], done.append)
    assert again == parsed([*TEXTS, "new"])
    assert second.requests == Counter(["odd", "new"])
    assert sum(done) == len(TEXTS) + 1


WRITER = """
import random, sys
from pathlib import Path
from tests.relabel.sources.spice.test_parse_cache import cached, words_parser
parser, numbers = cached(Path(sys.argv[1]), words_parser()), random.Random(sys.argv[2])
while True:
    parser.parse([f"text {numbers.randrange(4000)}" for _ in range(9)])
    print("stored", flush=True)
"""


@pytest.mark.slow
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
    parser, texts = words_parser(), [f"text {i}" for i in range(4000)]
    assert cached(path, parser).parse(texts) == parsed(texts)
    assert 0 < parser.requests.total() < 4000


def test_a_changed_byte_never_changes_a_parse(tmp_path: Path) -> None:
    path, chance, outcomes = tmp_path / "kept", random.Random(5), Counter[str]()
    texts = [f"text {i}" for i in range(60)]
    cached(path, words_parser()).parse(texts)
    whole = path.read_bytes()
    for _ in range(150):
        damaged, parser = bytearray(whole), words_parser()
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            assert cached(path, parser).parse(texts) == parsed(texts)
            outcomes["parsed again" if parser.requests else "kept"] += 1
        except CheckError:
            outcomes["refused"] += 1
    assert set(outcomes) == {"kept", "parsed again", "refused"}
