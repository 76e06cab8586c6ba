"""Word vectors in the text formats of GloVe and word2vec: the file, and the vectors of requested words.

A line holds a word and its D numbers, separated by single spaces. word2vec has a first line `words D`. Files are plain,
.gz, or members of a .zip. A GloVe word may contain spaces (`. . .` in glove.840B), so the numbers are the last D
fields.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import IO, NoReturn, cast
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular
from relabel.datasets.download import DAMAGED, UNREADABLE, open_content
from relabel.store.files import input_sha256

_BUFFER = 1 << 20
_END = b" \r\n"
_HEADER = 40  # largest number of bytes of the line `words D`
_LONGEST = 4 << 20  # limit of a line in bytes: 200,000 numbers of 20 characters


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
        """Find `FILE`, `FILE.gz`, `FILE.zip` or `FILE.zip:MEMBER`.

        `name`: name in labels; derived from the file name by default.
        """
        archive, colon, member = str(path).rpartition(".zip:")
        where = Path(f"{archive}.zip") if colon else Path(path)
        check_regular(where, "no word vectors here", "Give a GloVe or word2vec text file, plain, .gz or .zip.")
        selected = _member(where, member if colon else None)
        return cls(where, selected, name or _name(selected or where.name))

    @property
    def where(self) -> str:
        """Path and member, for messages."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def sha256(self) -> str:
        """Return the sha256 of the file on disk, which may be an archive."""
        return input_sha256(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the uncompressed text."""
        with self.path.open("rb") as handle:
            gz = handle.read(2) == b"\x1f\x8b"
        with open_content(self.path, self.member, gz=gz) as stream:
            yield cast("IO[bytes]", BufferedReader(stream, _BUFFER))


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Vectors of words.

    `index`: row of each requested word that the file holds, in file order.
    `vectors`: (V, D) float32.
    `words`: number of words in the file.
    `duplicates`: number of lines whose word was requested and already had a vector. The first line counts.
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
    r"""Read the vectors of words.

    `wanted`: words to keep; None keeps all. For other words the number of fields is checked, but not the numbers.
    """
    keep = None if wanted is None else frozenset(wanted)
    with file.open() as lines:
        return _Reader(file.where, keep).read(lines)


@dataclass
class _Reader:
    """State of reading one file."""

    where: str
    wanted: frozenset[str] | None
    width: int = 0
    announced: int | None = None
    index: dict[str, int] = field(default_factory=dict)
    line_of: list[int] = field(default_factory=list)
    numbers: array[float] = field(default_factory=lambda: array("f"))
    words: int = 0
    duplicates: int = 0

    def read(self, lines: IO[bytes]) -> WordVectors:
        """Read all lines."""
        blank = 0
        for number, line in self._start(lines):
            word, _, rest = line.partition(b" ")
            rest = rest.rstrip(_END)
            # Counting separators is much cheaper than splitting, and most words are not requested.
            if not rest or rest.count(b" ") + 1 != self.width:
                if not line.strip():
                    blank = blank or number
                    continue
                word, rest = self._split(number, line)
            # Blank lines are allowed at the end of the file only.
            if blank:
                self._refuse("an empty line", blank)
            # Lines are counted even if their word is not requested, for the header's count.
            self.words += 1
            self._keep(number, word, rest)
        if self.announced not in (None, self.words):
            todo = "The file is truncated or was edited; fetch it again."
            self._refuse(f"the header says {self.announced} words, found {self.words}", todo=todo)
        if not self.words:
            self._refuse("no words")
        return WordVectors(self.index, self._matrix(), self.words, self.duplicates)

    def _start(self, lines: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Determine width and header from the first two lines; return all lines but the header, with their numbers."""
        first, second = self._line(lines, 1), self._line(lines, 2)
        if not first.strip():
            self._refuse("an empty file" if not first else "an empty line", 1 if first else None)
        fields, following = first.rstrip(_END).split(b" "), second.rstrip(_END).split(b" ")
        self.width = len(fields) - 1
        start = 1
        if self.width == 1 and fields[0].isdigit() and fields[1].isdigit():
            if len(first) > _HEADER:
                self._refuse(f"a header of more than {_HEADER} bytes", 1)
            width = int(fields[1])
            single_number = len(following) == 2 and _is_number(following[1])
            # The second line distinguishes a header `V D` from a word with one number.
            if width == 1 or not single_number:  # else the first word is a number
                self.announced, self.width, start = int(fields[0]), width, 2
        if self.width < 1:
            todo = "Write a word and its numbers per line, separated by one space."
            self._refuse("0 columns: no numbers after the word", 1, todo)
        if start == 1:
            self._floats(1, b" ".join(fields[1:]))
        return self._lines(lines, {1: first, 2: second}, start)

    def _lines(self, lines: IO[bytes], read: dict[int, bytes], start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from `start` on with their numbers, beginning with those that were read already."""
        for number in count(start):
            line = read.pop(number) if number in read else self._line(lines, number)
            if not line:
                return
            yield number, line

    def _line(self, lines: IO[bytes], number: int) -> bytes:
        """Read one line; raise if it is too long."""
        line = lines.readline(_LONGEST)
        if len(line) == _LONGEST:
            self._refuse(f"a line of {_LONGEST:,} bytes or more", number)
        return line

    def _split(self, number: int, line: bytes) -> tuple[bytes, bytes]:
        """Split a line whose word contains spaces; raise if it has too few or too many numbers."""
        fields = line.rstrip(_END).split(b" ")
        # A word with spaces leaves more fields than numbers, and the field before the numbers is no number.
        if len(fields) - 1 <= self.width or _is_number(fields[-self.width - 1]):
            todo = "The numbers of a line are separated by one space."
            self._refuse(f"a ragged line: expected {self.width} numbers, found {len(fields) - 1}", number, todo)
        return b" ".join(fields[: -self.width]), b" ".join(fields[-self.width :])

    def _keep(self, number: int, raw: bytes, rest: bytes) -> None:
        """Store the vector of a line, if its word is requested and new."""
        try:
            word = raw.decode()
        except UnicodeDecodeError:
            self._refuse(f"not UTF-8: {raw[:40]!r}", number)
        if self.wanted is not None and word not in self.wanted:
            return
        if word in self.index:
            # The first line of a word counts, as in gensim.
            self.duplicates += 1
            return
        self.numbers.extend(self._floats(number, rest))
        self.index[word] = len(self.index)
        self.line_of.append(number)

    def _floats(self, number: int, rest: bytes) -> list[float]:
        """Return the numbers of a line; raise if one is not a number."""
        fields = rest.split(b" ")
        try:
            return list(map(float, fields))
        except ValueError:
            bad = next(f for f in fields if not _is_number(f))
            self._refuse(f"not a number: {bad[:40].decode(errors='replace')!r}", number)

    def _matrix(self) -> NDArray[np.float32]:
        """Return the vectors as a matrix; raise if one is not finite."""
        matrix = np.array(self.numbers, np.float32).reshape(len(self.index), self.width)
        # Checked once at the end: a pass over the matrix is cheaper than a test per line.
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(bad):
            self._refuse("NaN or infinity, or beyond float32", self.line_of[bad[0]])
        return matrix

    def _refuse(self, message: str, line: int | None = None, todo: str | None = None) -> NoReturn:
        """Raise the error of a line."""
        if line == 2 and self.announced is not None:
            todo = "If this is a binary word2vec file, save it as text (gensim: `save_word2vec_format`)."
        raise CheckError(message, where=f"{self.where}, line {line}" if line else self.where, todo=todo)


def _is_number(text: bytes) -> bool:
    """Return True if a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _member(path: Path, member: str | None) -> str | None:
    """Return the member of a .zip to read; None for other files. Raise if it cannot be determined."""
    with path.open("rb") as handle:
        zipped = handle.read(4) == b"PK\x03\x04"
    if not zipped:
        if member is not None:
            raise CheckError("not a .zip", where=str(path), todo="Leave the member out.")
        return None
    try:
        with ZipFile(path) as archive:
            names = [n for n in archive.namelist() if not n.endswith("/")]
    except (*DAMAGED, *UNREADABLE) as error:
        raise CheckError(f"not a whole archive ({error})", where=str(path), todo="Fetch it again.") from error
    texts = [n for n in names if n.endswith((".txt", ".vec"))]
    if member is not None:
        if member not in names:
            raise CheckError(f"the archive has no member {member}", where=str(path), todo=f"It has {', '.join(names)}.")
        return member
    if len(texts) != 1:
        listing = ", ".join(texts) or "none"
        message = f"expected one text file in the archive, found {listing}"
        raise UsageError(message, where=str(path), todo=f"Name one: {path}:MEMBER.")
    return texts[0]


def _name(file: str) -> str:
    """Return `glove.6B.100d` for any file name of GloVe, else the file name without its extensions."""
    stem = re.sub(r"(\.(txt|vec|gz|zip))+$", "", Path(file).name)
    glove = re.match(r"glove\.\S*?\d+d(?![^.])", stem)
    return glove[0] if glove else stem
