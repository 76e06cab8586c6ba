"""Readers of files of external vectors with ids, in three formats.

- `.npy`: (n, D) numbers, with ids in a separate file.
- `.parquet`: columns `id` and `vector` (lists of equal length).
- `.safetensors`: one two-dimensional tensor, with ids in a separate file.

A file of ids is `.txt` (one per line), `.json` (a list) or `.npy`. It is next to the vectors and has the same name with
`.ids`: the ids of `clip.npy` are in `clip.ids.txt`, `clip.ids.json` or `clip.ids.npy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.parsing import check_regular, identifier, read_json, read_lines
from relabel.corpus.readers.containers import DAMAGE
from relabel.store.files import input_sha256
from relabel_train.files import map_npy

IDS = (".ids.txt", ".ids.json", ".ids.npy")
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class ExternalVectors:
    """Vectors by id.

    `path`: file of the vectors.
    `row_of`: row of each id in `vectors`.
    `vectors`: (n, D) float; memory-mapped if the format supports it.
    """

    path: Path
    row_of: dict[str, int]
    vectors: NDArray[Any]

    @property
    def width(self) -> int:
        """Dimension D of the vectors."""
        return int(self.vectors.shape[1])

    def rows_of(self, ids: Sequence[str], kind: str) -> NDArray[np.int64]:
        """Return the rows of corpus ids. An id `coco:123` is looked up with its prefix, then as `123`."""
        get = self.row_of.get
        rows = np.fromiter((get(i, -1) for i in ids), np.int64, len(ids))
        # Many files of embeddings have ids without the prefix of the dataset.
        for i in np.flatnonzero(rows < 0).tolist():
            rows[i] = get(ids[i].partition(":")[2], -1)
        if len(absent := np.flatnonzero(rows < 0)):
            first = ", ".join(ids[i] for i in absent[:_SHOWN])
            samples = ", ".join(list(self.row_of)[:2])
            message = f"no vector for {len(absent):,} of {len(ids):,} {kind}: {first}; ids in the file: {samples}, ..."
            raise CheckError(message, where=str(self.path), hint=f"Add them, or remove these {kind} from the corpus.")
        return rows


def read_vector_file(path: Path) -> ExternalVectors:
    """Open a file of vectors and the file of its ids."""
    _check_format(path)
    try:
        if path.suffix == ".parquet":
            names, vectors = _read_parquet(path)
        else:
            vectors = map_npy(path) if path.suffix == ".npy" else _read_safetensors(path)
            names = _read_ids(path)
    except DAMAGE as error:
        raise CheckError(f"not a readable {path.suffix} file: {error}", where=str(path)) from error
    if vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise CheckError(f"expected (n, width) numbers, found {vectors.dtype} {vectors.shape}", where=str(path))
    if len(names) != len(vectors):
        raise CheckError(f"{len(vectors):,} vectors and {len(names):,} ids", where=str(path))
    row_of = {name: i for i, name in enumerate(names)}
    if len(row_of) < len(names):
        duplicate = next(name for i, name in enumerate(names) if row_of[name] != i)
        raise CheckError(f"duplicate id {duplicate}", where=str(path))
    return ExternalVectors(path, row_of, vectors)


def vector_file_digests(path: Path) -> dict[str, str]:
    """Return the sha256 of a file of vectors and of the file of its ids."""
    _check_format(path)
    digests = {"vectors": input_sha256(path)}
    return digests if path.suffix == ".parquet" else digests | {"ids": input_sha256(_find_ids_file(path))}


def _check_format(path: Path) -> None:
    """Raise if the format is unknown or the file is missing."""
    if path.suffix not in _READERS:
        raise UsageError(f"unknown format of vectors; use {', '.join(_READERS)}", where=str(path))
    check_regular(path, "no such file of vectors")


def _read_safetensors(path: Path) -> NDArray[Any]:
    """Read the tensor of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            if len(names) != 1:
                message, hint = f"expected one tensor, found {', '.join(names)}", "Save each tensor in its own file."
                raise UsageError(message, where=str(path), hint=hint)
            # With `framework="numpy"`, torch is not imported.
            return np.asarray(file.get_tensor(names[0]))
    except (SafetensorError, TypeError) as error:  # TypeError: numpy does not support bfloat16
        raise ValueError(str(error)) from error


def _read_parquet(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Read the ids and vectors of a Parquet file."""
    schema = pq.read_schema(path)
    if missing := {"id", "vector"} - set(schema.names):
        names = ", ".join(sorted(missing))
        raise CheckError(f"no column {names}; it has {', '.join(schema.names)}", where=str(path))
    table = pq.read_table(path, columns=["id", "vector"])
    ids = _id_names(table["id"].to_pylist(), path)
    # A null or a list of a different length would shift all following vectors.
    sizes = pc.list_value_length(table["vector"]).to_pylist()
    if (odd := next((i for i, size in enumerate(sizes) if size is None or size != sizes[0]), None)) is not None:
        message = f"vectors of unequal width: expected {sizes[0]} numbers, found {sizes[odd]} for {ids[odd]}"
        raise CheckError(message, where=str(path))
    if not ids:
        raise CheckError("the file has no vectors", where=str(path))
    return ids, pc.list_flatten(table["vector"]).to_numpy().reshape(len(ids), -1)


def _find_ids_file(path: Path) -> Path:
    """Find the file of ids for a file of vectors."""
    candidates = [path.with_suffix(end) for end in IDS]
    ids_file = next((file for file in candidates if file.is_file()), None)
    if ids_file is None:
        names = ", ".join(file.name for file in candidates)
        hint = "Write one id per line, in the order of the vectors."
        raise MissingError(f"no ids for {path.name}: looked for {names}", where=str(path.parent), hint=hint)
    return ids_file


def _read_ids(path: Path) -> list[str]:
    """Read the ids for a file of vectors."""
    file = _find_ids_file(path)
    if file.suffix == ".npy":
        try:
            array = map_npy(file)
        except ValueError as error:
            raise CheckError(str(error), where=str(file)) from error
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise CheckError(f"expected a list of ids, found {array.dtype} {array.shape}", where=str(file))
        return [str(i) for i in array.tolist()]
    if file.suffix == ".json":
        body = read_json(file)
        if not isinstance(body, list):
            raise CheckError("expected a list of ids", where=str(file))
        return _id_names(body, file)
    return [line for _, line in read_lines(file) if line]


def _id_names(values: list[object], path: Path) -> list[str]:
    """Return ids as text; raise if one is empty or has an invalid type."""
    names = [identifier(value, "id", f"{path}: id {n}") for n, value in enumerate(values)]
    if "" in names:
        raise CheckError(f"id {names.index('')} is empty", where=str(path))
    return names


_READERS = (".npy", ".parquet", ".safetensors")
