"""Captions as readers yield them, and the checked, sorted and numbered table made of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import CheckError

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


class Caption(NamedTuple):
    """One caption of a reader; `where` is its file and line or record, for messages."""

    caption_id: str
    image_id: str
    split: str
    text: str
    where: str = ""


class _Columns(NamedTuple):
    """Captions column by column, in file order: a quarter of the memory of as many tuples."""

    caption_id: list[str]
    image_id: list[str]
    split: list[str]
    text: list[str]
    where: list[str]


def natural_key(identifier: str) -> tuple[object, ...]:
    """Return a sort key that orders the digits inside ids as numbers: `coco:9` before `coco:10`."""
    parts = re.split(r"([0-9]+)", identifier)
    # A number sorts by its count of digits, then by its digits: Python converts at most 4,300 digits to an int.
    return tuple((0, len(n := p.lstrip("0")), n, p) if p.isdecimal() and p.isascii() else (1, 0, "", p) for p in parts)


def natural_rank(ids: pa.Array) -> NDArray[np.int64]:
    """Return numbers that sort as `natural_key` does.

    Parameters
    ----------
    ids : (N,) pyarrow string array, no nulls

    Returns
    -------
    (N,) int64
        Equal for equal ids, smaller for ids that come first. Ids of one prefix and plain numbers are their own ranks.
    """
    numbers = _numbers(ids)
    if numbers is not None:
        return numbers
    encoded = ids.dictionary_encode()
    keys = [natural_key(name) for name in encoded.dictionary.to_pylist()]
    rank = np.empty(len(keys), np.int64)
    rank[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    ranks: NDArray[np.int64] = rank[encoded.indices.to_numpy()]
    return ranks


def caption_table(captions: Iterable[Caption], tokens: Sequence[str] | None = None) -> pa.Table:
    """Check, sort and number captions; see Corpus.from_captions.

    Returns
    -------
    pyarrow.Table
        With `SCHEMA`, sorted by split, then image id and caption id in natural order.
    """
    columns = _Columns([], [], [], [], [])
    adders = [column.append for column in columns]
    for caption in captions:
        for add, value in zip(adders, caption, strict=True):
            add(value)
    _check(columns)
    ids = _strings(columns, columns.caption_id)
    image_ids = _strings(columns, columns.image_id)
    texts = _strings(columns, columns.text)
    split = pc.index_in(pa.array(columns.split), pa.array(SPLITS)).to_numpy()
    image_rank = natural_rank(image_ids)
    order = np.lexsort((natural_rank(ids), image_rank, split))
    image = np.cumsum(np.diff(image_rank[order], prepend=image_rank[order[:1]]) != 0)
    starts = np.searchsorted(image, np.arange(image[-1] + 1))
    rows = np.arange(len(order))
    return pa.table(
        {
            "row": rows.astype(np.int32),
            "caption_id": ids.take(order),
            "image_id": image_ids.take(order),
            "image": image.astype(np.int32),
            "split": pa.array(SPLITS).take(split[order]),
            "position": (rows - starts[image]).astype(np.int32),
            "text": texts.take(order),
            "tokens": pa.nulls(len(order), pa.string()) if tokens is None else pa.array(tokens).take(order),
        },
        schema=SCHEMA,
    )


def table_digest(table: pa.Table) -> str:
    """Return the sha256 of every value of a corpus that can change a label, whatever the chunks of the table."""
    digest = hashlib.sha256()
    for name in ("caption_id", "image_id", "split", "text", "tokens"):
        column = table[name]
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy().astype("<i8")
        digest.update(f"{name}\0{len(lengths)}\0".encode())
        digest.update(lengths.tobytes())
        for chunk in pc.fill_null(column, "").chunks:
            digest.update(_string_bytes(chunk))
    return digest.hexdigest()


def _numbers(ids: pa.Array) -> NDArray[np.int64] | None:
    """Return the numbers of ids that are all one prefix and a plain decimal number, else None."""
    first: str = ids[0].as_py()
    prefix = first.rstrip("0123456789")
    if not pc.all(pc.starts_with(ids, prefix)).as_py():
        return None
    rest = pc.utf8_slice_codeunits(ids, len(prefix))
    if not pc.all(pc.match_substring_regex(rest, r"^(?:0|[1-9][0-9]{0,17})$")).as_py():
        return None
    numbers: NDArray[np.int64] = pc.cast(rest, pa.int64()).to_numpy()
    return numbers


def _string_bytes(chunk: pa.StringArray) -> memoryview:
    """Return the UTF-8 bytes of a string array without nulls, end to end."""
    _, offsets, data = chunk.buffers()
    if data is None or not len(chunk):
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32)
    return memoryview(data)[ends[chunk.offset] : ends[chunk.offset + len(chunk)]]


def _strings(columns: _Columns, values: list[str]) -> pa.Array:
    """Make an Arrow array of strings; a lone surrogate, which JSON can hold and UTF-8 cannot, is refused."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        for where, value in zip(columns.where, values, strict=True):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise CheckError(f"not Unicode text: {error.reason}", where=where) from error
        raise


def _check(columns: _Columns) -> None:
    """Refuse invalid captions; the first one is searched only if a fast check of all columns fails."""
    ids, image_ids, splits, texts, _ = columns
    if not ids:
        raise CheckError("no captions at all")
    images = set(image_ids)
    fine = (
        all(ids)
        and all(images)
        and all(map(str.strip, texts))
        and set(splits) <= set(SPLITS)
        and len(set(ids)) == len(ids)
        and len(set(zip(image_ids, splits, strict=True))) == len(images)
    )
    if not fine:
        _refuse(columns)


def _refuse(columns: _Columns) -> NoReturn:
    seen: dict[str, str] = {}
    split_of: dict[str, str] = {}
    for caption in map(Caption, *columns):
        where = caption.where or caption.caption_id
        if not caption.caption_id:
            raise CheckError("a caption without an id", where=where)
        if not caption.image_id:
            raise CheckError(f"caption {caption.caption_id} has no image", where=where)
        if not caption.text.strip():
            raise CheckError(f"caption {caption.caption_id} is empty", where=where)
        if caption.split not in SPLITS:
            raise CheckError(f"unknown split {caption.split!r}", where=where, todo=f"Known: {', '.join(SPLITS)}.")
        if caption.caption_id in seen:
            first = seen[caption.caption_id]
            raise CheckError(f"caption id {caption.caption_id} is there twice (first: {first})", where=where)
        seen[caption.caption_id] = where
        if split_of.setdefault(caption.image_id, caption.split) != caption.split:
            splits = f"{split_of[caption.image_id]} and {caption.split}"
            raise CheckError(f"image {caption.image_id} is in two splits, {splits}", where=where)
    raise AssertionError("a check failed that no caption fails")
