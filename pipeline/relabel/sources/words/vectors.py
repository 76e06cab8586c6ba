"""Word vectors in the text formats of GloVe and word2vec: which file is meant, and the vectors of the words asked for.

One word a line, then its D numbers, all separated by one space; word2vec puts a line `words D` first. Read plain, .gz,
or as a member of a .zip. A GloVe word may itself hold spaces (`. . .`, in glove.840B): the numbers are the last D
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
from relabel.core.user_files import check_regular
from relabel.datasets.download import DAMAGED, UNREADABLE, open_content
from relabel.store.atomic import sha256_file

_BUFFER = 1 << 20
_END = b" \r\n"
_HEADER = 40  # bytes of the line `words D`
_LONGEST = 4 << 20  # bytes of a line: 200,000 numbers of 20 characters


@dataclass(frozen=True)
class WordVectorsFile:
    """A file of word vectors, or a member of a .zip.

    Attributes
    ----------
    path : Path
    member : str or None
    name : str
        What a label says it used: `glove.6B.100d`, `word2vec coco-train 100d`.
    """

    path: Path
    member: str | None
    name: str

    @classmethod
    def at(cls, path: str | Path, name: str | None = None) -> WordVectorsFile:
        """Find `FILE`, `FILE.gz`, `FILE.zip` or `FILE.zip:MEMBER`.

        Raises
        ------
        MissingError
            If there is no such file.
        UsageError
            If a .zip holds several text files and none is named.
        CheckError
            If a .zip is damaged, or lacks the member.
        """
        archive, colon, member = str(path).rpartition(".zip:")
        where = Path(f"{archive}.zip") if colon else Path(path)
        check_regular(where, "no word vectors here", "Give a GloVe or word2vec text file, plain, .gz or .zip.")
        found = _member(where, member if colon else None)
        return cls(where, found, name or _name(found or where.name))

    @property
    def where(self) -> str:
        """Path and member, for messages."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def sha256(self) -> str:
        """sha256 of the file as it lies, the archive where it is one."""
        return sha256_file(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the text."""
        with self.path.open("rb") as handle:
            gz = handle.read(2) == b"\x1f\x8b"
        with open_content(self.path, self.member, gz=gz) as stream:
            yield cast(IO[bytes], BufferedReader(stream, _BUFFER))


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The vectors of some words.

    Attributes
    ----------
    index : dict of str to int
        Row of each word that was asked for and found, in file order.
    vectors : (V, D) float32
    words : int
        Lines of the file.
    duplicates : int
        Lines of a word that was asked for and had a vector already; the first one counts.
    """

    index: dict[str, int]
    vectors: NDArray[np.float32]
    words: int
    duplicates: int

    @property
    def width(self) -> int:
        """D."""
        return int(self.vectors.shape[1])


def read_word_vectors(file: WordVectorsFile, wanted: Collection[str] | None = None) -> WordVectors:
    """Read the vectors of some words.

    Parameters
    ----------
    file : WordVectorsFile
    wanted : collection of str, optional
        Words to keep; None keeps all. Of any other word the number of fields is checked, but not the numbers.

    Raises
    ------
    CheckError
        Naming file and line: an empty file, no numbers, another number of fields than the first line has (or the header
        says), a field that is no finite number, a word that is not UTF-8, fewer or more words than the header says.
    """
    keep = None if wanted is None else frozenset(wanted)
    with file.open() as lines:
        return _Reader(file.where, keep).read(lines)


@dataclass
class _Reader:
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
        blank = 0
        for number, line in self._start(lines):
            word, _, rest = line.partition(b" ")
            rest = rest.rstrip(_END)
            if not rest or rest.count(b" ") + 1 != self.width:
                if not line.strip():
                    blank = blank or number
                    continue
                word, rest = self._split(number, line)
            if blank:
                self._refuse("an empty line", blank)
            self.words += 1
            self._keep(number, word, rest)
        if self.announced not in (None, self.words):
            todo = "The file is cut short or was edited; get it again."
            self._refuse(f"the header says {self.announced} words, found {self.words}", todo=todo)
        if not self.words:
            self._refuse("no words")
        return WordVectors(self.index, self._matrix(), self.words, self.duplicates)

    def _start(self, lines: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Settle width and header from the first two lines, then give all lines but the header, numbered."""
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
            one_column = len(following) == 2 and _is_number(following[1])
            if width == 1 or not one_column:  # else the first word happens to be a number
                self.announced, self.width, start = int(fields[0]), width, 2
        if self.width < 1:
            todo = "A line is a word and its numbers, separated by one space."
            self._refuse("0 columns: no numbers after the word", 1, todo)
        if start == 1:
            self._floats(1, b" ".join(fields[1:]))
        return self._lines(lines, {1: first, 2: second}, start)

    def _lines(self, lines: IO[bytes], read: dict[int, bytes], start: int) -> Iterator[tuple[int, bytes]]:
        for number in count(start):
            line = read.pop(number) if number in read else self._line(lines, number)
            if not line:
                return
            yield number, line

    def _line(self, lines: IO[bytes], number: int) -> bytes:
        line = lines.readline(_LONGEST)
        if len(line) == _LONGEST:
            self._refuse(f"a line of {_LONGEST:,} bytes or more", number)
        return line

    def _split(self, number: int, line: bytes) -> tuple[bytes, bytes]:
        """Cut a line whose word holds spaces; refuse one that has too few or too many numbers."""
        fields = line.rstrip(_END).split(b" ")
        if len(fields) - 1 <= self.width or _is_number(fields[-self.width - 1]):
            todo = "The numbers of a line are separated by one space."
            self._refuse(f"a ragged line: expected {self.width} numbers, found {len(fields) - 1}", number, todo)
        return b" ".join(fields[: -self.width]), b" ".join(fields[-self.width :])

    def _keep(self, number: int, raw: bytes, rest: bytes) -> None:
        try:
            word = raw.decode()
        except UnicodeDecodeError:
            self._refuse(f"not UTF-8: {raw[:40]!r}", number)
        if self.wanted is not None and word not in self.wanted:
            return
        if word in self.index:
            self.duplicates += 1
            return
        self.numbers.extend(self._floats(number, rest))
        self.index[word] = len(self.index)
        self.line_of.append(number)

    def _floats(self, number: int, rest: bytes) -> list[float]:
        fields = rest.split(b" ")
        try:
            return list(map(float, fields))
        except ValueError:
            bad = next(f for f in fields if not _is_number(f))
            self._refuse(f"not a number: {bad[:40].decode(errors='replace')!r}", number)

    def _matrix(self) -> NDArray[np.float32]:
        matrix = np.array(self.numbers, np.float32).reshape(len(self.index), self.width)
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(bad):
            self._refuse("NaN or infinity, or beyond float32", self.line_of[bad[0]])
        return matrix

    def _refuse(self, what: str, line: int | None = None, todo: str | None = None) -> NoReturn:
        if line == 2 and self.announced is not None:
            todo = "If this is a binary word2vec file, save it as text (gensim: `save_word2vec_format`)."
        raise CheckError(what, where=f"{self.where}, line {line}" if line else self.where, todo=todo)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _member(path: Path, member: str | None) -> str | None:
    with path.open("rb") as handle:
        zipped = handle.read(4) == b"PK\x03\x04"
    if not zipped:
        if member is not None:
            raise CheckError("not a .zip", where=str(path))
        return None
    try:
        with ZipFile(path) as archive:
            names = [n for n in archive.namelist() if not n.endswith("/")]
    except (*DAMAGED, *UNREADABLE) as error:
        raise CheckError(f"not a whole archive ({error})", where=str(path), todo="Get it again.") from error
    texts = [n for n in names if n.endswith((".txt", ".vec"))]
    if member is not None:
        if member not in names:
            raise CheckError(f"the archive has no member {member}", where=str(path), todo=f"It has {', '.join(names)}.")
        return member
    if len(texts) != 1:
        has = ", ".join(texts) or "none"
        what = f"expected one text file in the archive, found {has}"
        raise UsageError(what, where=str(path), todo=f"Name one: {path}:MEMBER.")
    return texts[0]


def _name(file: str) -> str:
    """`glove.6B.100d` of any GloVe file name, else the name without its endings."""
    stem = re.sub(r"(\.(txt|vec|gz|zip))+$", "", Path(file).name)
    glove = re.match(r"glove\.\S*?\d+d(?![^.])", stem)
    return glove[0] if glove else stem
