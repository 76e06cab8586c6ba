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
from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.datasets.download import DAMAGED, UNREADABLE, open_content
from relabel.store.files import input_sha256

_BUFFER = 1 << 20
_END = b" \r\n"
_LARGEST = float(np.finfo(np.float32).max)
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
        """Find `FILE`, `FILE.gz`, `FILE.zip` or `FILE.zip:MEMBER`; by default the label's name follows from it."""
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
                # Lines are counted even if their word is not requested, for the header's count.
                words += 1
                if keep is not None and word not in keep:
                    continue
                if word in index:  # the first line of a word counts, as in gensim
                    duplicates += 1
                    continue
                numbers.extend(_floats(fields))
                index[word] = len(index)
        except ValueError as error:
            todo = "Give the text format of GloVe or word2vec (gensim: `save_word2vec_format`), separated by one space."
            raise CheckError(str(error)[:200], where=f"{file.where}, line {at}", todo=todo) from error
    expected = int(header[1]) if header else words
    if words != max(1, expected):
        todo = "The file is truncated or was edited; fetch it again."
        raise CheckError(f"expected {max(1, expected)} words, found {words}", where=file.where, todo=todo)
    return WordVectors(index, np.array(numbers, np.float32).reshape(len(index), width), words, duplicates)


def look_up(file: WordVectorsFile, wanted: Collection[str], runtime: Runtime) -> WordVectors:
    """Read the vectors of words. A runtime that keeps them reads those of the first call, and all for other words."""
    name = Path(file.where).name
    if runtime.kept is None:
        return runtime.keep(None, lambda: read_word_vectors(file, wanted), name)
    words, held = runtime.keep((file, "first"), lambda: (frozenset(wanted), read_word_vectors(file, wanted)), name)
    if not words.issuperset(wanted):
        held = runtime.keep((file, "all"), lambda: read_word_vectors(file), name)
    chosen = sorted(held.index.keys() & set(wanted), key=held.index.__getitem__)
    rows = np.array([held.index[word] for word in chosen], np.int64)
    return WordVectors({word: i for i, word in enumerate(chosen)}, held.vectors[rows], held.words, held.duplicates)


def _split(line: bytes, width: int) -> tuple[str, bytes]:
    """Split a line into its word and its numbers; raise ValueError unless there are `width` of these."""
    word, _, numbers = line.rstrip(_END).partition(b" ")
    # Counting separators is much cheaper than splitting, and most words are not requested.
    if not numbers or numbers.count(b" ") + 1 != width:
        # A word with spaces leaves more fields than numbers, and the field before the numbers is no number.
        word, *fields = line.rstrip(_END).rsplit(b" ", width)
        if len(fields) != width or b" " not in word or _is_number(word.rpartition(b" ")[2]):
            raise ValueError(f"a ragged line: expected {width} numbers, found {line.rstrip(_END).count(b' ')}")
        numbers = b" ".join(fields)
    return word.decode(), numbers


def _floats(fields: bytes) -> list[float]:
    """Parse numbers; raise ValueError for one that is not finite as a float32."""
    values = list(map(float, fields.split(b" ")))
    if not all(abs(value) <= _LARGEST for value in values):
        raise ValueError("NaN or infinity, or beyond float32")
    return values


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
