"""Captions as readers yield them, and the checked, sorted and numbered table that is built from them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
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


_CHUNK = 1 << 16  # captions in memory as Python objects
_LONGEST = 10_000  # characters of an id whose key is a text
_DIGITS = re.compile(r"([0-9]+)")
_NUMERALS = "0123456789"


class Caption(NamedTuple):
    """One caption from a reader. `where` is its file and line or record, for messages."""

    caption_id: str
    image_id: str
    split: str
    text: str
    where: str = ""


def natural_key(identifier: str) -> tuple[object, ...]:
    """Return a sort key that orders the digits inside ids as numbers.

    Examples
    --------
    >>> sorted(["coco:10", "coco:9"], key=natural_key)
    ['coco:9', 'coco:10']
    """
    parts = _DIGITS.split(identifier)
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
    [3, 2, 1]
    """
    # Ids of one prefix and a plain number are their own ranks, which saves sorting 600,000 keys in Python.
    numbers = _numbers(ids)
    if numbers is not None:
        return numbers
    return _ranks_of_texts(ids)


def _ranks_of_texts(ids: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return the ranks of ids of any form."""
    keys = []
    for start in range(0, len(ids), _CHUNK):
        names = ids.slice(start, _CHUNK).to_pylist()
        if any("\0" in name or len(name) > _LONGEST for name in names):
            return _ranks_of_tuples(ids)
        keys.append(pa.array(list(map(_sortable, names)), pa.string()))
    ranks: NDArray[np.int64] = pc.rank(pa.chunked_array(keys), tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _sortable(identifier: str) -> str:
    """Return a text whose order by code points is that of `natural_key`; the id holds no zero character."""
    parts = _DIGITS.split(identifier)
    # The zero character ends a part, and sorts before any continuation. A number begins with its count of digits.
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        parts[i] = f"{chr(len(digits) + 1)}{digits}{parts[i]}"
    return "\0".join(parts)


def _ranks_of_tuples(ids: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return the ranks of ids by their keys as tuples, which take a hundred times the memory."""
    encoded = pa.concat_arrays(ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids]).dictionary_encode()
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
    columns = _read_columns(captions)
    split = columns["split"].to_numpy()
    ids, image_ids = columns["caption_id"], columns["image_id"]
    id_rank, image_rank = natural_rank(ids), natural_rank(image_ids)
    # The last key of `lexsort` is the first to sort by.
    order = np.lexsort((id_rank, image_rank, split))
    # A new image begins where rank or split changes. Position counts the rows since.
    by_order = image_rank[order], split[order]
    image = np.cumsum(np.any([np.diff(values, prepend=values[:1]) != 0 for values in by_order], axis=0))
    starts = np.searchsorted(image, np.arange(image[-1] + 1))
    # An image in two splits is two groups of rows.
    if len(np.unique(id_rank)) < len(ids) or len(np.unique(image_rank)) <= image[-1]:
        _refuse(_captions_of(columns))
    rows = np.arange(len(order))
    return pa.table(
        {
            "row": rows.astype(np.int32),
            "caption_id": ids.take(order),
            "image_id": image_ids.take(order),
            "image": image.astype(np.int32),
            "split": pa.array(SPLITS).take(pa.array(split[order])),
            "position": (rows - starts[image]).astype(np.int32),
            "text": columns["text"].take(order),
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


def _read_columns(captions: Iterable[Caption]) -> pa.Table:
    """Collect captions by column, in file order; a chunk of them is in memory as Python objects at a time.

    Returns
    -------
    pyarrow.Table
        caption_id, image_id, split (its number), text, and `where` in two columns, file and line.

    Raises
    ------
    CheckError
        If there are no captions, or one is not valid by itself.
    """
    chunks: list[pa.Table] = []
    reader = iter(captions)
    while chunk := list(islice(reader, _CHUNK)):
        ids, image_ids, splits, texts, wheres = zip(*chunk, strict=True)
        if not (all(ids) and all(image_ids) and all(map(str.strip, texts)) and set(splits) <= set(SPLITS)):
            _refuse_first(chunk, chunks)
        files = [where.rstrip(_NUMERALS) for where in wheres]
        lines = [where[len(file) :] for where, file in zip(wheres, files, strict=True)]
        chunks.append(
            pa.table(
                {
                    "caption_id": _strings(chunk, ids),
                    "image_id": _strings(chunk, image_ids),
                    "split": pc.index_in(pa.array(splits), pa.array(SPLITS)).cast(pa.int8()),
                    "text": _strings(chunk, texts),
                    # The name of a file repeats in every row; its line does not.
                    "file": pa.array(files, pa.string()).dictionary_encode(),
                    "line": pa.array(lines, pa.string()),
                }
            )
        )
    if not chunks:
        raise CheckError("no captions at all")
    return pa.concat_tables(chunks)


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


def _captions_of(columns: pa.Table) -> Iterator[Caption]:
    """Yield the captions of a table of `_read_columns`."""
    for batch in columns.to_batches(_CHUNK):
        ids, image_ids, splits, texts, files, lines = (column.to_pylist() for column in batch.columns)
        wheres = (f"{file}{line}" for file, line in zip(files, lines, strict=True))
        yield from map(Caption, ids, image_ids, (SPLITS[split] for split in splits), texts, wheres)


def _refuse_first(chunk: Sequence[Caption], before: Sequence[pa.Table]) -> NoReturn:
    """Raise for the first invalid caption of a chunk or of the chunks before it, in file order."""
    _refuse(chain(chain.from_iterable(map(_captions_of, before)), chunk))


def _refuse(captions: Iterable[Caption]) -> NoReturn:
    """Raise for the first invalid caption, in file order."""
    seen: dict[str, str] = {}
    split_of: dict[str, str] = {}
    for caption in captions:
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
    raise AssertionError("the captions are refused, but none is invalid")
