"""The corpus: the table of all captions, one row per caption, and the only place where rows get their numbers.

Rows are sorted by (split, image, position): a split is a range of rows, and so are the captions of an image.
`relabel.corpus.readers` reads captions of any format; `relabel.corpus.build` makes rows of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus.build import SCHEMA, SPLITS, Caption, caption_table, natural_key, table_digest
from relabel.store.manifest import Manifest, read_parts
from relabel.store.reading import read_artefact

__all__ = ["REFERENCES", "SCHEMA", "SPLITS", "Caption", "Corpus", "References", "natural_key"]

REFERENCES = 5
"""Captions of an image that stand for it wherever a paper's protocol is followed: its first five."""


@dataclass(frozen=True, eq=False)
class References:
    """Sets of caption rows, one per image (or whatever stands for one), in CSR form.

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


@dataclass(frozen=True, eq=False)
class Corpus:
    """All captions of one dataset.

    Attributes
    ----------
    table : pyarrow.Table
        With `SCHEMA`, sorted by row.
    digest : str
        sha256 of every value that can change a label. Encodings record it as their input.
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
        return cls.from_table(caption_table(captions, tokens))

    @classmethod
    def from_table(cls, table: pa.Table) -> Corpus:
        """Wrap a table that already has `SCHEMA` and row order."""
        return cls(table.combine_chunks(), table_digest(table))

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """Read a corpus that `relabel ingest` wrote.

        Raises
        ------
        MissingError
            If there is none.
        CheckError
            If its files differ from their manifest.
        """

        def read(manifest: Manifest) -> Corpus:
            corpus = cls.from_table(read_parts(folder, manifest))
            if corpus.digest != manifest.facts["digest"]:
                what = "the rows are not those the manifest describes"
                raise CheckError(what, where=str(folder), todo="Ingest again.")
            return corpus

        return read_artefact(folder, "corpus", read)

    def with_tokens(self, tokens: Sequence[str]) -> Corpus:
        """Return the same corpus with PTB tokens, one string per row."""
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

    def ptb_tokens(self) -> list[str]:
        """Return `tokens`.

        Raises
        ------
        MissingError
            If the corpus was not tokenised.
        """
        if self.tokens is None:
            raise MissingError(
                "this corpus has no PTB tokens",
                todo="Set `ingest.tokenizer: ptb` (needs Java: `pip install 'relabel-itr[java]'`) and run "
                "`relabel ingest`, or set `tokenizer: lower_split` where the source has it.",
            )
        return self.tokens

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

    @cached_property
    def splits(self) -> dict[str, range]:
        """Range of rows of each split that has any, in row order."""
        counts = {c["values"]: c["counts"] for c in self.table["split"].value_counts().to_pylist()}
        stops = np.cumsum([counts.get(split, 0) for split in SPLITS]).tolist()
        return {s: range(stop - counts[s], stop) for s, stop in zip(SPLITS, stops, strict=True) if s in counts}

    def rows(self, splits: Sequence[str]) -> range:
        """Return the range of rows of some splits.

        Raises
        ------
        UsageError
            If a split is unknown or empty, or other splits lie between the given ones.
        """
        ranges = [rows for split, rows in self.splits.items() if split in splits]
        unknown = sorted(set(splits) - set(SPLITS))
        if unknown or not ranges:
            what = f"no split {', '.join(unknown or splits)} in this corpus"
            raise UsageError(what, todo=f"It has {', '.join(self.splits)}.")
        if sum(map(len, ranges)) != ranges[-1].stop - ranges[0].start:
            raise UsageError(f"splits {', '.join(splits)} are not neighbours in the corpus", todo="Name all three.")
        return range(ranges[0].start, ranges[-1].stop)

    def images(self, splits: Sequence[str]) -> range:
        """Return the range of image numbers of some splits; raises as `rows`."""
        rows = self.rows(splits)
        return range(int(self.image[rows.start]), int(self.image[rows.stop - 1]) + 1)

    def references(self, images: Iterable[int], first: int | None = REFERENCES) -> References:
        """Return the reference sets of images.

        Parameters
        ----------
        images : iterable of int
            Image numbers.
        first : int or None
            Keep this many captions of each image, in position order; None keeps all.
        """
        m = np.fromiter(images, np.int64)
        starts = self.indptr[m]
        sizes = self.indptr[m + 1] - starts
        if first is not None:
            sizes = np.minimum(sizes, first)
        indptr = np.zeros(len(m) + 1, dtype=np.int64)
        np.cumsum(sizes, out=indptr[1:])
        rows = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)
        return References(indptr, rows.astype(np.int32))
