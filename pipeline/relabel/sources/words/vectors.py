"""Reader of word vectors in the text formats of GloVe and word2vec.

A line has a word and D numbers, separated by single spaces. In word2vec, the first line is `words D`. Files are plain,
.gz, or members of a .zip. GloVe words may contain spaces (`. . .` in glove.840B), so the numbers are the last D fields.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, cast
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import GZIP, check_regular
from relabel.core.runtime import Runtime
from relabel.datasets.download import DAMAGED, UNREADABLE, open_content
from relabel.store.files import input_sha256

_BUFFER = 1 << 20
_END = b" \r\n"
_LARGEST = float(np.finfo(np.float32).max)
_LONGEST = 4 << 20  # maximum length of a line in bytes: 200,000 numbers of 20 characters


@dataclass(frozen=True)
class WordVectorsFile:
    """A file of word vectors, or a member of a .zip.

    `member`: member of the .zip.
    `name`: name in labels and manifests: `glove.6B.100d`, `word2vec coco-train 100d`.
    """

    path: Path
    member: str | None
    name: str

    @classmethod
    def at(cls, path: str | Path, name: str | None = None) -> WordVectorsFile:
        """Find `FILE`, `FILE.gz`, `FILE.zip` or `FILE.zip:MEMBER`. `name`: by default derived from the file name."""
        archive, colon, member = str(path).rpartition(".zip:")
        where = Path(f"{archive}.zip") if colon else Path(path)
        check_regular(where, "no such file of word vectors", "Use a GloVe or word2vec text file, plain, .gz or .zip.")
        selected = _member(where, member if colon else None)
        return cls(where, selected, name or _name(selected or where.name))

    @property
    def where(self) -> str:
        """Path and member for messages."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def sha256(self) -> str:
        """Return the sha256 of the file or archive on disk."""
        return input_sha256(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the uncompressed text."""
        with self.path.open("rb") as handle:
            gz = handle.read(2) == GZIP
        with open_content(self.path, self.member, gz=gz) as stream:
            yield cast("IO[bytes]", BufferedReader(stream, _BUFFER))


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Vectors of words.

    `index`: row of each requested word in the file, in file order.
    `vectors`: (V, D) float32.
    `words`: number of words in the file.
    `duplicates`: number of lines that repeat a requested word. The vector of the first line is used.
    """

    index: dict[str, int]
    vectors: NDArray[np.float32]
    words: int
    duplicates: int

    @property
    def width(self) -> int:
        """Dimension D of the vectors."""
        return int(self.vectors.shape[1])


def read_word_vectors(file: WordVectorsFile, wanted: Collection[str] | None = None) -> WordVectors:
    r"""Read word vectors.

    `wanted`: words to read; None reads all. For other words, only the number of fields is checked.
    """
    keep = None if wanted is None else frozenset(wanted)
    index, numbers, words, duplicates, at = dict[str, int](), array("f"), 0, 0, 1
    with file.open() as stream:
        try:
            first = stream.readline(_LONGEST)
            header = re.fullmatch(rb"(\d{1,15}) (\d{1,15})\s*", first)
            width = int(header[2]) if header else first.rstrip(_END).count(b" ")
            if width < 1:
                raise ValueError("0 columns: no numbers after the word")
            lines = iter(partial(stream.readline, _LONGEST), b"")
            for at, line in enumerate(lines if header else chain([first], lines), 2 if header else 1):  # noqa: B007 - errors name it
                if len(line) == _LONGEST:
                    raise ValueError(f"a line of {_LONGEST:,} bytes or more")
                if line.isspace():
                    continue
                word, fields = _split(line, width)
                # Count all lines, to compare with the header.
                words += 1
                if keep is not None and word not in keep:
                    continue
                if word in index:  # use the first line of a word, as gensim does
                    duplicates += 1
                    continue
                numbers.extend(_floats(fields))
                index[word] = len(index)
        except ValueError as error:
            hint = "Use the text format of GloVe or word2vec (gensim: `save_word2vec_format`), with single spaces."
            raise CheckError(str(error)[:200], where=f"{file.where}, line {at}", hint=hint) from error
    expected = int(header[1]) if header else words
    if words != max(1, expected):
        hint = "The file is truncated or was modified; fetch it again."
        raise CheckError(f"expected {max(1, expected)} words, found {words}", where=file.where, hint=hint)
    return WordVectors(index, np.array(numbers, np.float32).reshape(len(index), width), words, duplicates)


def look_up(file: WordVectorsFile, wanted: Collection[str], runtime: Runtime) -> WordVectors:
    """Read the vectors of words. If the runtime caches them, a later call with other words reads the whole file."""
    name = Path(file.where).name
    if runtime.kept is None:
        return runtime.keep(None, lambda: read_word_vectors(file, wanted), name)
    words, cached = runtime.keep((file, "first"), lambda: (frozenset(wanted), read_word_vectors(file, wanted)), name)
    if not words.issuperset(wanted):
        cached = runtime.keep((file, "all"), lambda: read_word_vectors(file), name)
    names = sorted(cached.index.keys() & set(wanted), key=cached.index.__getitem__)
    rows = np.array([cached.index[word] for word in names], np.int64)
    return WordVectors({word: i for i, word in enumerate(names)}, cached.vectors[rows], cached.words, cached.duplicates)


def _split(line: bytes, width: int) -> tuple[str, bytes]:
    """Split a line into its word and its numbers. Raises ValueError unless there are `width` numbers."""
    word, _, numbers = line.rstrip(_END).partition(b" ")
    # Counting separators is much faster than splitting, and few words are requested.
    if not numbers or numbers.count(b" ") + 1 != width:
        # In a line with a word with spaces, the field before the `width` numbers must not be a number.
        word, *fields = line.rstrip(_END).rsplit(b" ", width)
        if len(fields) != width or b" " not in word or _is_number(word.rpartition(b" ")[2]):
            raise ValueError(f"expected {width} numbers, found {line.rstrip(_END).count(b' ')}")
        numbers = b" ".join(fields)
    return word.decode(), numbers


def _floats(fields: bytes) -> list[float]:
    """Parse numbers. Raises ValueError if one is not a finite float32."""
    values = list(map(float, fields.split(b" ")))
    if not all(abs(value) <= _LARGEST for value in values):
        raise ValueError("a number is NaN, infinite or too large for float32")
    return values


def _is_number(text: bytes) -> bool:
    """Return True if a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _member(path: Path, member: str | None) -> str | None:
    """Return the member of a .zip to read, or None for other files. Raises an error if the member is ambiguous."""
    with path.open("rb") as handle:
        zipped = handle.read(4) == b"PK\x03\x04"
    if not zipped:
        if member is not None:
            raise CheckError("not a .zip file", where=str(path), hint="Remove the member from the path.")
        return None
    try:
        with ZipFile(path) as archive:
            names = [n for n in archive.namelist() if not n.endswith("/")]
    except (*DAMAGED, *UNREADABLE) as error:
        raise CheckError(f"damaged archive ({error})", where=str(path), hint="Fetch it again.") from error
    texts = [n for n in names if n.endswith((".txt", ".vec"))]
    if member is not None:
        if member not in names:
            raise CheckError(f"the archive has no member {member}", where=str(path), hint=f"It has {', '.join(names)}.")
        return member
    if len(texts) != 1:
        listing = ", ".join(texts) or "none"
        message = f"expected one text file in the archive, found {listing}"
        raise UsageError(message, where=str(path), hint=f"Select one: {path}:MEMBER.")
    return texts[0]


def _name(file: str) -> str:
    """Return a name such as `glove.6B.100d` for GloVe files, otherwise the file name without suffixes."""
    stem = re.sub(r"(\.(txt|vec|gz|zip))+$", "", Path(file).name)
    glove = re.match(r"glove\.\S*?\d+d(?![^.])", stem)
    return glove[0] if glove else stem
