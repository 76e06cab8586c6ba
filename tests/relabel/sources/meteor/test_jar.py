"""Contract: each question is sent once, and answers belong to their questions. A Java process that dies, hangs or
prints garbage ends in an error that names the pair.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.meteor.fixtures import opened

from relabel.core.errors import PartialError
from relabel.corpus import References
from relabel.sources.meteor import MeteorRelevance, jar

FAKE = """
if "-stdio" not in sys.argv:  # the tokenizer, the normaliser
    {normaliser}
    sys.exit(sys.stdout.write(sys.stdin.read().lower()) and None)
open({log!r}, "a").write(f"start {{os.getpid()}}\\n")
{start}
for n, line in enumerate(sys.stdin):
    line = line.rstrip()
    open({log!r}, "a").write(f"{{line}}\\n")
    {trouble}
    if line == "EVAL":
        print("Error: specify Meteor stats")
    elif line.startswith("SCORE ||| "):
        print(" ".join([f"{{len(line)}}.0"] * 23))
    else:
        print(float(line.split()[2]) / 1000, float(line.split()[2]) / 1000, sep="\\n")
    sys.stdout.flush()
"""
"""Scores a pair by the length of its line."""


def words(texts: list[str]) -> list[str]:
    return [text.strip(".") for text in texts]


class Fake:
    def __init__(self, install: Callable[[str], Path], folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.install, self.folder, self.log = install, folder, folder / "log"
        table = folder / "table.gz"
        with gzip.open(table, "wb") as file:
            file.write(b"0.5\na dog\na hound\n")
        patch.setattr("relabel.sources.meteor.paraphrase_table", lambda language: table)

    def opened(
        self, images: list[list[str]], trouble: str = "pass", start: str = "", normaliser: str = "", **params: object
    ) -> MeteorRelevance:
        self.install(FAKE.format(log=str(self.log), trouble=trouble, start=start, normaliser=normaliser))
        return opened(images, words, self.folder / "meteor", **{"processes": 1, "silence": 20.0} | params)

    def lines(self, start: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith(start)]

    def all_gone(self) -> bool:
        pids = [int(line.split()[1]) for line in self.lines("start")]
        for _ in range(100):
            if not any(Path(f"/proc/{pid}/stat").exists() for pid in pids):
                return True
            time.sleep(0.05)
        return False


@pytest.fixture
def fake(fake_java: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(fake_java, tmp_path, monkeypatch)


def many(count: int) -> list[list[str]]:
    return [[f"caption {i} {'x' * (1 + i % 37)}"] for i in range(count)]


def against_next(relevance: MeteorRelevance) -> tuple[References, np.ndarray, list[float]]:
    """Return every caption paired with the next, and the scores that FAKE returns."""
    rows = np.arange(len(relevance.corpus) - 1, dtype=np.int32)
    texts = relevance.corpus.texts
    lines = [f"SCORE ||| {a} ||| {b}" for a, b in pairwise(texts)]
    return References.single(rows), rows + 1, [len(line) / 1000 for line in lines]


def test_answers_belong_to_their_questions(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "LINES_PER_PROCESS", 100)
    relevance = fake.opened(many(1000), "time.sleep(0.001 * (os.getpid() % 2))", processes=3)
    references, captions, expected = against_next(relevance)
    for _ in range(2):
        np.testing.assert_array_equal(relevance.pairs(references, captions), expected)
    assert len(fake.lines("start")) == 3
    relevance.close()
    assert fake.all_gone()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("if 'poison' in line: sys.exit('java.lang.OutOfMemoryError')", "exit code 1 .*OutOfMemoryError"),
        ("if 'poison' in line: time.sleep(600)", "said nothing for 1.5 s"),
        ("if 'poison' in line: print('garbage', flush=True); continue", "'garbage', which is no answer"),
    ],
)
def test_the_fatal_pair_is_named(
    fake: Fake, trouble: str, reason: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jar, "LINES_PER_PROCESS", 20)
    images = [*many(30), ["a poison pill", "another pill"], *many(30)]
    silent = "sleep" in trouble
    relevance = fake.opened(images, trouble, processes=processes, silence=1.5 if silent else 60.0)
    references = relevance.corpus.references(range(60))
    captions = np.roll(np.arange(60, dtype=np.int32), -1)
    captions[[29, 30]] = 5  # the fatal texts are references only, of one question
    with pytest.raises(PartialError, match=reason) as raised:
        relevance.pairs(references, captions)
    assert raised.value.exit_code == 5
    assert raised.value.where == "references c:30-0, c:30-1; caption c:5-0"
    assert "\n" not in str(raised.value)
    assert fake.all_gone()
    if not silent:
        with pytest.raises(PartialError, match=r"reference 'a caption'; caption c:30-0"):
            relevance.query("a caption", np.array([1, 30], np.int32))
    assert relevance.pairs(references.take(np.array([0])), captions[:1]) > 0  # other pairs still have scores
    relevance.close()
