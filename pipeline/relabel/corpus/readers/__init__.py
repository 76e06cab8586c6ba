"""Readers of caption formats, and the choice of a reader by the parameters of ingest.

A reader is a generator of `relabel.corpus.build.Caption` in file order. It raises for invalid input with file, line and
reason, and prefixes ids with their namespace (`coco:770337`). `Corpus.from_captions` checks the rules of all formats:
ids are unique, each caption has an image and a text, splits are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, UsageError
from relabel.core.parameters import validate
from relabel.core.parsing import check_regular, parse_json, read_lines
from relabel.core.runtime import Runtime
from relabel.corpus.build import Caption
from relabel.corpus.params import PUBLISHED_FORMATS, IngestParams, Split
from relabel.corpus.readers.columns import Columns
from relabel.corpus.readers.formats import ENDINGS, guess_format, split_of_name, table_files
from relabel.corpus.readers.tables import (
    arrow_columns,
    csv_columns,
    parquet_columns,
    read_arrow,
    read_csv,
    read_jsonl,
    read_parquet,
)
from relabel.corpus.readers.webdataset import read_webdataset, webdataset_digest
from relabel.store.files import input_sha256

_KARPATHY: dict[str, tuple[str, str | None]] = {
    "coco": ("karpathy-splits", "dataset_coco.json"),
    "flickr30k": ("flickr30k", None),
}
"""Dataset to the dataset manifest and file of its captions. None takes the first alternative that exists."""


@dataclass(frozen=True)
class Input:
    """Captions that can be read.

    `files`: every file by its name.
    `semantic`: parameters that affect the captions.
    `read`: returns the captions.
    `sha256`: returns the identity of what a file holds.
    `note`: columns and splits that were chosen, for a line that is printed.
    `skipped`: number of records that `read` has left out, by reason.
    """

    files: dict[str, Path]
    semantic: dict[str, Any]
    read: Callable[[], Iterable[Caption]]
    sha256: Callable[[Path], str] = input_sha256
    note: str = ""
    skipped: Counter[str] = field(default_factory=Counter)


def open_input(params: IngestParams, runtime: Runtime) -> Input:
    """Find the files that `params` name, without reading the captions."""
    if params.format is None:
        if params.path is None and params.dataset not in PUBLISHED_FORMATS:
            message = f"no captions of dataset {params.dataset} are given"
            raise UsageError(message, where="ingest", todo="Name a file or folder of captions with --path.")
        guess = (PUBLISHED_FORMATS[params.dataset], "") if params.path is None else guess_format(params.path)
        name, reason = guess
        opened = open_input(validate(IngestParams, params.model_dump() | {"format": name}, "ingest"), runtime)
        notes = [f"format {name} ({reason})"] if reason else []
        return replace(opened, note="; ".join([*notes, *filter(None, [opened.note])]))
    for key, only in (("splits", "coco"), ("captions_per_image", "scan"), ("columns", "csv")):
        # A parameter that has no effect is a mistake of the user.
        if getattr(params, key) and params.format != only:
            raise UsageError(f"{key} is for the format {only}, not {params.format}", where="ingest")
    if params.format == "coco":
        return _open_coco(params, runtime)
    if params.format == "karpathy":
        from relabel.corpus.readers.coco import read_karpathy

        path = params.path or _fetched(params, runtime)
        return Input(_by_name([path]), {"format": params.format}, partial(read_karpathy, path, params.prefix))
    if params.path is None:
        raise UsageError(f"the format {params.format} needs a path", where="ingest", todo="Give it with --path.")
    if params.format == "scan":
        return _open_scan(params, params.path)
    return _open_table(params, params.path)


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import FILES, coco_files, read_coco
    from relabel.corpus.splits import split_as_published, split_by_file
    from relabel.datasets import cxc, locate

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    files = _by_name(paths)
    if params.splits is not None:
        files["splits"] = check_regular(params.splits)
        split = partial(split_by_file, params.splits)
    else:
        # The two lists of ids are inputs of the corpus as well.
        files["splits: test captions"] = ids = locate("eccv", "coco_test_ids.npy", runtime.data)
        files["splits: val images"] = cxc.shipped("sits", "val")
        split = partial(split_as_published, ids)
    return Input(files, {"format": params.format}, lambda: read_coco(paths, split(), params.prefix))


def _open_scan(params: IngestParams, folder: Path) -> Input:
    from relabel.corpus.readers.scan_layout import ids_file, read_scan, scan_files

    paths = scan_files(folder)
    ids = [] if params.ids == "position" else [ids_file(p) for p in paths]
    semantic = {"format": params.format, "ids": params.ids, "captions_per_image": params.captions_per_image}
    if params.ids == "shard":
        raise UsageError(
            "ids shard is for the format webdataset", where="ingest", todo="Give image, caption or position."
        )
    read = partial(read_scan, namespace=params.prefix, ids=params.ids, captions_per_image=params.captions_per_image)
    return Input(_by_name([*paths, *(p for p in ids if p.is_file())]), semantic, lambda: _each(read, paths))


def _open_table(params: IngestParams, path: Path) -> Input:
    files = table_files(path, ENDINGS["parquet" if params.format == "img2dataset" else params.format])  # type: ignore[index]
    splits = _splits_of_names(files, path, params)
    columns = Columns(
        *(params.caption_id_column, params.image_id_column, params.text_column, params.split_column),
        in_split=splits[0],
        image_per_row=params.image_per_row,
    )
    # Later files must have the columns of the first.
    columns, semantic = _choose_columns(params, files[0], columns)
    if params.in_split is None and len(set(splits)) > 1:
        semantic["splits"] = "names of files"
    counts: dict[str, int] = {}
    skipped: Counter[str] = Counter()
    read = _reader(params, counts, skipped)

    def captions() -> Iterator[Caption]:
        counts.clear()
        skipped.clear()
        for file, split in zip(files, splits, strict=True):
            yield from read(file, params.prefix, replace(columns, in_split=split))
        # The captions are sorted next, which needs the memory.
        counts.clear()

    sha256: Callable[[Path], str] = input_sha256
    if params.format == "webdataset":
        # Of the captions alone, which are a small part of a shard.
        sha256 = partial(input_sha256, compute=partial(webdataset_digest, columns=columns), name=repr(columns))
        note = f"images: keys; captions: .{columns.text or 'txt'}, else .json; splits: all {splits[0] or 'train'}"
    else:
        note = columns.describe()
    if note and len(set(splits)) > 1:
        note = f"{note.partition('; splits')[0]}; splits: names of files"
    named = {_name(file, path): check_regular(file) for file in files}
    return Input(named, {**semantic, "format": params.format}, captions, sha256, note, skipped)


def _splits_of_names(files: Sequence[Path], path: Path, params: IngestParams) -> list[Split | None]:
    """Return the split of each file: `in_split`, else that of its name; None for a column of splits."""
    if params.in_split is not None or params.split_column is not None or _has_split_column(params, files[0]):
        return [params.in_split] * len(files)
    splits = [split_of_name(file, path) for file in files]
    without = [file for file, split in zip(files, splits, strict=True) if split is None]
    if without and len(without) < len(files):
        message = f"{_name(without[0], path)} names no split, and other files do"
        raise UsageError(message, where=str(path), todo="Give --in-split, or name all files by their split.")
    return list(splits)


def _has_split_column(params: IngestParams, file: Path) -> bool:
    return "split" in (_column_names(params, file) or ())


def _column_names(params: IngestParams, file: Path) -> list[str] | None:
    """Return the columns of a file; None for a tar, whose samples may differ."""
    if params.format == "csv":
        return list(params.columns) or csv_columns(file, params.separator(file), params.quotes)
    if params.format == "jsonl":
        line = next((text for _, text in read_lines(file) if text.strip()), "{}")
        record = parse_json(line, str(file), 1)
        return list(record) if isinstance(record, dict) else []
    if params.format == "arrow":
        return arrow_columns(file)
    return None if params.format == "webdataset" else parquet_columns(file)


def _choose_columns(params: IngestParams, file: Path, columns: Columns) -> tuple[Columns, dict[str, Any]]:
    """Return the columns to read, and the parameters that can change the captions."""
    semantic: dict[str, Any] = {}
    if params.format == "csv":
        semantic = {"delimiter": params.separator(file), "columns": params.columns, "quotes": params.quotes}
    elif params.format == "webdataset":
        semantic["ids"] = params.ids
    elif params.format == "img2dataset":
        # The text of a failed download is not skipped: its row is.
        columns = replace(columns, image_id=columns.image_id or "key")
    names = _column_names(params, file)
    # The first record of a file finds its columns itself, with an error that names the line.
    if names is not None and params.format in ("parquet", "img2dataset", "arrow"):
        columns = columns.find(names, str(file))
    elif names:
        with suppress(CheckError):
            columns = columns.find(names, str(file))
    return columns, semantic | {"chosen": columns.__dict__}


def _reader(params: IngestParams, counts: dict[str, int], skipped: Counter[str]) -> Callable[..., Iterator[Caption]]:
    """Return the reader of one file of a table."""
    if params.format == "csv":

        def read(file: Path, namespace: str, columns: Columns) -> Iterator[Caption]:
            separator = params.separator(file)
            return read_csv(file, namespace, columns, separator, params.columns, params.quotes, counts)

        return read
    if params.format == "webdataset":
        ids: Literal["image", "shard"] = "shard" if params.ids == "shard" else "image"
        return partial(read_webdataset, ids=ids, counts=counts)
    if params.format == "img2dataset":
        return partial(read_parquet, counts=counts, skipped=skipped)
    readers = {"jsonl": read_jsonl, "arrow": read_arrow, "parquet": read_parquet}
    return partial(readers[str(params.format)], counts=counts)


def _each(read: Callable[[Path], Iterator[Caption]], paths: list[Path]) -> Iterator[Caption]:
    return chain.from_iterable(map(read, paths))


def _name(file: Path, root: Path) -> str:
    """Return the name of a file below the folder that was given."""
    return file.relative_to(root).as_posix() if root in file.parents else file.name


def _fetched(params: IngestParams, runtime: Runtime) -> Path:
    """Return the path of the fetched Karpathy file of a dataset."""
    from relabel.datasets import locate

    if params.dataset not in _KARPATHY:
        message = f"{params.dataset} is not among the datasets that are fetched in this format"
        raise UsageError(message, where="ingest", todo="Give the file with --path.")
    return locate(*_KARPATHY[params.dataset], runtime.data)


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    return {path.name: check_regular(path) for path in paths}
