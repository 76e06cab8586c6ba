"""Readers of caption formats, and the choice of a reader by the parameters of ingest or by the path.

A reader is a generator of `relabel.corpus.build.Caption` in file order. It raises for invalid input with file, line and
reason, and prefixes ids with their namespace (`coco:770337`). `Corpus.from_captions` checks the rules of all formats:
ids are unique, each caption has an image and a text, splits are known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from relabel.core.errors import UsageError
from relabel.core.parsing import SPLIT_NAMES, check_regular, read_bytes
from relabel.core.runtime import Runtime
from relabel.corpus.build import Caption
from relabel.corpus.params import PUBLISHED_FORMATS, Format, IngestParams, Split
from relabel.corpus.readers.columns import Columns
from relabel.corpus.readers.tables import STATUS, arrow_table, open_table
from relabel.corpus.readers.webdataset import read_webdataset, webdataset_digest
from relabel.store.files import input_sha256

ENDINGS: dict[Format, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "json": (".json", ".json.gz"),
    "jsonl": (".jsonl", ".jsonl.gz", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow",),
    "webdataset": (".tar", ".tar.gz", ".tgz"),
}
"""Format to the endings of its files."""
_SIGNS: dict[str, Format] = {
    "dataset_dict.json": "arrow",
    "state.json": "arrow",
    "captions_train2014.json": "coco",
    "annotations": "coco",
    "*_caps.txt": "scan",
}
"""Names that tell the format of a folder, the surest first: such folders hold files of other formats as well."""
_KARPATHY: dict[str, tuple[str, str | None]] = {
    "coco": ("karpathy-splits", "dataset_coco.json"),
    "flickr30k": ("flickr30k", None),
}
"""Dataset to the dataset manifest and file of its captions. None takes the first alternative that exists."""


@dataclass(frozen=True)
class Input:
    """Captions that can be read.

    `files`: every file by its name.
    `config`: parameters that affect the captions.
    `read`: returns the captions.
    `sha256`: returns the identity of what a file holds.
    `note`: columns and splits that were chosen, for a line that is printed.
    `skipped`: number of records that `read` has left out, by reason.
    """

    files: dict[str, Path]
    config: dict[str, Any]
    read: Callable[[], Iterable[Caption]]
    sha256: Callable[[Path], str] = input_sha256
    note: str = ""
    skipped: Counter[str] = field(default_factory=Counter)


def open_input(params: IngestParams, runtime: Runtime) -> Input:
    """Find the files that `params` name, without reading the captions."""
    path, form = params.path, params.format
    if form is None:
        form = PUBLISHED_FORMATS.get(params.dataset) if path is None else guess_format(path)
    if path is None and not (form == "coco" or (form == "karpathy" and params.dataset in _KARPATHY)):
        message = f"no captions of dataset {params.dataset} are given"
        raise UsageError(message, where="ingest", todo="Name a file or folder of captions with --path.")
    only = {"captions_per_image": "scan", "columns": "csv"} | ({"ids": "webdataset"} if params.ids == "shard" else {})
    for key, wanted in only.items():
        # A parameter that has no effect is a mistake of the user.
        if getattr(params, key) and form != wanted:
            raise UsageError(f"{key} {getattr(params, key)} is for the format {wanted}, not {form}", where="ingest")
    guessed, params = params.format is None, params.model_copy(update={"format": form})
    if form == "coco":
        return _open_coco(params, runtime)
    if form == "karpathy":
        return _open_karpathy(params, runtime)
    assert path is not None
    opened = _open_scan(params, path) if form == "scan" else _open_table(params, path)
    return replace(opened, note="; ".join(filter(None, [f"format {form}" * guessed, opened.note])))


def _open_karpathy(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import read_karpathy
    from relabel.datasets import locate

    path = params.path or locate(*_KARPATHY[params.dataset], runtime.data)
    return Input(_by_name([path]), {"format": params.format}, partial(read_karpathy, path, params.prefix))


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import FILES, coco_files, read_coco
    from relabel.corpus.splits import coco_test_captions, split_by_ids
    from relabel.datasets import cxc, locate

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    files = _by_name(paths)
    # The two lists of ids are inputs of the corpus as well.
    files["splits: test captions"] = ids = locate("eccv", "coco_test_ids.npy", runtime.data)
    files["splits: val images"] = cxc.shipped("sits", "val")

    def read() -> Iterator[Caption]:
        lists = {"test_captions": coco_test_captions(ids), "val_images": cxc.image_ids("val")}
        return read_coco(paths, partial(split_by_ids, **lists), params.prefix)

    return Input(files, {"format": params.format}, read)


def _open_scan(params: IngestParams, path: Path) -> Input:
    from relabel.corpus.readers.scan_layout import ids_file, read_scan, scan_files

    paths = scan_files(path)
    ids = [] if params.ids == "position" else [ids_file(p) for p in paths]
    config = {"format": params.format, "ids": params.ids, "captions_per_image": params.captions_per_image}
    read = partial(read_scan, namespace=params.prefix, ids=params.ids, captions_per_image=params.captions_per_image)
    files = _by_name([*paths, *(p for p in ids if p.is_file())])
    return Input(files, config, lambda: chain.from_iterable(map(read, paths)))


def _open_table(params: IngestParams, path: Path) -> Input:
    files = table_files(path, ENDINGS["parquet" if params.format == "img2dataset" else params.format])  # type: ignore[index]
    # The text of a failed download is not skipped: its row is.
    image = params.image_id_column or ("key" if params.format == "img2dataset" else None)
    columns = Columns(
        *(params.caption_id_column, image, params.text_column, params.split_column),
        in_split=params.in_split,
        image_per_row=params.image_per_row,
    )
    config: dict[str, Any] = {"ids": params.ids, "delimiter": params.delimiter, "quotes": params.quotes}
    config |= {"format": params.format, "columns": list(params.columns)}
    skipped: Counter[str] = Counter()
    named = {_name(file, path): check_regular(file) for file in files}
    sha256: Callable[[Path], str] = input_sha256
    if params.format == "webdataset":
        # Of the captions alone, which are a small part of a shard.
        sha256 = partial(input_sha256, compute=partial(webdataset_digest, columns=columns), name=repr(columns))
        note = f"images: keys; captions: .{columns.text or 'txt'}, else .json"
    else:
        # Later files must have the columns of the first.
        columns = open_table(files[0], params, skipped).find(columns)
        note = columns.describe()
    splits = _splits_of_names(files, path) if params.in_split is None and columns.split is None else {}
    if told := set(splits.values()):
        note = f"{note.partition('; splits')[0]}; splits: names of files ({', '.join(sorted(told))})"
    if len(told) > 1:
        config["splits"] = "names of files"

    def captions() -> Iterator[Caption]:
        counts: dict[str, int] = {}
        for file in files:
            chosen = replace(columns, in_split=splits.get(file) or columns.in_split)
            if params.format == "webdataset":
                yield from read_webdataset(file, params.prefix, chosen, params.ids, counts)
            else:
                yield from open_table(file, params, skipped).captions(chosen, params.prefix, counts)

    return Input(named, {**config, "chosen": columns.__dict__}, captions, sha256, note, skipped)


def guess_format(path: Path) -> Format:
    """Return the format of a file or folder of captions."""
    if path.is_dir():
        signs = [form for pattern, form in _SIGNS.items() if any(path.glob(pattern))]
        tables = [form for form, endings in ENDINGS.items() if _files(path, endings)]
        # JSON beside other files describes them: sizes of shards, or statistics.
        found = signs[:1] or [form for form in tables if form != "json"] or tables
    else:
        check_regular(path)
        found = [form for form, endings in ENDINGS.items() if path.name.lower().endswith(endings)]
        # Karpathy's file is an object. COCO's annotations are two files in a folder.
        if found == ["json"] and read_bytes(path, 1 << 16).lstrip()[:1] != b"[":
            found = ["karpathy"]
    # img2dataset writes its metadata as Parquet beside the shards.
    if "parquet" in found:
        first = _files(path, ENDINGS["parquet"])[0]
        if {"key", STATUS} <= set(arrow_table(first, "parquet", Counter()).names or ()):
            return "img2dataset"
    if len(found) == 1:
        return found[0]
    problem = f"files of several formats: {', '.join(found)}" if found else "no captions of a known format"
    todo = f"Give the format with --format: one of {', '.join(get_args(Format))}."
    raise UsageError(problem, where=str(path), todo=todo)


def table_files(path: Path, endings: Sequence[str]) -> list[Path]:
    """Return the file itself, or the files below a folder with one of the endings, sorted by path.

    Names that begin with a dot or an underscore are left out, as are caches of Hugging Face `datasets`.
    """
    files = _files(path, endings)
    if not files:
        raise UsageError(f"no {' or '.join(endings)} file in this folder", where=str(path))
    return files


def _files(path: Path, endings: Sequence[str]) -> list[Path]:
    if not path.is_dir():
        return [check_regular(path)]
    hidden = (".", "_", "cache-")
    files = [file for file in path.rglob("*") if file.name.lower().endswith(tuple(endings))]
    return sorted(file for file in files if not any(part.startswith(hidden) for part in file.relative_to(path).parts))


def split_of_name(file: Path, root: Path) -> Split | None:
    """Return the split that the name of a file, or else of a folder between it and `root`, contains; None without."""
    # Folders above `root` are the user's, and their names say nothing about the file.
    inner = file.relative_to(root).parts if root in file.parents else (file.name,)
    # The nearest name decides: the file, then its folder. A name of two splits decides nothing.
    for part in reversed(inner):
        words = re.split(r"[-_.]", part.lower())
        splits = {SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES}
        if len(splits) == 1:
            return splits.pop()  # type: ignore[return-value]
    return None


def _splits_of_names(files: Sequence[Path], root: Path) -> dict[Path, Split]:
    """Return the split in the name of each file; none if no name tells one."""
    splits = {file: split for file in files if (split := split_of_name(file, root)) is not None}
    if splits and (without := [file for file in files if file not in splits]):
        message = f"{_name(without[0], root)} names no split, and other files do"
        raise UsageError(message, where=str(root), todo="Give --in-split, or name all files by their split.")
    return splits


def _name(file: Path, root: Path) -> str:
    """Return the name of a file below the folder that was given."""
    return file.relative_to(root).as_posix() if root in file.parents else file.name


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    return {path.name: check_regular(path) for path in paths}
