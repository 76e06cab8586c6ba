"""From parameters to captions: finds the files of a format, hashes them, and picks their reader."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from relabel.captions import Caption
from relabel.errors import MissingError, UsageError
from relabel.ingest_params import IngestParams
from relabel.runtime import Runtime
from relabel.store.atomic import sha256_file

_KARPATHY: dict[str, tuple[str, str | None]] = {
    "coco": ("karpathy-splits", "dataset_coco.json"),
    "flickr30k": ("flickr30k", None),
}
"""Dataset to its manifest and file; None takes the first of the alternatives that is there."""


@dataclass(frozen=True)
class Input:
    """Files to read, the parameters that change what comes out of them, and their captions."""

    files: dict[str, str]
    semantic: dict[str, Any]
    read: Callable[[], Iterable[Caption]]


def open_input(params: IngestParams, runtime: Runtime) -> Input:
    """Find what `params` names; nothing is read before `Input.read`.

    Raises
    ------
    UsageError
        If a path is needed and not given.
    MissingError
        If a file is not there.
    """
    if params.format == "coco":
        return _open_coco(params, runtime)
    if params.format == "karpathy":
        from relabel.readers.karpathy import read_karpathy

        path = params.path or _fetched(params, runtime)
        return Input(_hashes([path]), {}, partial(read_karpathy, path, params.prefix))
    if params.path is None:
        raise UsageError(f"the format {params.format} needs a path", where="ingest", todo="Set ingest.path.")
    if params.format == "scan":
        return _open_scan(params, params.path)
    return _open_table(params, params.path)


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.datasets import locate
    from relabel.readers.coco import FILES, coco_files, read_coco
    from relabel.splits import coco_test_captions, cxc_val_images, split_by_file, split_by_ids

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    files = _hashes(paths)
    if params.splits is not None:
        files["splits"] = _hash(params.splits)
        split = partial(split_by_file, params.splits)
    else:
        ids = locate("eccv", "coco_test_ids.npy", runtime.data)
        test, val = coco_test_captions(ids), cxc_val_images()
        files["splits: test captions"] = hashlib.sha256(test.tobytes()).hexdigest()
        files["splits: val images"] = hashlib.sha256(val.tobytes()).hexdigest()
        split = partial(split_by_ids, test, val)
    return Input(files, {}, lambda: read_coco(paths, split(), params.prefix))


def _open_scan(params: IngestParams, folder: Path) -> Input:
    from relabel.readers.scan import ids_file, read_scan, scan_files

    paths = scan_files(folder)
    ids = [] if params.ids == "position" else [ids_file(p) for p in paths]
    semantic = {"ids": params.ids, "captions_per_image": params.captions_per_image}
    read = partial(read_scan, namespace=params.prefix, ids=params.ids, captions_per_image=params.captions_per_image)
    return Input(_hashes([*paths, *(p for p in ids if p.is_file())]), semantic, lambda: _each(read, paths))


def _open_table(params: IngestParams, path: Path) -> Input:
    from relabel.readers.columns import Columns, table_files
    from relabel.readers.csv import read_csv
    from relabel.readers.jsonl import read_jsonl
    from relabel.readers.parquet import read_parquet

    columns = Columns(
        params.caption_id_column, params.image_id_column, params.text_column, params.split_column, params.in_split
    )
    semantic: dict[str, Any] = {"columns": columns.__dict__}
    read: Callable[[Path], Iterator[Caption]]
    if params.format == "csv":
        endings: tuple[str, ...] = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
        semantic["delimiter"] = params.delimiter
        read = partial(read_csv, namespace=params.prefix, columns=columns, delimiter=params.delimiter)
    elif params.format == "jsonl":
        endings = (".jsonl", ".jsonl.gz")
        read = partial(read_jsonl, namespace=params.prefix, columns=columns)
    else:
        endings = (".parquet",)
        read = partial(read_parquet, namespace=params.prefix, columns=columns)
    paths = table_files(path, *endings)
    return Input(_hashes(paths), semantic, lambda: _each(read, paths))


def _each(read: Callable[[Path], Iterator[Caption]], paths: list[Path]) -> Iterator[Caption]:
    return chain.from_iterable(map(read, paths))


def _fetched(params: IngestParams, runtime: Runtime) -> Path:
    """Find the Karpathy file that was fetched for a dataset."""
    from relabel.datasets import locate

    if params.dataset not in _KARPATHY:
        what = f"{params.dataset} is not among what `relabel fetch` gets in this format"
        raise UsageError(what, where="ingest", todo="Set ingest.path.")
    return locate(*_KARPATHY[params.dataset], runtime.data)


def _hashes(paths: Iterable[Path]) -> dict[str, str]:
    return {path.name: _hash(path) for path in paths}


def _hash(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
