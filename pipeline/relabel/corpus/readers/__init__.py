"""Readers of caption formats, and the choice of a reader by the parameters of ingest.

A reader is a generator of `relabel.corpus.build.Caption` in file order. It raises for invalid input with file, line and
reason, and prefixes ids with their namespace (`coco:770337`). `Corpus.from_captions` checks the rules of all formats:
ids are unique, each caption has an image and a text, splits are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from relabel.core.errors import MissingError, UsageError
from relabel.core.runtime import Runtime
from relabel.core.user_files import check_regular, is_file
from relabel.corpus.build import Caption
from relabel.corpus.params import IngestParams
from relabel.store.atomic import sha256_file

_KARPATHY: dict[str, tuple[str, str | None]] = {
    "coco": ("karpathy-splits", "dataset_coco.json"),
    "flickr30k": ("flickr30k", None),
}
"""Dataset to the dataset manifest and file of its captions. None takes the first alternative that exists."""


@dataclass(frozen=True)
class Input:
    """Captions that can be read.

    Attributes
    ----------
    files : dict of str to str
        Name and sha256 of every file.
    semantic : dict
        Parameters that affect the captions.
    read : callable
        Returns the captions.
    """

    files: dict[str, str]
    semantic: dict[str, Any]
    read: Callable[[], Iterable[Caption]]


def open_input(params: IngestParams, runtime: Runtime) -> Input:
    """Find and hash the files that `params` name, without reading the captions.

    Raises
    ------
    UsageError
        If the format or a path is needed and not given.
    MissingError
        If a file is missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("my.jsonl").write_text('{"id": 1, "image_id": 7, "caption": "a dog", "split": "test"}')
    >>> params = IngestParams(dataset="mine", format="jsonl", path="my.jsonl", caption_id_column="id")
    >>> [caption.caption_id for caption in open_input(params, Runtime()).read()]
    ['mine:1']
    """
    if params.format is None:
        todo = "Give the format with --format and the path with --path."
        raise UsageError(f"the format of dataset {params.dataset} is not known", where="ingest", todo=todo)
    if params.format == "coco":
        return _open_coco(params, runtime)
    if params.format == "karpathy":
        from relabel.corpus.readers.coco import read_karpathy

        path = params.path or _fetched(params, runtime)
        return Input(_hashes([path]), {}, partial(read_karpathy, path, params.prefix))
    if params.path is None:
        raise UsageError(f"the format {params.format} needs a path", where="ingest", todo="Set ingest.path.")
    if params.format == "scan":
        return _open_scan(params, params.path)
    return _open_table(params, params.path)


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import FILES, coco_files, read_coco
    from relabel.corpus.splits import coco_test_captions, split_by_file, split_by_ids
    from relabel.datasets import locate
    from relabel.datasets.cxc import image_ids

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    files = _hashes(paths)
    if params.splits is not None:
        files["splits"] = _hash(params.splits)
        split = partial(split_by_file, params.splits)
    else:
        # The two lists of ids are inputs of the corpus as well, so their values are hashed.
        ids = locate("eccv", "coco_test_ids.npy", runtime.data)
        test, val = coco_test_captions(ids), image_ids("val")
        files["splits: test captions"] = hashlib.sha256(test.tobytes()).hexdigest()
        files["splits: val images"] = hashlib.sha256(val.tobytes()).hexdigest()
        split = partial(split_by_ids, test, val)
    return Input(files, {}, lambda: read_coco(paths, split(), params.prefix))


def _open_scan(params: IngestParams, folder: Path) -> Input:
    from relabel.corpus.readers.scan_layout import ids_file, read_scan, scan_files

    paths = scan_files(folder)
    ids = [] if params.ids == "position" else [ids_file(p) for p in paths]
    semantic = {"ids": params.ids, "captions_per_image": params.captions_per_image}
    read = partial(read_scan, namespace=params.prefix, ids=params.ids, captions_per_image=params.captions_per_image)
    return Input(_hashes([*paths, *(p for p in ids if is_file(p))]), semantic, lambda: _each(read, paths))


def _open_table(params: IngestParams, path: Path) -> Input:
    from relabel.corpus.readers.tables import Columns, read_csv, read_jsonl, read_parquet, table_files

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
    """Return the path of the fetched Karpathy file of a dataset."""
    from relabel.datasets import locate

    if params.dataset not in _KARPATHY:
        message = f"{params.dataset} is not among the datasets that `relabel fetch` gets in this format"
        raise UsageError(message, where="ingest", todo="Set ingest.path.")
    return locate(*_KARPATHY[params.dataset], runtime.data)


def _hashes(paths: Iterable[Path]) -> dict[str, str]:
    return {path.name: _hash(path) for path in paths}


def _hash(path: Path) -> str:
    try:
        return sha256_file(check_regular(path))
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
