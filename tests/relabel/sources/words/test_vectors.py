"""Contract: word vectors are the same from plain, .gz and .zip files, with or without a header. Only requested words
are kept, and the first of two equal words counts. A GloVe word may contain spaces. Errors name file and line.
"""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError, MissingError, RelabelError, UsageError
from relabel.sources.words.vectors import WordVectors, WordVectorsFile, read_word_vectors

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


@pytest.mark.parametrize(
    "kind",
    ["plain", "gz", "zip", "zip member", *FORMS],
)
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


def test_white_space_of_unicode_belongs_to_the_word(tmp_path: Path) -> None:
    words = ["\x85", " ", "a b", "\x0c"]  # glove.twitter and glove.840B have such words
    vectors = read(write(tmp_path, "".join(f"{w} 1 2\n" for w in words)))
    assert list(vectors.index) == words


BAD = {
    "too many numbers": ("dog 1 2\ncat 1 2 3\n", 2, "ragged line: expected 2 numbers, found 3"),
    "a word alone": ("dog 1 2\ncat\n", 2, "ragged line"),
    "0 columns": ("dog\ncat\n", 1, "0 columns"),
    "text for a number": ("dog 1 2\ncat 1 two\n", 2, "could not convert string to float: b'two'"),
    "NaN": ("dog 1 2\ncat 1 nan\n", 2, "NaN or infinity"),
    "beyond float32": ("dog 1 2\ncat 1e39 2\n", 2, "NaN or infinity, or beyond float32"),
    "not UTF-8": (b"dog 1 2\nc\xe9 1 2\n", 2, "'utf-8' codec"),
    "binary word2vec": (b"2 2\ndog " + np.float32([1, 2]).tobytes() + b"\ncat " + bytes(8), 2, "Give the text format"),
    "empty": ("", 1, "0 columns"),
    "header of nothing": ("0 3\n", None, "expected 1 words, found 0"),
    "cut short": ("3 2\ndog 1 2\ncat 1 2\n", None, "expected 3 words, found 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_by_file_and_line(case: str, tmp_path: Path) -> None:
    text, line, problem = BAD[case]
    path = write(tmp_path, text)
    with pytest.raises(CheckError) as caught:
        read(path)
    assert caught.value.where == (f"{path}, line {line}" if line else str(path))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_every_line_is_checked_but_only_requested_words_are_parsed(tmp_path: Path) -> None:
    path = write(tmp_path, "dog 1 2\ncat x y\n")
    assert as_dict(read(path, {"dog"})) == {"dog": [1.0, 2.0]}
    with pytest.raises(CheckError, match="line 2: a ragged line"):
        read(write(tmp_path, "dog 1 2\ncat 1\n"), {"dog"})


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(LINES.encode() * 999)[:-30])
    with pytest.raises(CheckError, match="not a whole archive"):
        read(cut)
    cut = tmp_path / "cut.zip"
    make("zip", tmp_path)
    cut.write_bytes((tmp_path / "vectors.zip").read_bytes()[:-30])
    with pytest.raises(CheckError, match="not a whole archive"):
        read(cut)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    make("zip member", tmp_path)
    archive = tmp_path / "vectors.zip"
    cases: list[tuple[Path | str, type[RelabelError], str]] = [
        (tmp_path / "none.txt", MissingError, "no word vectors here"),
        (tmp_path, MissingError, "found a folder"),
        (archive, UsageError, r"in/vectors.txt, other.txt.*:MEMBER"),
        (f"{archive}:none.txt", CheckError, "no member none.txt"),
        (f"{tmp_path / 'none.zip'}:a.txt", MissingError, "no word vectors here"),
    ]
    for path, error, message in cases:
        with pytest.raises(error, match=message):
            WordVectorsFile.at(path)
    write(tmp_path, LINES).rename(tmp_path / "plain.zip")
    with pytest.raises(CheckError, match=r"not a \.zip"):
        WordVectorsFile.at(f"{tmp_path / 'plain.zip'}:a.txt")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("glove.6B.100d.captions-vocabulary.txt.gz", "glove.6B.100d"),
        ("glove.840B.300d.zip", "glove.840B.300d"),
        ("mine.v2.txt", "mine.v2"),
    ],
)
def test_vectors_are_named_after_their_file(file: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / file
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}.txt", LINES)
    else:
        path.write_text(LINES)
    assert WordVectorsFile.at(path).name == name
