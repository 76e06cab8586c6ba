"""Contract: a word bag holds a caption's words for any text. The vector of a bag is the
sum of its words' vectors, scaled to length 1. Word vectors are the same from plain, .gz and .zip files, with or without
a header; only requested words are kept. A damaged archive is named.
"""

from __future__ import annotations

import gzip
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.sources.words.shards import WordBags
from relabel.sources.words.vectors import WordVectors, WordVectorsFile, look_up, read_word_vectors


def words_of(bags: WordBags, caption: int) -> list[str]:
    text = bags.text_of[caption]
    return [bags.vocabulary[w] for w in bags.words[bags.indptr[text] : bags.indptr[text + 1]]]


def check(texts: list[str]) -> None:
    bags = WordBags.from_texts(texts)
    assert "" not in bags.vocabulary
    assert len(bags.indptr) - 1 == len(set(texts))
    for i, text in enumerate(texts):
        assert words_of(bags, i) == [w for w in text.split(" ") if w]
    counted = Counter(w for t in texts for w in t.split(" ") if w)
    assert dict(zip(bags.vocabulary, bags.counts().tolist(), strict=True)) == counted


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab é\U0001f415", max_size=8), min_size=1, max_size=8))
def test_any_texts(texts: list[str]) -> None:
    check(texts)


def test_unit_vectors_are_sums_of_length_1() -> None:
    texts = ["b b c", "a b b", "", "a b b"]
    bags = WordBags.from_texts(texts)
    vectors = {"a": np.array([1.0, 0]), "b": np.array([0.5, -1]), "c": np.array([0.0, 0])}
    table = np.array([vectors[w] for w in bags.vocabulary])
    computed = bags.unit_vectors(table, slice(0, 4))
    for row, text in zip(computed, texts, strict=True):
        total = np.zeros(2)
        for word in text.split():
            total += vectors[word]
        length = np.sqrt((total**2).sum())
        np.testing.assert_allclose(row, total / length if length else total, atol=1e-7)
    np.testing.assert_array_equal(bags.unit_vectors(table, slice(1, 3)), computed[1:3])
    assert bags.counts().tolist() == [6, 1, 2]  # b, c, a over all captions


LINES = "dog 0.5 -1 2e-3\ncat 1 2 3\n. . . 7 8 9\ndog 4 4 4\ncafé 0 1 0\n"
EXPECTED = {"dog": [0.5, -1, 2e-3], "cat": [1, 2, 3], ". . .": [7, 8, 9], "café": [0, 1, 0]}


FORMS = {
    "header": "5 3\n" + LINES,
    "word2vec's trailing space": "5 3\n" + LINES.replace("\n", " \n"),
    "CRLF": LINES.replace("\n", "\r\n"),
    "no last newline": LINES.rstrip("\n"),
    "empty lines at the end": LINES + "\n \n",
}


def read(path: Path | str, wanted: set[str] | None = None) -> WordVectors:
    return read_word_vectors(WordVectorsFile.at(path), wanted)


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "vectors.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def as_dict(found: WordVectors) -> dict[str, list[float]]:
    return {word: found.vectors[row].tolist() for word, row in found.index.items()}


def make(kind: str, folder: Path) -> Path | str:
    plain = write(folder, LINES)
    if kind == "gz":
        path = folder / "vectors.txt.gz"
        path.write_bytes(gzip.compress(plain.read_bytes()))
        return path
    if kind.startswith("zip"):
        with zipfile.ZipFile(folder / "vectors.zip", "w") as archive:
            archive.write(plain, "in/vectors.txt")
            archive.writestr("README.md", "not vectors")
            if kind == "zip member":
                archive.writestr("other.txt", "bird 1 1 1\n")
        return folder / "vectors.zip" if kind == "zip" else f"{folder / 'vectors.zip'}:in/vectors.txt"
    return write(folder, FORMS.get(kind, LINES))


@pytest.mark.parametrize("kind", ["plain", "gz", "zip", "zip member", *FORMS])
def test_every_form_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    vectors = read(make(kind, tmp_path))
    assert list(vectors.index) == list(EXPECTED)
    assert as_dict(vectors) == {w: np.float32(v).tolist() for w, v in EXPECTED.items()}
    assert (vectors.words, vectors.duplicates, vectors.width, vectors.vectors.dtype) == (5, 1, 3, np.float32)


def test_only_requested_words_are_kept(tmp_path: Path) -> None:
    vectors = read(write(tmp_path, LINES), {"café", "dog", "unicorn"})
    assert list(vectors.index) == ["dog", "café"]
    assert vectors.vectors.shape == (2, 3)
    assert (vectors.words, vectors.duplicates) == (5, 1)
    assert read(tmp_path / "vectors.txt", {"unicorn"}).vectors.shape == (0, 3)


def test_kept_vectors_equal_those_of_the_file(tmp_path: Path) -> None:
    file = WordVectorsFile.at(write(tmp_path, "dog 1 2\nbus 3 4\na 5 6\ncat 7 8\n"))
    runtime = Runtime(kept={})
    for wanted in ({"cat", "dog", "none"}, {"dog"}, {"a", "cat", "none"}, {"none"}):
        found, expected = look_up(file, wanted, runtime), read_word_vectors(file, wanted)
        assert list(found.index) == list(expected.index)
        np.testing.assert_array_equal(found.vectors, expected.vectors)
        assert found.words == expected.words


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(LINES.encode() * 999)[:-30])
    with pytest.raises(CheckError, match="damaged archive"):
        read(cut)
    cut = tmp_path / "cut.zip"
    make("zip", tmp_path)
    cut.write_bytes((tmp_path / "vectors.zip").read_bytes()[:-30])
    with pytest.raises(CheckError, match="damaged archive"):
        read(cut)
