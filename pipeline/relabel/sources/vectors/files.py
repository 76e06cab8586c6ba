"""Embeddings that the user already has: files of vectors with the ids they belong to, in three formats.

- `.npy`, (n, D) numbers; ids in a file of their own.
- `.parquet`, columns `id` and `vector` (a list of numbers, all of one length).
- `.safetensors`, one two-dimensional tensor (or the one that is named); ids in a file of their own.

A file of ids is `.txt` (one a line), `.json` (a list) or `.npy`; it is looked for beside the vectors, under the same
name with `.ids` (`clip.npy`: `clip.ids.txt`, `clip.ids.json`, `clip.ids.npy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.parsing import identifier, read_json, read_lines
from relabel.core.user_files import check_regular, is_file
from relabel.corpus.readers.tables import DAMAGE, check_column, first_line
from relabel.store.atomic import sha256_file
from relabel_train.npy_file import map_npy

IDS = (".ids.txt", ".ids.json", ".ids.npy")
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Given:
    """Vectors by id.

    Attributes
    ----------
    path : Path
    place : dict of str to int
        Id to row of `vectors`.
    vectors : (n, D) float
        Mapped from the file where its format allows.
    """

    path: Path
    place: dict[str, int]
    vectors: NDArray[Any]

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self.vectors.shape[1])

    def places(self, ids: Sequence[str], what: str) -> NDArray[np.int64]:
        """Find the rows of a corpus's ids: `coco:123` under that name, else under `123`.

        Raises
        ------
        CheckError
            If any is not there, naming the first few.
        """
        get = self.place.get
        found = np.fromiter((get(i, -1) for i in ids), np.int64, len(ids))
        for i in np.flatnonzero(found < 0).tolist():
            found[i] = get(ids[i].partition(":")[2], -1)
        if len(lacking := np.flatnonzero(found < 0)):
            first = ", ".join(ids[i] for i in lacking[:_SHOWN])
            known = ", ".join(list(self.place)[:2])
            message = f"no vector for {len(lacking):,} of {len(ids):,} {what}: {first}; its ids look like {known}"
            raise CheckError(message, where=str(self.path), todo=f"Add them, or leave these {what} out of the corpus.")
        return found


def read_given(path: Path, ids: Path | None = None, tensor: str | None = None) -> Given:
    """Open a file of vectors.

    Parameters
    ----------
    path : Path
    ids : Path, optional
        The file of ids, where it does not lie beside under the same name.
    tensor : str, optional
        Of a safetensors file with several.

    Raises
    ------
    MissingError
        If a file is not there.
    CheckError
        If it is not of its format, vectors are of unequal width, or ids and vectors differ in number or one id comes
        twice.
    UsageError
        If its format is unknown, or a safetensors file has several tensors and none is named.
    """
    _check(path)
    try:
        if path.suffix == ".parquet":
            names, vectors = _parquet(path)
        else:
            vectors = map_npy(path) if path.suffix == ".npy" else _safetensors(path, tensor)
            names = _ids(path, ids)
    except DAMAGE as error:
        raise CheckError(f"not a readable {path.suffix} file: {first_line(error)}", where=str(path)) from error
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise CheckError(f"expected (n, width) numbers, found {vectors.dtype} {vectors.shape}", where=str(path))
    if len(names) != len(vectors):
        raise CheckError(f"{len(vectors):,} vectors and {len(names):,} ids", where=str(path))
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        twice = next(name for i, name in enumerate(names) if place[name] != i)
        raise CheckError(f"id {twice} is there twice", where=str(path))
    return Given(path, place, vectors)


def given_files(path: Path, ids: Path | None = None) -> dict[str, str]:
    """sha256 of a file of vectors and of its ids; raises as `read_given`."""
    _check(path)
    found = {"vectors": sha256_file(path)}
    return found if path.suffix == ".parquet" else found | {"ids": sha256_file(_ids_file(path, ids))}


def _check(path: Path) -> None:
    if path.suffix not in _READERS:
        raise UsageError(f"vectors come as {', '.join(_READERS)}", where=str(path))
    check_regular(path, "no such file of vectors")


def _safetensors(path: Path, tensor: str | None) -> NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            if tensor is None and len(names) != 1:
                raise UsageError(f"it holds {', '.join(names)}", where=str(path), todo="Say which with `tensor`.")
            if tensor is not None and tensor not in names:
                raise UsageError(f"no tensor {tensor}; it holds {', '.join(names)}", where=str(path))
            return np.asarray(file.get_tensor(tensor or names[0]))
    except (SafetensorError, TypeError) as error:  # TypeError: bfloat16, which numpy has not
        raise ValueError(str(error)) from error


def _parquet(path: Path) -> tuple[list[str], NDArray[Any]]:
    schema = pq.read_schema(path)
    if missing := {"id", "vector"} - set(schema.names):
        lacking = ", ".join(sorted(missing))
        raise CheckError(f"no column {lacking}; it has {', '.join(schema.names)}", where=str(path))
    check_column(schema, "id", str(path))
    kind = schema.field("vector").type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    numbers = (pa.types.is_floating, pa.types.is_integer)
    if not (any(test(kind) for test in lists) and any(test(kind.value_type) for test in numbers)):
        raise CheckError(f"column 'vector': expected lists of numbers, found {kind}", where=str(path))
    table = pq.read_table(path, columns=["id", "vector"]).combine_chunks()
    column = table["vector"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    ids = _names(table["id"].to_pylist(), path)
    if not ids:
        raise CheckError("no vectors in this file", where=str(path))
    sizes = np.diff(column.offsets.to_numpy()) if not pa.types.is_fixed_size_list(column.type) else None
    if column.null_count or (sizes is not None and len(set(sizes.tolist())) > 1):
        odd = int(np.flatnonzero(sizes != sizes[0])[0]) if sizes is not None and not column.null_count else None
        where = "a vector is null" if odd is None else f"expected {sizes[0]} numbers, found {sizes[odd]} for {ids[odd]}"  # type: ignore[index]
        raise CheckError(f"vectors of unequal width: {where}", where=str(path))
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return ids, flat.reshape(len(ids), -1)


def _ids_file(path: Path, ids: Path | None) -> Path:
    there = [ids] if ids is not None else [path.with_suffix(end) for end in IDS]
    found = next((file for file in there if is_file(file)), None)
    if found is None:
        names = ", ".join(file.name for file in there)
        todo = "Write one id a line, in the order of the vectors."
        raise MissingError(f"no ids for {path.name}: looked for {names}", where=str(path.parent), todo=todo)
    return found


def _ids(path: Path, ids: Path | None) -> list[str]:
    file = _ids_file(path, ids)
    if file.suffix == ".npy":
        try:
            array = map_npy(file)
        except ValueError as error:
            raise CheckError(str(error), where=str(file)) from error
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise CheckError(f"expected a row of ids, found {array.dtype} {array.shape}", where=str(file))
        return [str(i) for i in array.tolist()]
    if file.suffix == ".json":
        body = read_json(file)
        if not isinstance(body, list):
            raise CheckError("expected a list of ids", where=str(file))
        return _names(body, file)
    return [line for _, line in read_lines(file) if line]


def _names(values: list[object], path: Path) -> list[str]:
    names = [identifier(value, "id", f"{path}: id {n}") for n, value in enumerate(values)]
    if "" in names:
        raise CheckError(f"id {names.index('')} is empty", where=str(path))
    return names


_READERS = (".npy", ".parquet", ".safetensors")
