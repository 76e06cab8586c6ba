"""Construction of the corpus table: captions are checked, sorted and numbered.

Images are in the natural order of their ids: digits sort as numbers. The captions of an image are in the order of the
file, or of their positions if the file has them (`IMAGE#K`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.store.arrays import map_tables

SPLITS = ("train", "val", "test")
"""Splits of a corpus, in row order. Karpathy's `restval` belongs to train."""

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32(), nullable=False),
        pa.field("caption_id", pa.string(), nullable=False),
        pa.field("image_id", pa.string(), nullable=False),
        pa.field("image", pa.int32(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
"""Columns of a corpus. `image` numbers images in row order, and `position` the captions of an image from 0."""

_FILE_SCHEMA = pa.schema(
    {
        **{name: pa.string() for name in ("caption_id", "image_id", "split", "text", "where")},
        "position": pa.int32(),
        "hash": pa.int64(),
    }
)
"""Columns of captions in file order. `hash`: hash of the text, used to find equal texts."""

LONGEST = 10_000
"""Maximum number of characters of an id."""
_CHUNK = 1 << 16  # captions in memory as Python objects
_DIGITS = re.compile(r"([0-9]+)")


class Caption(NamedTuple):
    """One caption from a reader.

    `where`: file and line or record, for messages.
    `position`: sort key of the captions of an image. Equal positions keep the order of the file.
    """

    caption_id: str
    image_id: str
    split: str
    text: str
    where: str = ""
    position: int = 0


RowIds = str | list[str | None] | None
"""Caption ids of one row of a table: an id, or a list if the row has several captions. None if left out."""


@dataclass(frozen=True, eq=False)
class CaptionRows:
    """Captions in the row order of a corpus. The table is built range by range.

    `columns`: captions in file order, with caption_id, image_id, text and where.
    `order`: (N,) int64; index into `columns` of the caption of each row.
    `split`: (N,) int8; index into `SPLITS` of each row.
    `image`, `position`: (N,) int32; columns of `SCHEMA`.
    `repeats`: ascending indices into `columns` of captions that repeat an earlier text of their image.
    """

    columns: pa.Table
    order: NDArray[np.int64]
    split: NDArray[np.int8]
    image: NDArray[np.int32]
    position: NDArray[np.int32]
    repeats: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def splits(self) -> dict[str, range]:
        """Range of rows of each split with captions, in row order."""
        bounds = np.searchsorted(self.split, np.arange(len(SPLITS) + 1)).tolist()
        return {name: range(a, b) for name, (a, b) in zip(SPLITS, pairwise(bounds), strict=True) if a < b}

    def table(self, rows: range) -> pa.Table:
        """Return the table of a range of rows, with `SCHEMA`."""
        part = slice(rows.start, rows.stop)
        captions = _take(self.columns.select(["caption_id", "image_id", "text"]), self.order[part])
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "caption_id": captions["caption_id"],
                "image_id": captions["image_id"],
                "image": self.image[part],
                "split": pa.array(SPLITS).take(pa.array(self.split[part])),
                "position": self.position[part],
                "text": captions["text"],
            },
            schema=SCHEMA,
        )


def arrange(
    captions: Iterable[Caption], spill: Path | None = None, where: str | None = None, drop_repeats: bool = False
) -> CaptionRows:
    """Check captions and sort them by split, image id in natural order, and position.

    `spill`: temporary file that holds the captions instead of memory; it is removed at the end. `where`: location of
    the captions, for the error if there are none. `drop_repeats`: keep only the first of equal texts of an image.
    """
    tables = map(_checked, _file_tables(captions))
    if spill is None:
        columns = pa.concat_tables([*tables, _FILE_SCHEMA.empty_table()])
    else:
        columns = map_tables(spill, tables, _FILE_SCHEMA)
    if not len(columns):
        raise CheckError("no captions", where=where)
    return _sort(columns, drop_repeats)


def _sort(columns: pa.Table, drop_repeats: bool) -> CaptionRows:
    """Sort captions; raise CheckError for a repeated caption id, or an image in two splits."""
    split = pc.index_in(columns["split"], pa.array(SPLITS)).to_numpy().astype(np.int8)
    images = columns["image_id"].dictionary_encode().combine_chunks()
    image_rank = natural_rank(images.dictionary).astype(np.int32)[images.indices.to_numpy()]
    # `lexsort` sorts by its last key first, and is stable.
    order = np.lexsort((columns["position"].to_numpy(), image_rank, split))
    # A row starts a new image if its rank or split differs from that of the previous row.
    changes = [np.diff(values[order], prepend=values[order[:1]]) != 0 for values in (image_rank, split)]
    image = np.cumsum(np.any(changes, axis=0), dtype=np.int32)
    repeated = _repeated(columns["hash"].to_numpy()[order], image)
    repeats = np.sort(order[repeated])
    if drop_repeats:
        order, image = order[~repeated], image[~repeated]
    # `bincount` of older numpy versions does not accept unsigned integers.
    id_rank = pc.rank(columns["caption_id"], tiebreaker="dense").to_numpy().astype(np.int64)
    # An image in two splits gives two groups of rows, so there are more groups than images.
    if np.bincount(id_rank[order]).max() > 1 or len(np.unique(image_rank)) <= image[-1]:
        _refuse(columns, order, id_rank, image_rank, split)
    # The position is the index of a row within its image.
    starts = np.searchsorted(image, np.arange(image[-1] + 1, dtype=np.int32))
    position = np.arange(len(order)) - starts[image]
    return CaptionRows(columns, order, split[order], image, position.astype(np.int32), repeats)


def _repeated(texts: NDArray[np.int64], image: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Mark captions that repeat an earlier text of their image. `texts`: hashes; `image`: ascending numbers."""
    repeated = np.zeros(len(image), np.bool_)
    starts = np.unique(np.searchsorted(image, image[::_CHUNK])).tolist()
    # Chunks of whole images limit the memory.
    for a, b in pairwise([*starts, len(image)]):
        order = a + np.lexsort((texts[a:b], image[a:b]))
        same = (np.diff(texts[order]) == 0) & (np.diff(image[order]) == 0)
        repeated[order[1:][same]] = True
    return repeated


def natural_key(identifier: str) -> str:
    """Return a sort key for the natural order of ids. Ids must not contain a zero character."""
    parts = _DIGITS.split(identifier)
    # Parts end with the zero character, because it sorts first. Numbers start with their count of digits.
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        parts[i] = f"{chr(len(digits) + 1)}{digits}{parts[i]}"
    return "\0".join(parts)


def natural_rank(ids: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the rank of each id in natural order, (N,) int64. Equal ids have equal ranks."""
    parts = (ids.slice(start, _CHUNK).to_pylist() for start in range(0, len(ids), _CHUNK))
    keys = pa.chunked_array([pa.array(list(map(natural_key, part)), pa.string()) for part in parts])
    return np.asarray(pc.rank(keys, tiebreaker="dense"), np.int64)


def _take(columns: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
    """Take rows of a table in chunks of `_CHUNK` rows, because Arrow's `take` joins all chunks in memory."""
    by_number = np.argsort(numbers, kind="stable")
    ascending = numbers[by_number]
    batches = columns.to_batches()
    bounds = np.searchsorted(ascending, np.arange(len(batches) + 1) * _CHUNK).tolist()
    parts = [
        batches[i].take(pa.array(ascending[a:b] - i * _CHUNK)) for i, (a, b) in enumerate(pairwise(bounds)) if a < b
    ]
    return pa.Table.from_batches(parts).combine_chunks().take(pa.array(np.argsort(by_number)))


def _file_tables(captions: Iterable[Caption]) -> Iterator[pa.Table]:
    """Yield captions in tables with `_FILE_SCHEMA`. A caption without a place is located by its id."""
    reader = iter(captions)
    while chunk := [c if c.where else c._replace(where=c.caption_id) for c in islice(reader, _CHUNK)]:
        # Python's hashes have 64 bits and a random key, so different texts of one image practically never collide.
        columns = [*zip(*chunk, strict=True), [hash(c.text) for c in chunk]]
        try:
            yield pa.table(dict(zip(_FILE_SCHEMA.names, columns, strict=True)), schema=_FILE_SCHEMA)
        # JSON can hold a lone surrogate, but UTF-8 cannot.
        except UnicodeEncodeError as error:
            where = next(c.where for c in chunk if not is_unicode("".join(map(str, c))))
            raise CheckError("not Unicode text", where=where) from error


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _caption(table: pa.Table, number: int) -> Caption:
    return Caption(*table.select(Caption._fields).slice(number, 1).to_pylist()[0].values())


def _checked(table: pa.Table) -> pa.Table:
    """Check each caption separately; return the table, or raise CheckError for the first invalid caption."""
    blank = {name: pc.match_substring_regex(table[name], r"^([^:]*:)?\s*$") for name in ("image_id", "caption_id")}
    odd = [
        pc.or_(pc.match_substring(table[name], "\0"), pc.greater(pc.utf8_length(table[name]), LONGEST))
        for name in blank
    ]
    faults = {
        "the image id is blank": blank["image_id"],
        "the caption id is blank": blank["caption_id"],
        "caption {0.caption_id} is empty": pc.equal(pc.utf8_trim_whitespace(table["text"]), ""),
        "unknown split {0.split!r}": pc.invert(pc.is_in(table["split"], pa.array(SPLITS))),
        f"ids with a zero character or more than {LONGEST:,} characters": pc.or_(*odd),
    }
    rows = {fault: pc.index(mask, True).as_py() for fault, mask in faults.items()}
    if bad_rows := {fault: row for fault, row in rows.items() if row >= 0}:
        fault = min(bad_rows, key=bad_rows.__getitem__)
        caption = _caption(table, bad_rows[fault])
        hint = "Add the id of the image, or remove the caption." if "image" in fault else None
        raise CheckError(fault.format(caption), where=caption.where, hint=hint)
    return table


def _refuse(
    columns: pa.Table,
    order: NDArray[np.int64],
    id_rank: NDArray[np.int64],
    image_rank: NDArray[np.int32],
    split: NDArray[np.int8],
) -> None:
    """Raise for the first caption, in file order, that repeats an id or is in another split than its image."""
    first_of_id: dict[int, int] = {}
    split_of_image: dict[int, int] = {}
    for number in sorted(order.tolist()):
        rank, image, part = (values[number] for values in (id_rank, image_rank, split))
        first, earlier = first_of_id.setdefault(rank, number), split_of_image.setdefault(image, part)
        if first != number or earlier != part:
            caption = _caption(columns, number)
            problem = f"image {caption.image_id} is in two splits, {SPLITS[earlier]} and {caption.split}"
            hint = None
            if first != number:
                problem = f"caption id {caption.caption_id} appears twice (first: {columns['where'][first]})"
                hint = "If ids are unique only within a file, pass --ids shard. If they are unique only within an "
                hint += "image, generate them with --set 'ingest.caption_id_column=\"\"'."
            raise CheckError(problem, where=caption.where, hint=hint)
