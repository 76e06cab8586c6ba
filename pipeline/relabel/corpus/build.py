"""Captions as readers yield them, and the checked, sorted and numbered table that is built from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.corpus.natural_order import natural_rank
from relabel.store.arrays import map_tables

SPLITS = ("train", "val", "test")
"""Splits of a corpus, in row order. Karpathy's `restval` is part of train."""

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
"""Columns of a corpus. `image` numbers images in row order, and `position` the captions of an image from 0. `tokens`
holds PTB tokens joined by one space, or null if the corpus was not tokenised."""

_FILE_SCHEMA = pa.schema(
    [
        pa.field("caption_id", pa.string()),
        pa.field("image_id", pa.string()),
        pa.field("split", pa.int8()),
        pa.field("text", pa.string()),
        # The name of a file repeats in every row; its line does not.
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("line", pa.string()),
    ]
)
"""Columns of captions in file order: `split` is a number of `SPLITS`, and `file` and `line` form `Caption.where`."""

_CHUNK = 1 << 16  # captions in memory as Python objects
_NUMERALS = "0123456789"


class Caption(NamedTuple):
    """One caption from a reader. `where` is its file and line or record, for messages."""

    caption_id: str
    image_id: str
    split: str
    text: str
    where: str = ""


@dataclass(frozen=True, eq=False)
class CaptionRows:
    """Captions in the row order of a corpus, whose table is made range by range.

    `columns`: captions in file order, with caption_id, image_id and text.
    `order`: (N,) int64; number in `columns` of the caption of each row.
    `split`: (N,) int8; number of the split of each row.
    `image`, `position`: (N,) int32; columns of `SCHEMA`.
    """

    columns: pa.Table
    order: NDArray[np.int64]
    split: NDArray[np.int8]
    image: NDArray[np.int32]
    position: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def splits(self) -> dict[str, range]:
        """Range of rows of each split with captions, in row order."""
        bounds = np.searchsorted(self.split, np.arange(len(SPLITS) + 1)).tolist()
        return {name: range(a, b) for name, (a, b) in zip(SPLITS, pairwise(bounds), strict=True) if a < b}

    def table(self, rows: range) -> pa.Table:
        """Return the table of a range of rows, with `SCHEMA` and without tokens."""
        part = slice(rows.start, rows.stop)
        captions = _take(self.columns, self.order[part])
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "caption_id": captions["caption_id"],
                "image_id": captions["image_id"],
                "image": self.image[part],
                "split": pa.array(SPLITS).take(pa.array(self.split[part])),
                "position": self.position[part],
                "text": captions["text"],
                "tokens": pa.nulls(len(rows), pa.string()),
            },
            schema=SCHEMA,
        )


def arrange(captions: Iterable[Caption], spill: Path | None = None) -> CaptionRows:
    """Check and sort captions by split, then image id and caption id in natural order.

    `spill`: file that holds the captions while they are in use, in place of memory. It is removed.
    """
    faults: list[CheckError] = []
    tables = _file_tables(captions, faults)
    if spill is None:
        columns = pa.concat_tables(list(tables) or [_FILE_SCHEMA.empty_table()])
    else:
        columns = map_tables(spill, tables, _FILE_SCHEMA)
    if len(columns):
        rows = _sort(columns)
    # An id that repeats before the fault comes first.
    if faults:
        raise faults[0]
    if not len(columns):
        raise CheckError("no captions at all")
    return rows


def _sort(columns: pa.Table) -> CaptionRows:
    """Sort captions; raise for the first repeated id or image in two splits."""
    split = columns["split"].to_numpy()
    id_rank, image_rank = natural_rank(columns["caption_id"]), natural_rank(columns["image_id"])
    # The last key of `lexsort` is the first to sort by.
    order = np.lexsort((id_rank, image_rank, split))
    # A new image begins where rank or split changes. Position counts the rows since.
    by_order = image_rank[order], split[order]
    image = np.cumsum(np.any([np.diff(values, prepend=values[:1]) != 0 for values in by_order], axis=0))
    starts = np.searchsorted(image, np.arange(image[-1] + 1))
    # An image in two splits is two groups of rows.
    if len(np.unique(id_rank)) < len(order) or len(np.unique(image_rank)) <= image[-1]:
        _refuse(columns, id_rank, image_rank, split)
    position = np.arange(len(order)) - starts[image]
    return CaptionRows(
        columns.select(["caption_id", "image_id", "text"]),
        order,
        by_order[1],
        image.astype(np.int32),
        position.astype(np.int32),
    )


def _take(columns: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
    """Return some rows of a table in chunks of `_CHUNK` rows; Arrow's `take` would join all chunks in memory."""
    by_number = np.argsort(numbers, kind="stable")
    ascending = numbers[by_number]
    batches = columns.to_batches()
    bounds = np.searchsorted(ascending, np.arange(len(batches) + 1) * _CHUNK).tolist()
    parts = [
        batches[i].take(pa.array(ascending[a:b] - i * _CHUNK)) for i, (a, b) in enumerate(pairwise(bounds)) if a < b
    ]
    return pa.Table.from_batches(parts).combine_chunks().take(pa.array(np.argsort(by_number)))


def caption_table(captions: Iterable[Caption], tokens: Sequence[str] | None = None) -> pa.Table:
    """Check, sort and number captions.

    `tokens`: PTB tokens of each caption, in the order of `captions`. Returns pyarrow.Table: with `SCHEMA`, sorted by
    split, then image id and caption id in natural order.
    """
    rows = arrange(captions)
    table = rows.table(range(len(rows)))
    if tokens is None:
        return table
    column = pa.array(tokens, pa.string()).take(pa.array(rows.order))
    return table.set_column(SCHEMA.get_field_index("tokens"), SCHEMA.field("tokens"), column)


def _file_tables(captions: Iterable[Caption], faults: list[CheckError]) -> Iterator[pa.Table]:
    """Yield captions in tables of `_CHUNK` rows with `_FILE_SCHEMA`, up to the first caption that is invalid by itself.

    Its error is appended to `faults`.
    """
    reader = iter(captions)
    while not faults and (chunk := list(islice(reader, _CHUNK))):
        ids, image_ids, splits, texts, _ = zip(*chunk, strict=True)
        if not (all(ids) and all(image_ids) and all(map(str.strip, texts)) and set(splits) <= set(SPLITS)):
            number, fault = next((n, fault) for n, one in enumerate(chunk) if (fault := _fault(one)) is not None)
            faults.append(fault)
            if not (chunk := chunk[:number]):
                return
        yield _file_table(chunk)


def _file_table(chunk: Sequence[Caption]) -> pa.Table:
    ids, image_ids, splits, texts, wheres = zip(*chunk, strict=True)
    files = [where.rstrip(_NUMERALS) for where in wheres]
    lines = [where[len(file) :] for where, file in zip(wheres, files, strict=True)]
    columns = {
        "caption_id": _strings(chunk, ids),
        "image_id": _strings(chunk, image_ids),
        "split": pc.index_in(pa.array(splits), pa.array(SPLITS)).cast(pa.int8()),
        "text": _strings(chunk, texts),
        "file": pa.array(files, pa.string()).dictionary_encode(),
        "line": pa.array(lines, pa.string()),
    }
    return pa.table(columns, schema=_FILE_SCHEMA)


def _strings(chunk: Sequence[Caption], values: Sequence[str]) -> pa.Array:
    """Return an Arrow array of strings. Raise for a lone surrogate, which JSON can hold and UTF-8 cannot."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Arrow's error names no value, so the caption at fault is searched.
        for caption, value in zip(chunk, values, strict=True):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise CheckError(f"not Unicode text: {error.reason}", where=caption.where) from error
        raise


def _fault(caption: Caption) -> CheckError | None:
    """Return the error of a caption that is invalid by itself, else None."""
    where = caption.where or caption.caption_id
    if not caption.caption_id:
        return CheckError("a caption without an id", where=where)
    if not caption.image_id:
        return CheckError(f"caption {caption.caption_id} has no image", where=where)
    if not caption.text.strip():
        return CheckError(f"caption {caption.caption_id} is empty", where=where)
    if caption.split not in SPLITS:
        return CheckError(f"unknown split {caption.split!r}", where=where, todo=f"Known: {', '.join(SPLITS)}.")
    return None


def _refuse(
    columns: pa.Table, id_rank: NDArray[np.int64], image_rank: NDArray[np.int64], split: NDArray[np.int8]
) -> None:
    """Raise for the first caption, in file order, that repeats an id or has an image of another split."""
    first_of_id, first_of_image = _first_equal(id_rank), _first_equal(image_rank)
    repeated = first_of_id < np.arange(len(columns))
    number = int(np.argmax(repeated | (split != split[first_of_image])))
    caption = _caption_at(columns, number)
    if repeated[number]:
        first = _caption_at(columns, int(first_of_id[number])).where
        raise CheckError(f"caption id {caption.caption_id} appears twice (first: {first})", where=caption.where)
    splits = f"{SPLITS[split[first_of_image[number]]]} and {caption.split}"
    raise CheckError(f"image {caption.image_id} is in two splits, {splits}", where=caption.where)


def _first_equal(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for every value, the first position with an equal one."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    return first[inverse]


def _caption_at(columns: pa.Table, number: int) -> Caption:
    """Return a caption in file order; its place is its id if the reader named none."""
    caption_id, image_id, split, text, file, line = columns.slice(number, 1).to_pylist()[0].values()
    return Caption(caption_id, image_id, SPLITS[split], text, f"{file}{line}" or caption_id)
