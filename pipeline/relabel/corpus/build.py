"""Captions as readers yield them, and the checked, sorted and numbered table that is built from them."""

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


class Caption(NamedTuple):
    """One caption from a reader. `where` is its file and line or record, for messages."""

    caption_id: str
    image_id: str
    split: str
    text: str
    where: str = ""


class _Columns(NamedTuple):
    """Captions by column, in file order, in a quarter of the memory of the same number of tuples."""

    caption_id: list[str]
    image_id: list[str]
    split: list[str]
    text: list[str]
    where: list[str]


def natural_key(identifier: str) -> tuple[object, ...]:
    """Return a sort key that orders the digits inside ids as numbers.

    Examples
    --------
    >>> sorted(["coco:10", "coco:9"], key=natural_key)
    ['coco:9', 'coco:10']
    """
    parts = re.split(r"([0-9]+)", identifier)
    # A number sorts by its count of digits, then by its digits. Python converts at most 4,300 digits to an int.
    return tuple((0, len(n := p.lstrip("0")), n, p) if p.isdecimal() and p.isascii() else (1, 0, "", p) for p in parts)


def natural_rank(ids: pa.Array) -> NDArray[np.int64]:
    """Return integers that sort like `natural_key`.

    Parameters
    ----------
    ids : (N,) pyarrow string array, no nulls

    Returns
    -------
    (N,) int64
        Equal for equal ids, smaller for ids that come first. They need not be consecutive.

    Examples
    --------
    >>> import pyarrow as pa
    >>> natural_rank(pa.array(["coco:10", "coco:9"])).tolist()
    [10, 9]
    >>> natural_rank(pa.array(["b1", "a10", "a9"])).tolist()
    [2, 1, 0]
    """
    # Ids of one prefix and a plain number are their own ranks, which saves sorting 600,000 keys in Python.
    numbers = _numbers(ids)
    if numbers is not None:
        return numbers
    # Each distinct id gets one key: the captions of an image share its id.
    encoded = ids.dictionary_encode()
    keys = [natural_key(name) for name in encoded.dictionary.to_pylist()]
    rank = np.empty(len(keys), np.int64)
    rank[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    ranks: NDArray[np.int64] = rank[encoded.indices.to_numpy()]
    return ranks


def caption_table(captions: Iterable[Caption], tokens: Sequence[str] | None = None) -> pa.Table:
    """Check, sort and number captions.

    Parameters
    ----------
    captions : iterable of Caption
    tokens : sequence of str, optional
        PTB tokens of each caption, in the order of `captions`.

    Returns
    -------
    pyarrow.Table
        With `SCHEMA`, sorted by split, then image id and caption id in natural order.

    Raises
    ------
    CheckError
        Like `Corpus.from_captions`.

    Examples
    --------
    >>> table = caption_table([Caption("c:10", "i:1", "test", "a dog"), Caption("c:9", "i:1", "test", "a pup")])
    >>> table["caption_id"].to_pylist(), table["position"].to_pylist()
    (['c:9', 'c:10'], [0, 1])
    """
    # The captions come one by one and are kept by column.
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
    # The last key of `lexsort` is the first to sort by.
    order = np.lexsort((natural_rank(ids), image_rank, split))
    # A new image begins where the rank changes. Position counts the rows since.
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
    """Return the sha256 of all values of a corpus that can change a label, independent of the chunks of the table."""
    digest = hashlib.sha256()
    for name in ("caption_id", "image_id", "split", "text", "tokens"):
        column = table[name]
        # Lengths are hashed first, so that moving a character from one text to the next changes the digest. -1 marks a
        # null, which differs from an empty string.
        lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy().astype("<i8")
        digest.update(f"{name}\0{len(lengths)}\0".encode())
        digest.update(lengths.tobytes())
        for chunk in pc.fill_null(column, "").chunks:
            digest.update(_string_bytes(chunk))
    return digest.hexdigest()


def _numbers(ids: pa.Array) -> NDArray[np.int64] | None:
    """Return the numbers of ids that consist of one common prefix and a plain decimal number, else None."""
    first: str = ids[0].as_py()
    prefix = first.rstrip("0123456789")
    if not pc.all(pc.starts_with(ids, prefix)).as_py():
        return None
    rest = pc.utf8_slice_codeunits(ids, len(prefix))
    # At most 18 digits fit an int64. A leading zero would make two ids one number.
    if not pc.all(pc.match_substring_regex(rest, r"^(?:0|[1-9][0-9]{0,17})$")).as_py():
        return None
    numbers: NDArray[np.int64] = pc.cast(rest, pa.int64()).to_numpy()
    return numbers


def _string_bytes(chunk: pa.StringArray) -> memoryview:
    """Return the concatenated UTF-8 bytes of a string array without nulls."""
    _, offsets, data = chunk.buffers()
    if data is None or not len(chunk):
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32)
    return memoryview(data)[ends[chunk.offset] : ends[chunk.offset + len(chunk)]]


def _strings(columns: _Columns, values: list[str]) -> pa.Array:
    """Return an Arrow array of strings. Raise for a lone surrogate, which JSON can hold and UTF-8 cannot."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        # Arrow's error names no value, so the caption at fault is searched.
        for where, value in zip(columns.where, values, strict=True):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise CheckError(f"not Unicode text: {error.reason}", where=where) from error
        raise


def _check(columns: _Columns) -> None:
    """Raise for invalid captions. The first one is searched only if a fast check of all columns fails."""
    ids, image_ids, splits, texts, _ = columns
    if not ids:
        raise CheckError("no captions at all")
    images = set(image_ids)
    valid = (
        all(ids)
        and all(images)
        and all(map(str.strip, texts))
        and set(splits) <= set(SPLITS)
        and len(set(ids)) == len(ids)
        and len(set(zip(image_ids, splits, strict=True))) == len(images)
    )
    if not valid:
        _refuse(columns)


def _refuse(columns: _Columns) -> NoReturn:
    """Raise for the first invalid caption, in file order."""
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
            raise CheckError(f"caption id {caption.caption_id} appears twice (first: {first})", where=where)
        seen[caption.caption_id] = where
        if split_of.setdefault(caption.image_id, caption.split) != caption.split:
            splits = f"{split_of[caption.image_id]} and {caption.split}"
            raise CheckError(f"image {caption.image_id} is in two splits, {splits}", where=where)
    raise AssertionError("the columns are invalid, but no caption is")
