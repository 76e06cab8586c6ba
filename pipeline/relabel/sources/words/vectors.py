"""Word vectors in the text formats of GloVe and word2vec: the file, and the vectors of requested words.

A line holds a word and its D numbers, separated by single spaces. word2vec has a first line `words D`. Files are plain,
.gz, or members of a .zip. A GloVe word may contain spaces (`. . .` in glove.840B), so the numbers are the last D
fields.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, count, islice
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
    announced: int | None = None

    def refuse(message: str, line: int | None = None, todo: str | None = None) -> NoReturn:
        if line == 2 and announced is not None:
            todo = "If this is a binary word2vec file, save it as text (gensim: `save_word2vec_format`)."
        raise CheckError(message, where=f"{file.where}, line {line}" if line else file.where, todo=todo)

    def floats(number: int, rest: bytes) -> list[float]:
        fields = rest.split(b" ")
        try:
            return list(map(float, fields))
        except ValueError:
            bad = next(f for f in fields if not _is_number(f))
            refuse(f"not a number: {bad[:40].decode(errors='replace')!r}", number)

    keep = None if wanted is None else frozenset(wanted)
    index, line_of, numbers, words, duplicates = dict[str, int](), list[int](), array("f"), 0, 0
    with file.open() as stream:
        lines = _numbered(stream, refuse)
        head = list(islice(lines, 2))
        if not head:
            refuse("an empty file")
        fields, following = (line.rstrip(_END).split(b" ") for _, line in (*head, (2, b""))[:2])
        width = len(fields) - 1
        # The second line distinguishes a header `V D` from a word with one number.
        digits = width == 1 and fields[0].isdigit() and fields[1].isdigit() and len(head[0][1]) <= _HEADER
        if digits and (int(fields[1]) == 1 or not (len(following) == 2 and _is_number(following[1]))):
            announced, width = int(fields[0]), int(fields[1])
            del head[0]
        elif width:
            floats(1, b" ".join(fields[1:]))
        if width < 1:
            refuse(
                "0 columns: no numbers after the word", 1, "Write a word and its numbers per line, with single spaces."
            )
        for number, line in chain(head, lines):
            raw, _, rest = line.partition(b" ")
            rest = rest.rstrip(_END)
            # Counting separators is much cheaper than splitting, and most words are not requested.
            if not rest or rest.count(b" ") + 1 != width:
                fields = line.rstrip(_END).split(b" ")
                # A word with spaces leaves more fields than numbers, and the field before the numbers is no number.
                if len(fields) - 1 <= width or _is_number(fields[-width - 1]):
                    todo = "The numbers of a line are separated by one space."
                    refuse(f"a ragged line: expected {width} numbers, found {len(fields) - 1}", number, todo)
                raw, rest = b" ".join(fields[:-width]), b" ".join(fields[-width:])
            # Lines are counted even if their word is not requested, for the header's count.
            words += 1
            try:
                word = raw.decode()
            except UnicodeDecodeError:
                refuse(f"not UTF-8: {raw[:40]!r}", number)
            if keep is not None and word not in keep:
                continue
            if word in index:  # the first line of a word counts, as in gensim
                duplicates += 1
                continue
            numbers.extend(floats(number, rest))
            index[word] = len(index)
            line_of.append(number)
    if announced not in (None, words):
        todo = "The file is truncated or was edited; fetch it again."
        refuse(f"the header says {announced} words, found {words}", todo=todo)
    if not words:
        refuse("no words")
    matrix = np.array(numbers, np.float32).reshape(len(index), width)
    # Checked once at the end: a pass over the matrix is cheaper than a test per line.
    if len(bad := np.flatnonzero(~np.isfinite(matrix).all(axis=1))):
        refuse("NaN or infinity, or beyond float32", line_of[bad[0]])
    return WordVectors(index, matrix, words, duplicates)


def _numbered(stream: IO[bytes], refuse: Callable[[str, int], NoReturn]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers; blank ones are allowed at its end alone."""
    blank = 0
    for number in count(1):
        line = stream.readline(_LONGEST)
        if len(line) == _LONGEST:
            refuse(f"a line of {_LONGEST:,} bytes or more", number)
        if not line:
            return
        if line.isspace():
            blank = blank or number
        elif blank:
            refuse("an empty line", blank)
        else:
            yield number, line


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
