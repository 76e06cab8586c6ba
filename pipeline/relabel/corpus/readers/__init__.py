"""Captions of any format: containers hold records, layouts find their parts, and rules make captions of them.

`open_input` finds the files that the parameters name. `containers` reads records, each with its place; `layouts` tells
image, captions, ids and split of a record; `rules` decides what is an image of its own, what is left out and which
split a name means. Ids get the namespace as a prefix (`coco:770337`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.corpus.build import Caption, RowIds
from relabel.corpus.params import PUBLISHED_FORMATS, Format, IngestParams, Split
from relabel.corpus.readers import containers
from relabel.corpus.readers.containers import LINES, TABLES, Bad, Container, kind_of, of_records, open_arrow, read_lines
from relabel.corpus.readers.layouts import (
    KARPATHY,
    KEY,
    STATUS,
    TEXT,
    Columns,
    holds_captions,
    karpathy_images,
    records_of,
    usual_roles,
)
from relabel.corpus.readers.rules import Rules
from relabel.corpus.readers.scan_layout import COLUMNS as SCAN
from relabel.corpus.readers.scan_layout import ids_file, read_scan, scan_files
from relabel.corpus.readers.webdataset import open_tar, webdataset_digest
from relabel.corpus.splits import split_of
from relabel.datasets import cxc, locate
from relabel.store.files import input_sha256

ENDINGS: dict[str, tuple[str, ...]] = {
    "csv": TABLES,
    "json": (".json", ".json.gz"),
    "jsonl": LINES,
    "parquet": (".parquet",),
    "arrow": (".arrow",),
    "webdataset": (".tar", ".tar.gz", ".tgz"),
    "text": (".txt",),
}
"""Format to the endings of its files, which tell the files of a folder."""
_SIGNS: dict[str, Format] = {
    "dataset_dict.json": "arrow",
    "state.json": "arrow",
    "captions_train2014.json": "coco",
    "annotations/captions_train2014.json": "coco",
    "*_caps.txt": "scan",
}
"""Names that tell the format of a folder, the surest first: such folders hold files of other formats as well."""
_ROWS = ("parquet", "arrow", "img2dataset")  # formats in which every row is a record
_LOOKED_AT = 50  # files of text or JSON beside others
_KARPATHY: dict[str, tuple[str, str | None]] = {
    "coco": ("karpathy-splits", "dataset_coco.json"),
    "flickr30k": ("flickr30k", None),
}
"""Dataset to the dataset manifest and file of its captions. None takes the first alternative that exists."""
_FIXED = {"karpathy": KARPATHY, "scan": SCAN}
_READ: dict[str, tuple[str, ...]] = {"karpathy": (), "scan": ("ids", "captions_per_image")}
"""Format to its columns, and to its parameters. Its files are opened when captions are read, and not by every stage."""


@dataclass(frozen=True)
class Input:
    """Captions that can be read.

    `files`: every file by its name.
    `config`: parameters that affect the captions.
    `read`: returns the captions in file order.
    `sha256`: returns the identity of what a file holds.
    `note`: layout that was recognised, for a line that is printed.
    `left_out`: reason to the number of records that `read` has left out and the place of the first.
    `warnings`: what a user should know about the captions that `read` has returned.
    """

    files: dict[str, Path]
    config: dict[str, Any]
    read: Callable[[], Iterable[Caption]]
    sha256: Callable[[Path], str] = input_sha256
    note: str = ""
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def open_input(params: IngestParams, runtime: Runtime, row_ids: list[RowIds] | None = None) -> Input:
    """Find the files that `params` name and recognise their layout, without reading the captions.

    `row_ids`: gets the caption ids of each row while the captions of a table are read.
    """
    path, form = params.path, params.format
    if form is None:
        form = PUBLISHED_FORMATS.get(params.dataset) if path is None else guess_format(path, params.encoding)
    if path is None and form == "karpathy" and params.dataset in _KARPATHY:
        path = locate(*_KARPATHY[params.dataset], runtime.data)
    if path is None and form != "coco":
        message = f"no captions of dataset {params.dataset} are given"
        raise UsageError(message, where="ingest", todo="Name a file or folder of captions with --path.")
    scan = params.ids in ("caption", "position")
    only = {"captions_per_image": "scan", "columns": "csv", "records": "json"} | ({"ids": "scan"} if scan else {})
    for key, wanted in only.items():
        # A parameter that has no effect is a mistake of the user.
        if getattr(params, key) and form != wanted:
            raise UsageError(f"{key} {getattr(params, key)} is for the format {wanted}, not {form}", where="ingest")
    if row_ids is not None and (path is None or not path.is_file() or form not in _ROWS):
        todo = "Read the captions with pandas, for example, and give the table to relabel.label or relabel.ingest."
        problem = "ids by row exist only for a table in memory, or for one Parquet or Arrow file"
        raise UsageError(problem, where=str(path or params.dataset), todo=todo)
    params = params.model_copy(update={"format": form})
    if path is None or form == "coco":
        return _open_coco(params, runtime)
    return _open_files(params, path, runtime, row_ids)


def _config(params: IngestParams, *names: str) -> dict[str, Any]:
    """Return the parameters that a format reads, and those of all formats that are not as usual."""
    usual = IngestParams()
    rules = ("encoding", "lists", "bad_records", "split_names")
    changed = [name for name in rules if getattr(params, name) != getattr(usual, name)]
    return params.model_dump(mode="json", include={"format", *names, *changed})


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import COLUMNS, FILES, coco_files, open_coco
    from relabel.corpus.splits import coco_test_captions, split_by_ids

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    # The two lists of ids are inputs of the corpus as well.
    ids, images = locate("eccv", "coco_test_ids.npy", runtime.data), cxc.shipped("sits", "val")
    files = {path.name: path for path in paths} | {"splits: test captions": ids, "splits: val images": images}
    rules = Rules(params, paths, runtime.memory)

    def read() -> Iterator[Caption]:
        lists = {"test_captions": coco_test_captions(ids), "val_images": cxc.image_ids("val")}
        opened = open_coco(paths, partial(split_by_ids, **lists), runtime.memory)
        return rules.captions((container, COLUMNS) for container in opened)

    return Input(files, _config(params), read, left_out=rules.left_out)


def _open_files(params: IngestParams, path: Path, runtime: Runtime, row_ids: list[RowIds] | None) -> Input:
    form = str(params.format)
    files, listed = _files_of(form, path), list[Path]()
    rules, given = Rules(params, files, runtime.memory), Columns.given(params)
    rules.row_ids = row_ids
    sha256: Callable[[Path], str] = input_sha256
    config = _config(params, *_READ.get(form, ("ids", "delimiter", "quotes", "columns", "records")))
    if form == "scan":
        listed = [] if params.ids == "position" else [one for one in map(ids_file, files) if one.is_file()]
    elif form == "webdataset":
        # Of the captions alone, which are a small part of a shard.
        sha256 = partial(input_sha256, compute=partial(webdataset_digest, text=params.text_column), name=repr(given))
    # Later files must have the columns of the first.
    opened = partial(_open, params=params, runtime=runtime, bad=rules.bad)
    first, columns = (None, _FIXED[form]) if form in _FIXED else opened(files[0], given=given)
    splits = _splits_of_names(files, path, params) if params.in_split is None and columns.split is None else {}
    rules.note = note = f"format {form}; {columns.describe((first and first.example) or {})}"
    if told := set(splits.values()):
        note = f"{note.partition('; splits')[0]}; splits: names of files ({', '.join(sorted(told))})"
    config |= {"splits": "names of files"} if len(told) > 1 else {}
    config |= {"chosen": {**columns.__dict__, "text": list(columns.text)}} if first else {}

    def containers() -> Iterator[tuple[Container, Columns]]:
        for n, file in enumerate(files):
            container, found = (first, columns) if first and not n else opened(file, given=columns)
            yield container, replace(found, in_split=splits.get(file) or found.in_split)

    named = {_name(file, path): check_regular(file) for file in [*files, *listed]}
    return Input(named, config, lambda: rules.captions(containers()), sha256, note, rules.left_out, rules.warnings)


def _files_of(form: str, path: Path) -> list[Path]:
    """Return the files of captions of one format."""
    if form == "scan":
        return scan_files(path)
    endings = ENDINGS.get({"img2dataset": "parquet", "karpathy": "json"}.get(form, form), ())
    # The content of other endings may be of the format as well.
    files = table_files(path, endings if _files(path, endings) else (*endings, *ENDINGS["json"], *ENDINGS["text"]))
    # COCO's annotations of objects lie beside those of captions.
    return [file for file in files if file.name.startswith("captions_")] or files if form == "json" else files


def _open(path: Path, params: IngestParams, given: Columns, runtime: Runtime, bad: Bad) -> tuple[Container, Columns]:
    """Open a file; return its container and the columns that it has."""
    form, key = params.format, ""
    unique = given.unique or form == "text"
    if form == "csv":
        container = containers.open_csv(path, params, usual_roles, bad)
    elif form == "jsonl":
        container = containers.open_lines(path, params, bad)
    elif form in ("json", "karpathy"):
        body = containers.open_json(path, params.encoding, runtime.memory)
        rows, key = records_of(body, str(path), params.records, bad)
        if key == "images" and {"filename", "sentences"} <= set(body["images"][0]):
            rows, given = karpathy_images(rows), replace(given, image_id=given.image_id or KEY)
            unique = given.image_id == KEY
        container = of_records(f"{path}: ", rows, str(path))
    elif form == "webdataset":
        container, given = open_tar(path, params, bad), replace(given, text=(TEXT,), image_id=given.image_id or KEY)
        unique = given.image_id == KEY
    elif form == "scan":
        rows = read_scan(path, params.ids, params.captions_per_image, params.encoding)
        return of_records(f"{path}:", rows, str(path)), SCAN
    elif form == "text":
        container, given = _open_text(path, params), replace(given, text=(TEXT,), image_id=KEY)
    else:
        container = open_arrow(path, str(form), runtime.memory)
    if container.example is None:
        return container, given
    found = given.find(container.example, container.where, container.hint, key == "annotations")
    return container, replace(found, unique=found.unique or unique)


def _open_text(path: Path, params: IngestParams) -> Container:
    """Open a text file beside an image, whose name is that of the image: each line is a caption."""
    texts = [line.rstrip("\r\n") for line in read_lines(path, params.encoding)]
    record = {KEY: path.stem, TEXT: [text for text in texts if text.strip()]}
    return of_records(f"{path}: ", iter([(path.stem, record)]), str(path))


def guess_format(path: Path, encoding: str | None = None) -> Format:
    """Return the format of a file or folder of captions."""
    found = {"": [path]}
    if path.is_dir():
        if sign := next((form for pattern, form in _SIGNS.items() if any(path.glob(pattern))), None):
            return sign
        found = {form: files for form, endings in ENDINGS.items() if (files := _files(path, endings))}
        # Files of text and JSON may hold captions, or describe other files.
        for form, holds in (("text", _is_table), ("json", _has_records)):
            others = found.get(form, [])[:_LOOKED_AT]
            if len(found) > 1 and others and not any(holds(file, encoding) for file in others):
                del found[form]
        if set(found) == {"text"}:
            return "csv" if any(_is_table(file, encoding) for file in found["text"][:_LOOKED_AT]) else "text"
    kinds = {form: kind_of(check_regular(files[0]), encoding) for form, files in found.items()}
    # img2dataset writes its metadata as Parquet beside the shards.
    if "parquet" in kinds.values() and set(kinds.values()) <= {"parquet", "webdataset"}:
        columns = open_arrow(found.get("parquet", [path])[0], "parquet", 0).example or {}
        if {"key", STATUS} <= set(columns):
            return "img2dataset"
    if len(kinds) == 1 and (kind := next(iter(kinds.values()))) is not None:
        return kind
    problem = f"files of several formats: {', '.join(found)}" if len(found) > 1 else "no captions of a known format"
    todo = f"Give the format with --format: one of {', '.join(get_args(Format))}."
    raise UsageError(problem, where=str(path), todo=todo)


def _is_table(file: Path, encoding: str | None) -> bool:
    """Return whether a text file is a table of captions: it has usual names of columns, or is a token file."""
    if kind_of(file, encoding) not in (None, "csv"):
        return True
    head = next((line for line in read_lines(file, encoding) if line.strip()), "")
    names = max(usual_roles(head.strip().split(separator)) for separator in ",\t;|")
    return names == 2 or re.match(r"\S+#\d+\s", head) is not None


def _has_records(file: Path, encoding: str | None) -> bool:
    """Return whether a JSON file has a list of records with captions and images."""
    try:
        body = containers.open_json(file, encoding, 0)
    except CheckError:
        return False
    return any(map(holds_captions, [body, *(body.values() if isinstance(body, dict) else ())]))


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
    files = [file for file in files if not any(part.startswith(hidden) for part in file.relative_to(path).parts)]
    saved = {folder: _saved(folder) for folder in {file.parent for file in files if file.suffix == ".arrow"}}
    return sorted(file for file in files if not (names := saved.get(file.parent)) or file.name in names)


def _saved(folder: Path) -> set[str]:
    """Return the shards that `save_to_disk` wrote last, which may be fewer than before; none of any other folder."""
    state = folder / "state.json"
    body = containers.open_json(state, None, 0) if state.is_file() else {}
    shards = body.get("_data_files") if isinstance(body, dict) else None
    return {str(shard.get("filename")) for shard in shards or () if isinstance(shard, dict)}


def split_of_name(file: Path, root: Path, names: Mapping[str, Split] = {}) -> Split | None:
    """Return the split that the name of a file, or else of a folder between it and `root`, contains; None without."""
    # Folders above `root` are the user's, and their names say nothing about the file.
    inner = file.relative_to(root).parts if root in file.parents else (file.name,)
    # The nearest name decides: the file, then its folder. A name of two splits decides nothing.
    for part in reversed(inner):
        if whole := split_of(part.partition(".")[0], names):
            return whole
        # TestSet.csv, and the folders split=val of Hive.
        splits = {split_of(word, names) for word in re.split(r"[-_.= ]|(?<=[a-z])(?=[A-Z])", part)} - {None}
        if len(splits) == 1:
            return splits.pop()
    return None


def _splits_of_names(files: Sequence[Path], root: Path, params: IngestParams) -> dict[Path, Split]:
    """Return the split in the name of each file; none if no name tells one."""
    splits = {file: split for file in files if (split := split_of_name(file, root, params.split_names)) is not None}
    if splits and (without := [file for file in files if file not in splits]):
        message = f"{_name(without[0], root)} names no split, and other files do"
        raise UsageError(message, where=str(root), todo="Give --in-split, or name all files by their split.")
    return splits


def _name(file: Path, root: Path) -> str:
    """Return the name of a file below the folder that was given."""
    return file.relative_to(root).as_posix() if root in file.parents else file.name
