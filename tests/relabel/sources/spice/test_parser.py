"""Contract: captions are returned in order even if processes die. A process that ends is restarted and loses no
caption. A caption that ends its process twice is reported with the reason. Too small a heap is reported in one line.

Most tests use a stand-in program that dies on request; the real parser runs if CoreNLP is present.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relabel.core.errors import CheckError, MissingError
from relabel.core.java import JavaError, find_java
from relabel.core.runtime import Runtime
from relabel.sources.spice.encode import collapsed
from relabel.sources.spice.parser import PROBED, ParseFailure, SpiceParser, class_path, worker_command

pytestmark = pytest.mark.skipif(os.name == "nt", reason="process groups")

Fake = Callable[..., SpiceParser]

PROGRAM = """
import json, os, sys, time
starts = sys.argv[1]
count = len(open(starts).read()) if os.path.exists(starts) else 0
open(starts, "a").write("x")
def say(answer): print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)
{before}
for line in sys.stdin:
    text = json.loads(line)
    if text == "A man rides a horse.":
        say({probed})
        continue
    {during}
    say([[word] for word in text.split()])
"""


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    def make(during: str = "pass", before: str = "", probed: object = PROBED, silence: float = 30.0) -> SpiceParser:
        code = PROGRAM.format(before=before, probed=probed, during=textwrap.indent(during, "    ").strip())
        return SpiceParser(lambda: [sys.executable, "-c", code, str(tmp_path / "starts")], silence, start=30.0)

    return make


def starts(tmp_path: Path) -> int:
    return len((tmp_path / "starts").read_text())


TEXTS = [f"caption number {i}" for i in range(300)]
PARSED = [[[word] for word in text.split()] for text in TEXTS]


def test_answers_are_in_order_and_empty_texts_are_not_sent(fake: Fake, tmp_path: Path) -> None:
    progress: list[int] = []
    parser = fake("assert text")
    assert parser.parse(["", *TEXTS, ""], progress.append) == [[], *PARSED, []]
    assert sum(progress) == len(TEXTS) + 2
    assert parser.parse(TEXTS[:2]) == PARSED[:2]
    assert starts(tmp_path) == 1


@pytest.mark.parametrize("end", ["os._exit(9)", "os.kill(os.getpid(), 9)", "say('so what')", "time.sleep(99)"])
def test_a_process_that_ends_once_loses_nothing(fake: Fake, tmp_path: Path, end: str) -> None:
    parser = fake(f"if text.endswith(' 123') and not count: {end}", silence=1.0 if "sleep" in end else 30.0)
    assert parser.parse(TEXTS) == PARSED
    assert starts(tmp_path) == 2


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os._exit(9)", "exit code 9"),
        ("print('core dumped', file=sys.stderr); os._exit(6)", "core dumped"),
        ("say({'memory': 'a sentence of 900 tokens'})", "the heap is too small: a sentence of 900 tokens"),
        ("time.sleep(99)", "timed out after 1 s"),
        ("say('[1')", "invalid answer"),
    ],
)
def test_the_caption_that_ends_every_process_is_named_and_the_rest_parsed(
    fake: Fake, tmp_path: Path, end: str, reason: str
) -> None:
    parser = fake(f"if text[-3:] in (' 77', ' 78'): {end}", silence=1.0 if "sleep" in end else 30.0)
    parses = parser.parse(TEXTS)
    for i, each in enumerate(parses):
        if i in (77, 78):
            assert isinstance(each, ParseFailure)
            assert reason in each.reason
        else:
            assert each == PARSED[i]
    assert starts(tmp_path) == 5  # the first start, and two for each of the two captions


# The real parser


@pytest.fixture(scope="module")
def real() -> Callable[[str], SpiceParser]:
    pytest.importorskip("jpype")
    data = Runtime().data
    try:
        find_java()
        class_path(data)
    except (MissingError, CheckError) as error:
        pytest.skip(f"CoreNLP is not on this machine: {error}")
    return lambda heap: SpiceParser(lambda: worker_command(data, heap), 120.0)


@pytest.mark.java
def test_the_real_parser_returns_the_published_tuples_and_survives_a_kill(
    real: Callable[[str], SpiceParser], mirror: Path
) -> None:
    import pyarrow.parquet as pq

    with gzip.open(mirror / "coco/dataset_coco.json.gz") as file:
        sentences = [each for image in json.load(file)["images"] for each in image["sentences"]]
    written = {each["sentid"]: each["raw"] for each in sentences}
    table = pq.read_table(mirror / "spice/coco_test_tuples.parquet").slice(100, 40)
    texts = [collapsed(written[i]) for i in table["caption_id"].to_pylist()]
    parser, done = real("700M"), 0

    def kill(more: int) -> None:
        nonlocal done
        done += more
        if done == 20:
            assert parser._process is not None
            os.kill(parser._process._process.pid, signal.SIGKILL)
            time.sleep(0.2)

    try:
        assert parser.parse(texts, kill) == table["tuples_raw"].to_pylist()
    finally:
        parser.close()


@pytest.mark.java
@pytest.mark.slow
def test_the_real_parser_accepts_any_text_and_reports_a_small_heap(real: Callable[[str], SpiceParser]) -> None:
    odd = ["😀 \ud83d", "a\x00b\u2028c", "...", "!", "Two sentences. The dog runs.", "\\ \" ' ` ||| <b>"]
    parser = real("300M")
    try:
        parses = parser.parse([*odd, "a dog and " * 120 + "a cat", "A dog runs."])
    finally:
        parser.close()
    assert [each for each in parses[: len(odd)] if isinstance(each, ParseFailure)] == []
    assert parses[-1] == [["dog", "run"], ["dog"]]
    assert isinstance(parses[-2], ParseFailure)
    assert "the heap is too small" in parses[-2].reason
    with pytest.raises(JavaError, match=r"heap.*A heap of 2G is enough") as caught:
        real("60M").parse(["A dog runs."])
    assert "\n" not in str(caught.value)
