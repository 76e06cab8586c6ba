"""Contract: PTB tokens equal pycocoevalcap's and depend on the caption only; a failing tokenizer names the caption."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from relabel.core.errors import PartialError
from relabel.core.java import find_java
from relabel.corpus import tokenizers
from relabel.corpus.tokenizers import PUNCTUATION, ptb_filter, tokenize

ODD = {
    "A dog 😀 runs": "a dog runs",
    "كلب أبيض يركض": "كلب أبيض يركض",
    "כלב לבן, רץ!": "כלב לבן רץ",
    "A dog\x00runs": "a dog runs",
    "one\u2028two\u2029three\x85four\x0cfive\rsix\nseven\x0beight": "one two three four five six seven eight",
    "\ud83d half an emoji": "half an emoji",
    "A 'quoted' (thing) [here] don't": "a quoted -lrb- thing -rrb- -lsb- here -rsb- do n't",
    "...": "",
    "   ": "",
    "": "",
    "a ||| b": "a | | | b",
    "Two  spaces\tand a tab ": "two spaces and a tab",
    "Call (415) 555-1212": "call -lrb-415-rrb-\u00a0555-1212",
    "The letter S.": "the letter s",
    "<a href='x'> cut <b": "<a\u00a0href='x'> cut < b",
}


def original(captions: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tokenize by pycocoevalcap, which runs the `java` on PATH."""
    from pycocoevalcap.tokenizer import ptbtokenizer

    if not os.access(Path(ptbtokenizer.__file__).parent, os.W_OK):
        pytest.skip("pycocoevalcap's tokenizer writes into its own folder, which is read-only on this machine")
    monkeypatch.setenv("PATH", str(find_java().parent) + os.pathsep + os.environ["PATH"])
    tokens = ptbtokenizer.PTBTokenizer().tokenize({i: [{"caption": c}] for i, c in enumerate(captions)})
    return [tokens[i][0] for i in range(len(captions))]


@pytest.fixture(scope="module")
def texts(coco_folder: Path) -> list[str]:
    """Return the captions of COCO's val2014."""
    body = json.loads((coco_folder / "annotations/captions_val2014.json").read_text(encoding="utf-8"))
    return [record["caption"] for record in body["annotations"]]


@pytest.mark.java
def test_equals_pycocoevalcap(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    captions = texts[::60] + [text for text in texts if re.search(r" [A-Z]\. *$", text)]
    tokens, expected = tokenize(captions), original(captions, monkeypatch)
    differ = [i for i, (a, b) in enumerate(zip(tokens, expected, strict=True)) if a != b]
    assert len(differ) < 40
    # They differ if the original read on into the next caption: append one that starts as most do.
    alone = original([c for i in differ for c in (captions[i], "A dog")], monkeypatch)[::2]
    assert alone == [tokens[i] for i in differ]


@pytest.mark.java
def test_tokens_depend_on_the_caption_only(texts: list[str]) -> None:
    """Check independence of surrounding captions, order and repetition."""
    captions = [*texts[:500], *ODD, "The letter K.", "See No.", "5 dogs", "about 10 p.m.", "<a", "b>"]
    expected = dict(zip(captions, tokenize(captions), strict=True))
    mixed = captions + captions[:100]
    random.Random(3).shuffle(mixed)
    assert tokenize(mixed) == [expected[c] for c in mixed]
    # A program that stays answers each call by itself, and starts again after it has failed.
    kept = ptb_filter()
    parts = [captions[a : a + 40] for a in range(0, len(captions), 40)]
    assert [tokenize(part, kept) for part in parts] == [[expected[c] for c in part] for part in parts]
    assert kept._process
    kept._process.close()
    with pytest.raises(PartialError):
        tokenize(captions[:2], kept)
    assert tokenize(captions[2:4], kept) == [expected[c] for c in captions[2:4]]


@pytest.mark.java
@pytest.mark.parametrize("text", ODD)
def test_unusual_text(text: str) -> None:
    assert tokenize(["before", text, "after"]) == ["before", ODD[text], "after"]


TOKENIZER = """
lines = [line.rstrip("\\n") for line in sys.stdin]
for i, line in enumerate(lines):
    {trouble}
    print(line.lower())
"""


def test_chunks_and_duplicates(
    fake_java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    fake_java(TOKENIZER.format(trouble=f"open({str(log)!r}, 'a').write(line + '|')"))
    monkeypatch.setattr(tokenizers, "CHUNK", 2)
    assert tokenize(["C ;", "D", "C ;", "", "E", "D\r"]) == ["c", "d", "c", "", "e", "d"]
    assert log.read_text() == "C ;|A|D|A|E|A|"
    assert ";" in PUNCTUATION


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("if 'poison' in line: sys.exit('Exception in thread main')", "exit code 1.*Exception in thread main"),
        ("if 'poison' in line: continue", "the 3 lines of output do not match the 4 lines of input"),
        (
            "line = 'garbage' if line == 'A' and 'poison' in str(lines) else line",
            "the 4 lines of output do not",
        ),
    ],
)
def test_the_captions_at_fault_are_named(
    fake_java: Callable[[str], Path], trouble: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(TOKENIZER.format(trouble=trouble))
    monkeypatch.setattr(tokenizers, "CHUNK", 2)
    monkeypatch.setattr(tokenizers, "SILENCE", 1.0)
    with pytest.raises(PartialError, match=reason) as raised:
        tokenize(["the first", "the first", "the second", "a poison pill", "the last", "more"])
    assert raised.value.exit_code == 5
    assert raised.value.where == "captions from 'a poison pill'"
    assert "lower_split" in str(raised.value)
