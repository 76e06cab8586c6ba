"""The corpus: the table of all captions, one row a caption, and the only place where rows get their numbers.

Rows are sorted by (split, image, position): a split is a range of rows, and so are the captions of an image.
Readers of the many formats captions come in are in `relabel.readers`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.errors import CheckError, UsageError
from relabel.store.artefact import open_artefact, read_parts

SPLITS = ("train", "val", "test")
"""The splits a corpus knows, in row order. Karpathy's `restval` is part of train."""

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32(), nullable=False),
        pa.field("caption_id", pa.string(), nullable=False),
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("image", pa.int32(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("tokens", pa.string()),
    ]
)
"""`image` numbers images in row order; `position` counts the captions of an image from 0; `tokens` are PTB tokens
joined by one space, null where the corpus was not tokenised."""

REFERENCES = 5
"""How many captions of an image stand for it wherever a paper's protocol is followed: its first five."""


class Caption(NamedTuple):
    """One caption as a reader found it; `where` is its file and line or record, for messages."""

    caption_id: str
    image_id: str
    split: str
    text: str
    where: str = ""


@dataclass(frozen=True, eq=False)
class References:
    """Sets of caption rows, one set an image (or whatever stands for one), in CSR form.

    Attributes
    ----------
    indptr : (M + 1,) int64
    rows : (indptr[-1],) int32
        The rows of set m are ``rows[indptr[m]:indptr[m + 1]]``.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]

    @classmethod
    def of(cls, sets: Iterable[Sequence[int] | NDArray[np.int32]]) -> References:
        """Join sets of rows."""
        lists = [np.asarray(s, dtype=np.int32) for s in sets]
        indptr = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum([len(s) for s in lists], out=indptr[1:])
        return cls(indptr, np.concatenate(lists) if lists else np.empty(0, np.int32))

    @classmethod
    def single(cls, rows: NDArray[np.int32]) -> References:
        """Make every row a set of its own."""
        return cls(np.arange(len(rows) + 1, dtype=np.int64), np.asarray(rows, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, m: int) -> NDArray[np.int32]:
        return self.rows[self.indptr[m] : self.indptr[m + 1]]

    def take(self, index: NDArray[np.integer]) -> References:
        """Select sets (int index array or slice-made arange), repeats allowed."""
        index = np.asarray(index)
        sizes = (self.indptr[1:] - self.indptr[:-1])[index]
        indptr = np.zeros(len(index) + 1, dtype=np.int64)
        np.cumsum(sizes, out=indptr[1:])
        offsets = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes)
        return References(indptr, self.rows[np.repeat(self.indptr[:-1][index], sizes) + offsets])


def natural_key(identifier: str) -> tuple[object, ...]:
    """Sort key that orders the digits inside ids as numbers: `coco:9` before `coco:10`."""
    parts = re.split(r"(\d+)", identifier)
    return tuple((0, int(p), p) if p.isdecimal() and p.isascii() else (1, 0, p) for p in parts)


@dataclass(frozen=True, eq=False)
class Corpus:
    """All captions of one dataset.

    Attributes
    ----------
    table : pyarrow.Table
        With `SCHEMA`, sorted by row.
    digest : str
        sha256 of every value that can change a label; what encodings name as their input.
    """

    table: pa.Table
    digest: str

    @classmethod
    def from_captions(cls, captions: Iterable[Caption], tokens: Sequence[str] | None = None) -> Corpus:
        """Check, sort and number captions.

        Parameters
        ----------
        captions : iterable of Caption
        tokens : sequence of str, optional
            PTB tokens of each caption, in the order of `captions`.

        Raises
        ------
        CheckError
            On an empty corpus, a duplicate caption id, a caption without an image, an empty text, an unknown split, or
            an image in two splits. The message names the file and line.
        """
        items = list(captions)
        _check(items)
        image_key = {i: natural_key(i) for i in {c.image_id for c in items}}
        order = sorted(
            range(len(items)),
            key=lambda i: (
                SPLITS.index(items[i].split),
                image_key[items[i].image_id],
                natural_key(items[i].caption_id),
            ),
        )
        images: dict[str, int] = {}
        image = np.fromiter((images.setdefault(items[i].image_id, len(images)) for i in order), np.int32, len(items))
        starts = np.searchsorted(image, np.arange(len(images)))
        table = pa.table(
            {
                "row": np.arange(len(items), dtype=np.int32),
                "caption_id": [items[i].caption_id for i in order],
                "image_id": [items[i].image_id for i in order],
                "image": image,
                "split": [items[i].split for i in order],
                "position": (np.arange(len(items)) - starts[image]).astype(np.int32),
                "text": [items[i].text for i in order],
                "tokens": pa.nulls(len(items), pa.string()) if tokens is None else [tokens[i] for i in order],
            },
            schema=SCHEMA,
        )
        return cls.from_table(table)

    @classmethod
    def from_table(cls, table: pa.Table) -> Corpus:
        """Wrap a table that already has `SCHEMA` and row order."""
        return cls(table.combine_chunks(), _digest(table))

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """Read a corpus that `relabel ingest` wrote.

        Raises
        ------
        MissingError
            If there is none.
        CheckError
            If its files are not what its manifest says.
        """
        manifest = open_artefact(folder, "corpus")
        table = read_parts(folder, manifest)
        corpus = cls.from_table(table)
        if corpus.digest != manifest.facts["digest"]:
            raise CheckError("the rows are not those the manifest describes", where=str(folder), todo="Ingest again.")
        return corpus

    def with_tokens(self, tokens: Sequence[str]) -> Corpus:
        """Return the same corpus with PTB tokens, one string a row."""
        column = self.table.schema.get_field_index("tokens")
        return Corpus.from_table(self.table.set_column(column, SCHEMA.field("tokens"), pa.array(tokens, pa.string())))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def texts(self) -> list[str]:
        """Captions as written, by row."""
        return self.table["text"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def tokens(self) -> list[str] | None:
        """PTB tokens joined by spaces, by row; None if the corpus was not tokenised."""
        return None if self.table["tokens"].null_count else self.table["tokens"].to_pylist()

    @cached_property
    def image(self) -> NDArray[np.int32]:
        """(N,) int32: each row's image number."""
        return self.table["image"].to_numpy()  # type: ignore[no-any-return]

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """(M + 1,) int64: image m owns rows ``indptr[m]`` to ``indptr[m + 1]``."""
        count = int(self.image[-1]) + 1 if len(self) else 0
        return np.searchsorted(self.image, np.arange(count + 1)).astype(np.int64)

    @cached_property
    def caption_ids(self) -> list[str]:
        """Caption ids by row."""
        return self.table["caption_id"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def image_ids(self) -> list[str]:
        """Image ids by image number."""
        return self.table["image_id"].take(pa.array(self.indptr[:-1])).to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Caption id to row."""
        return {c: i for i, c in enumerate(self.caption_ids)}

    @cached_property
    def image_of(self) -> dict[str, int]:
        """Image id to image number."""
        return {c: i for i, c in enumerate(self.image_ids)}

    def rows(self, splits: Sequence[str]) -> range:
        """Range of rows of the given splits.

        Raises
        ------
        UsageError
            If a split is unknown or empty here, or the splits are not neighbours in row order.
        """
        column = self.table["split"].to_numpy(zero_copy_only=False)
        ranges = []
        for split in SPLITS:
            if split not in splits:
                continue
            found = np.flatnonzero(column == split)
            if len(found):
                ranges.append(range(int(found[0]), int(found[-1]) + 1))
        unknown = sorted(set(splits) - set(SPLITS))
        if unknown or not ranges:
            what = f"no split {', '.join(unknown or splits)} in this corpus"
            raise UsageError(what, todo=f"It has {', '.join(sorted(set(column)))}.")
        if sum(map(len, ranges)) != ranges[-1].stop - ranges[0].start:
            raise UsageError(f"splits {', '.join(splits)} are not neighbours in the corpus", todo="Name all three.")
        return range(ranges[0].start, ranges[-1].stop)

    def images(self, splits: Sequence[str]) -> range:
        """Range of image numbers of the given splits; raises as `rows`."""
        rows = self.rows(splits)
        return range(int(self.image[rows.start]), int(self.image[rows.stop - 1]) + 1)

    def references(self, images: Iterable[int], first: int | None = REFERENCES) -> References:
        """Reference sets of images.

        Parameters
        ----------
        images : iterable of int
            Image numbers.
        first : int or None
            Keep this many captions of each image, in position order; None keeps all.
        """
        starts, stops = self.indptr[:-1], self.indptr[1:]
        if first is not None:
            stops = np.minimum(stops, starts + first)
        return References.of(np.arange(starts[m], stops[m], dtype=np.int32) for m in images)


def _check(items: list[Caption]) -> None:
    if not items:
        raise CheckError("no captions at all")
    seen: dict[str, str] = {}
    split_of: dict[str, str] = {}
    for c in items:
        where = c.where or c.caption_id
        if not c.caption_id:
            raise CheckError("a caption without an id", where=where)
        if not c.image_id:
            raise CheckError(f"caption {c.caption_id} has no image", where=where)
        if not c.text.strip():
            raise CheckError(f"caption {c.caption_id} is empty", where=where)
        if c.split not in SPLITS:
            raise CheckError(f"unknown split {c.split!r}", where=where, todo=f"Known: {', '.join(SPLITS)}.")
        if c.caption_id in seen:
            first = seen[c.caption_id]
            raise CheckError(f"caption id {c.caption_id} is there twice (first: {first})", where=where)
        seen[c.caption_id] = where
        if split_of.setdefault(c.image_id, c.split) != c.split:
            raise CheckError(f"image {c.image_id} is in two splits, {split_of[c.image_id]} and {c.split}", where=where)


def _digest(table: pa.Table) -> str:
    digest = hashlib.sha256()
    for name in ("caption_id", "image_id", "split", "text", "tokens"):
        digest.update(f"{name}\0".encode())
        for value in table[name].to_pylist():
            digest.update(b"\0" if value is None else b"%d:" % len(raw := value.encode()) + raw)
    return digest.hexdigest()
