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

from relabel.core.errors import UsageError
from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.corpus.build import Caption
from relabel.corpus.params import PUBLISHED_FORMATS, Format, IngestParams, Split
from relabel.corpus.readers import containers
from relabel.corpus.readers.containers import LINES, TABLES, Bad, Container, kind_of, of_records, open_arrow, read_lines
from relabel.corpus.readers.layouts import (
    KARPATHY,
    KEY,
    STATUS,
    TEXT,
    Columns,
    karpathy_images,
    records_of,
    usual_roles,
)
from relabel.corpus.readers.rules import Rules
from relabel.corpus.readers.webdataset import open_tar, webdataset_digest
from relabel.corpus.splits import split_of
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
_TEXTS = 50  # text files of a folder that are looked at
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
    `read`: returns the captions in file order.
    `sha256`: returns the identity of what a file holds.
    `note`: layout that was recognised, for a line that is printed.
    `left_out`: reason to the number of records that `read` has left out and the place of the first.
    """

    files: dict[str, Path]
    config: dict[str, Any]
    read: Callable[[], Iterable[Caption]]
    sha256: Callable[[Path], str] = input_sha256
    note: str = ""
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)


def open_input(params: IngestParams, runtime: Runtime) -> Input:
    """Find the files that `params` name and recognise their layout, without reading the captions."""
    path, form = params.path, params.format
    if form is None:
        form = PUBLISHED_FORMATS.get(params.dataset) if path is None else guess_format(path, params.encoding)
    if path is None and not (form == "coco" or (form == "karpathy" and params.dataset in _KARPATHY)):
        message = f"no captions of dataset {params.dataset} are given"
        raise UsageError(message, where="ingest", todo="Name a file or folder of captions with --path.")
    scan = params.ids in ("caption", "position")
    only = {"captions_per_image": "scan", "columns": "csv", "records": "json"} | ({"ids": "scan"} if scan else {})
    for key, wanted in only.items():
        # A parameter that has no effect is a mistake of the user.
        if getattr(params, key) and form != wanted:
            raise UsageError(f"{key} {getattr(params, key)} is for the format {wanted}, not {form}", where="ingest")
    params = params.model_copy(update={"format": form})
    if form == "coco":
        return _open_coco(params, runtime)
    if form == "scan":
        return _open_scan(params, runtime)
    if form == "karpathy":
        return _open_karpathy(params, runtime)
    assert path is not None
    return _open_files(params, path, runtime)


def _config(params: IngestParams, *names: str) -> dict[str, Any]:
    """Return the parameters that a format reads, and those of all formats that are not as usual."""
    usual = IngestParams()
    rules = ("encoding", "lists", "bad_records", "split_names")
    changed = [name for name in rules if getattr(params, name) != getattr(usual, name)]
    return params.model_dump(mode="json", include={"format", *names, *changed})


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import COLUMNS, FILES, coco_files, open_coco
    from relabel.corpus.splits import coco_test_captions, split_by_ids
    from relabel.datasets import cxc, locate

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    files = _by_name(paths)
    # The two lists of ids are inputs of the corpus as well.
    files["splits: test captions"] = ids = locate("eccv", "coco_test_ids.npy", runtime.data)
    files["splits: val images"] = cxc.shipped("sits", "val")
    rules = Rules(params, paths, runtime.memory)

    def read() -> Iterator[Caption]:
        lists = {"test_captions": coco_test_captions(ids), "val_images": cxc.image_ids("val")}
        opened = open_coco(paths, partial(split_by_ids, **lists), runtime.memory)
        return rules.captions((container, COLUMNS) for container in opened)

    return Input(files, _config(params), read, left_out=rules.left_out)


def _open_karpathy(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.datasets import locate

    path = params.path or locate(*_KARPATHY[params.dataset], runtime.data)
    rules = Rules(params, [path], runtime.memory)
    # Every stage opens the captions: the file is parsed when they are read.
    opened = (_open(one, params, KARPATHY, runtime, rules.bad) for one in [path])
    return Input(_by_name([path]), _config(params), lambda: rules.captions(opened), left_out=rules.left_out)


def _open_scan(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.scan_layout import COLUMNS, ids_file, read_scan, scan_files

    assert params.path is not None
    paths = scan_files(params.path)
    ids = [] if params.ids == "position" else [ids_file(p) for p in paths]
    rules = Rules(params, paths, runtime.memory)
    read = partial(read_scan, ids=params.ids, captions_per_image=params.captions_per_image, encoding=params.encoding)
    containers = ((of_records(f"{p}:", read(p), str(p)), COLUMNS) for p in paths)
    files = _by_name([*paths, *(p for p in ids if p.is_file())])
    config = _config(params, "ids", "captions_per_image")
    return Input(files, config, lambda: rules.captions(containers), note="format scan", left_out=rules.left_out)


def _open_files(params: IngestParams, path: Path, runtime: Runtime) -> Input:
    form = str(params.format)
    endings = ENDINGS["parquet" if form == "img2dataset" else form]
    # The content of other endings may be of the format as well.
    files = table_files(path, endings if _files(path, endings) else (*endings, *ENDINGS["json"], *ENDINGS["text"]))
    # COCO's annotations of objects lie beside those of captions.
    files = [file for file in files if file.name.startswith("captions_")] or files if form == "json" else files
    rules = Rules(params, files, runtime.memory)
    given = Columns.given(params)
    named = {_name(file, path): check_regular(file) for file in files}
    sha256: Callable[[Path], str] = input_sha256
    if form == "webdataset":
        # Of the captions alone, which are a small part of a shard.
        sha256 = partial(input_sha256, compute=partial(webdataset_digest, text=params.text_column), name=repr(given))
    # Later files must have the columns of the first.
    first = _open(files[0], params, given, runtime, rules.bad)
    columns = first[1]
    splits = _splits_of_names(files, path, params) if params.in_split is None and columns.split is None else {}
    note = f"format {form}; {columns.describe()}"
    if told := set(splits.values()):
        note = f"{note.partition('; splits')[0]}; splits: names of files ({', '.join(sorted(told))})"
    rules.note = note
    config = _config(params, "ids", "delimiter", "quotes", "columns", "records")
    config |= {"splits": "names of files"} if len(told) > 1 else {}

    def opened() -> Iterator[tuple[Container, Columns]]:
        for n, file in enumerate(files):
            container, found = _open(file, params, columns, runtime, rules.bad) if n else first
            yield container, replace(found, in_split=splits.get(file) or found.in_split)

    config["chosen"] = {**columns.__dict__, "text": list(columns.text)}
    return Input(named, config, lambda: rules.captions(opened()), sha256, note, rules.left_out)


def _open(path: Path, params: IngestParams, given: Columns, runtime: Runtime, bad: Bad) -> tuple[Container, Columns]:
    """Open a file; return its container and the columns that it has."""
    form, key = params.format, ""
    if form == "csv":
        container = containers.open_csv(path, params, usual_roles, bad)
    elif form == "jsonl":
        container = containers.open_lines(path, params, bad)
    elif form in ("json", "karpathy"):
        body = containers.open_json(path, params.encoding, runtime.memory)
        rows, key = records_of(body, str(path), params.records, bad)
        if key == "images" and {"filename", "sentences"} <= set(body["images"][0]):
            rows = karpathy_images(rows)
            given = replace(given, image_id=given.image_id or KEY, unique=not given.image_id or given.image_id == KEY)
        container = of_records(f"{path}: ", rows, str(path))
    elif form == "webdataset":
        container = open_tar(path, params, bad)
        image = given.image_id or KEY
        given = replace(given, text=(TEXT,), image_id=image, unique=image == KEY)
    elif form == "text":
        container = _open_text(path, params)
        given = replace(given, text=(TEXT,), image_id=KEY, unique=True)
    else:
        container = open_arrow(path, str(form), runtime.memory)
    if container.example is None:
        return container, given
    unique = given.unique
    found = given.find(container.example, container.where, container.hint, key == "annotations")
    return container, replace(found, unique=found.unique or unique)


def _open_text(path: Path, params: IngestParams) -> Container:
    """Open a text file beside an image, whose name is that of the image: each line is a caption."""
    texts = [line.rstrip("\r\n") for line in read_lines(path, params.encoding)]
    record = {KEY: path.stem, TEXT: [text for text in texts if text.strip()]}
    return of_records(f"{path}: ", iter([(path.stem, record, 0)]), str(path))


def guess_format(path: Path, encoding: str | None = None) -> Format:
    """Return the format of a file or folder of captions."""
    if path.is_dir():
        if sign := next((form for pattern, form in _SIGNS.items() if any(path.glob(pattern))), None):
            return sign
        found = {form: files[0] for form, endings in ENDINGS.items() if (files := _files(path, endings))}
        # Files of text beside others describe them, as JSON does.
        for form in ("text", "json"):
            found = {form: found[form]} if set(found) == {form} else {k: v for k, v in found.items() if k != form}
        if set(found) == {"text"}:
            # A table of captions may have a text beside it.
            texts = (file for file in _files(path, ENDINGS["text"])[:_TEXTS] if _kind("text", file, encoding) == "csv")
            found["text"] = next(texts, found["text"])
    else:
        found = {"": check_regular(path)}
    # img2dataset writes its metadata as Parquet beside the shards.
    if {"parquet", "webdataset"} <= set(found) and _kind("parquet", found["parquet"], None) == "img2dataset":
        return "img2dataset"
    kinds = {form: _kind(form, file, encoding) for form, file in found.items()}
    if len(kinds) == 1 and (kind := next(iter(kinds.values()))) is not None:
        return kind
    problem = f"files of several formats: {', '.join(found)}" if len(found) > 1 else "no captions of a known format"
    todo = f"Give the format with --format: one of {', '.join(get_args(Format))}."
    raise UsageError(problem, where=str(path), todo=todo)


def _kind(form: str, file: Path, encoding: str | None) -> Format | None:
    """Return the format of a file. `form`: what its ending says, "text" for a .txt in a folder."""
    kind = kind_of(file, encoding)
    if kind == "parquet" and {"key", STATUS} <= set(open_arrow(file, "parquet", 0).example or ()):
        return "img2dataset"
    if form == "text" and kind in (None, "csv"):
        head = next((line for line in read_lines(file, encoding) if line.strip()), "")
        table = max(usual_roles(head.strip().split(one)) for one in ",\t;|") == 2 or re.match(r"\S+#\d+\s", head)
        return "csv" if table else "text"
    return kind


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
        splits = {split_of(word, names) for word in re.split(r"[-_.]", part)} - {None}
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


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    return {path.name: check_regular(path) for path in paths}
