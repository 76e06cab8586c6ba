"""Contract: METEOR's reduced tables keep every entry that can match within the texts, in the same order, and no
other.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from zipfile import ZipFile

import pytest

from relabel.sources.meteor import encode as meteor_encode
from relabel.sources.meteor.encode import LONGEST, cut_paraphrases, cut_synonyms
from relabel.sources.meteor.jar import paraphrase_table
from relabel.sources.wordnet import EXCEPTIONS, SYNSETS, find_meteor_jar

TEXTS = ["a man rides Two horses", "the guy is on top of a horse", "", "two two"]
USEFUL = [("a man", "the guy"), ("rides", "is on top of"), ("horse", "horses"), ("on", "on top of"), ("two", "two two")]
USELESS = [
    ("a man", "a person"),
    ("a woman", "the guy"),
    ("man a", "guy"),
    ("horses horse", "two"),
    ("rid", "es"),
    ("", ""),
]


@pytest.mark.parametrize("block", [1 << 24, 7])
@pytest.mark.parametrize("end", ["\n", ""])
def test_paraphrases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: str) -> None:
    monkeypatch.setattr(meteor_encode, "_BLOCK", block)
    mixed = [entry for pair in zip(USELESS, [*USEFUL, USELESS[0]], strict=True) for entry in pair]
    lines = [line for k, (a, b) in enumerate(mixed) for line in (f"0.{k}", a, b)]
    with gzip.open(tmp_path / "table.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + end)
    assert cut_paraphrases(tmp_path / "table.gz", TEXTS, tmp_path / "cut.gz") == len(USEFUL)
    with gzip.open(tmp_path / "cut.gz", "rt", encoding="utf-8") as file:
        file_lines = file.read().splitlines()
    assert list(zip(file_lines[1::3], file_lines[2::3], strict=True)) == USEFUL
    assert file_lines[::3] == [f"0.{k}" for k in (1, 3, 5, 7, 9)]
    first = (tmp_path / "cut.gz").read_bytes()
    cut_paraphrases(tmp_path / "table.gz", TEXTS, tmp_path / "again.gz")
    assert (tmp_path / "again.gz").read_bytes() == first


@pytest.mark.slow
def test_no_phrase_is_longer_than_the_reduction_assumes() -> None:
    with gzip.open(paraphrase_table("en")) as file:
        assert max(phrase.count(b" ") + 1 for i, phrase in enumerate(file) if i % 3) == LONGEST


def tables(synsets: bytes, exceptions: bytes) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
    lines, bases = synsets.decode().splitlines(), exceptions.decode().splitlines()
    inflected: dict[str, list[str]] = defaultdict(list)
    for base, forms in zip(bases[::2], bases[1::2], strict=True):
        for form in forms.split():
            inflected[form].append(base)
    return {w: set(s.split()) for w, s in zip(lines[::2], lines[1::2], strict=True)}, inflected


def sets_of(word: str, synsets: Mapping[str, set[str]], inflected: Mapping[str, list[str]]) -> set[str]:
    """Apply METEOR's rule: a word's own sets, and those of its exceptional base forms or else of its base form."""
    sets_found = set(synsets.get(word, ()))
    if word in inflected:
        for base in inflected[word]:
            sets_found |= synsets.get(base, set())
        return sets_found
    if word.endswith("ss") or len(word) <= 2:
        return sets_found
    suffixes = [
        "s",
        "ses",
        "xes",
        "zes",
        "ches",
        "shes",
        "men",
        "ies",
        "s",
        "ies",
        "es",
        "es",
        "ed",
        "ed",
        "ing",
        "ing",
    ]
    endings = ["", "s", "x", "z", "ch", "sh", "man", "y", "", "y", "e", "", "e", "", "e", ""]
    for suffix, ending in zip([*suffixes, "er", "est", "er", "est"], [*endings, "", "", "e", "e"], strict=True):
        form = word[: len(word) - len(suffix)] + ending
        if word.endswith(suffix) and form in synsets:
            return sets_found | synsets[form]
    return sets_found


def test_the_same_words_are_synonyms() -> None:
    with ZipFile(find_meteor_jar()) as file:
        complete = tables(file.read(f"synonym/{SYNSETS}"), file.read(f"synonym/{EXCEPTIONS}"))
    common = (
        "man guys adult dogs hound cars auto automobiles bus buses coaches women lady children kid kids mice ss is us"
    )
    texts = [
        common,
        " ".join(sorted(complete[0])[40_000:40_600]),
        " ".join(sorted(complete[1])[1000:1300]),
        "spoonful café 😀",
    ]
    words = sorted({w for t in texts for w in t.split()})
    cut = tables(*cut_synonyms(find_meteor_jar(), texts))
    before = {w: sets_of(w, *complete) for w in words}
    after = {w: sets_of(w, *cut) for w in words}
    pairs = list(combinations(words, 2))
    synonyms = {p for p in pairs if before[p[0]] & before[p[1]]}
    assert {p for p in pairs if after[p[0]] & after[p[1]]} == synonyms
    assert {("automobiles", "cars"), ("children", "kids"), ("buses", "coaches")} <= synonyms
    assert len(synonyms) > 200
    assert sum(map(len, after.values())) < sum(map(len, before.values())) / 2
