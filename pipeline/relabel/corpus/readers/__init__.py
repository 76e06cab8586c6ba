"""Readers of captions in any format. `open_input` is the entry point.

`files` finds the files. `containers` reads their records and locates each for messages. `layouts` finds the image,
captions, ids and split of a record. `rules` identifies images, leaves out invalid captions and resolves names of
splits. Ids get the namespace as a prefix (`coco:770337`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular
from relabel.core.runtime import Runtime
from relabel.corpus.build import Caption, RowIds
from relabel.corpus.params import PUBLISHED_FORMATS, IngestParams
from relabel.corpus.readers import containers
from relabel.corpus.readers.containers import Bad, Container, of_records, open_arrow
from relabel.corpus.readers.files import find_files, name_below, splits_of_names
from relabel.corpus.readers.layouts import KARPATHY, KEY, TEXT, Columns, records_of, usual_roles
from relabel.corpus.readers.rules import Rules
from relabel.corpus.readers.scan_layout import COLUMNS as SCAN
from relabel.corpus.readers.scan_layout import ids_file, read_scan
from relabel.corpus.readers.webdataset import captions_of_text, open_tar, webdataset_digest
from relabel.datasets import cxc, locate
from relabel.store.files import input_sha256

_ROWS = ("parquet", "arrow", "img2dataset")  # formats in which every row is a record
_KARPATHY: dict[str, tuple[str, str | None]] = {
    "coco": ("karpathy-splits", "dataset_coco.json"),
    "flickr30k": ("flickr30k", None),
}
"""Dataset manifest and file of the captions of each dataset. None selects the first alternative that exists."""
_FIXED = {"karpathy": KARPATHY, "scan": SCAN}
_READ: dict[str, tuple[str, ...]] = {"karpathy": (), "scan": ("ids", "captions_per_image")}
"""Columns and parameters of formats with fixed columns. Stages that read no captions do not open their files."""


@dataclass(frozen=True)
class Input:
    """Captions that are ready to be read.

    `files`: path of each file by name.
    `config`: parameters that affect the captions.
    `read`: returns the captions in file order.
    `sha256`: returns a hash of the content of a file.
    `note`: description of the recognised layout, to be printed.
    `left_out`: for each reason, the number of records that `read` has left out and the location of the first.
    `warnings`: warnings about the captions that `read` has returned.
    """

    files: dict[str, Path]
    config: dict[str, Any]
    read: Callable[[], Iterable[Caption]]
    sha256: Callable[[Path], str] = input_sha256
    note: str = ""
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def open_input(params: IngestParams, runtime: Runtime, row_ids: list[RowIds] | None = None) -> Input:
    """Find the files that `params` name and detect their layout, without reading the captions.

    `row_ids`: list to which the caption ids of each row are appended while the captions of a table are read.
    """
    path, form, files = params.path, params.format, list[Path]()
    if path is None:
        form = form or PUBLISHED_FORMATS.get(params.complete)
        if form == "karpathy" and params.complete in _KARPATHY:
            path = locate(*_KARPATHY[params.complete], runtime.data)
    if path is not None and form != "coco":
        form, files = find_files(path, form, params.encoding)
    elif form != "coco":
        message = f"no captions for dataset {params.dataset}"
        raise UsageError(message, where="ingest", hint="Pass a file or folder of captions with --path.")
    scan = params.ids in ("caption", "position")
    only = {"captions_per_image": "scan", "columns": "csv", "records": "json"} | ({"ids": "scan"} if scan else {})
    for key, wanted in only.items():
        # A parameter without an effect is probably a mistake.
        if getattr(params, key) and form != wanted:
            raise UsageError(f"{key} {getattr(params, key)} is for the format {wanted}, not {form}", where="ingest")
    if row_ids is not None and (path is None or not path.is_file() or form not in _ROWS):
        hint = "Read the captions, for example with pandas, and pass the table to relabel.label or relabel.ingest."
        problem = "ids by row require a table in memory, or one Parquet or Arrow file"
        raise UsageError(problem, where=str(path or params.dataset), hint=hint)
    params = params.model_copy(update={"format": form})
    if path is None or form == "coco":
        source = _open_coco(params, runtime)
    else:
        source = _open_files(params, path, files, runtime, row_ids)
    if (limit := params.limit) is None:
        return source
    return replace(source, read=lambda: first_images(source.read(), limit))


def first_images(captions: Iterable[Caption], limit: int) -> Iterator[Caption]:
    """Yield the captions of the first `limit` images of each split. Images without a valid caption do not count."""
    images = dict[str, set[str]]()
    # All captions are read: those of an image may be anywhere, and an error is reported whatever the limit.
    for caption in captions:
        first = images.setdefault(caption.split, set())
        if len(first) < limit:
            first.add(caption.image_id)
        if caption.image_id in first:
            yield caption


def _config(params: IngestParams, *names: str) -> dict[str, Any]:
    """Return the parameters that a format reads, and the parameters of all formats that differ from the defaults."""
    defaults = IngestParams()
    rules = ("encoding", "lists", "bad_records", "split_names", "limit")
    changed = [name for name in rules if getattr(params, name) != getattr(defaults, name)]
    return params.model_dump(mode="json", include={"format", *names, *changed})


def _open_coco(params: IngestParams, runtime: Runtime) -> Input:
    from relabel.corpus.readers.coco import COLUMNS, FILES, coco_files, open_coco
    from relabel.corpus.splits import coco_test_captions, split_by_ids

    paths = coco_files(params.path) if params.path else [locate("coco-captions", f, runtime.data) for f in FILES]
    # The two lists of ids determine the splits, so they are inputs of the corpus.
    ids, images = locate("eccv", "coco_test_ids.npy", runtime.data), cxc.shipped("sits", "val")
    files = {path.name: path for path in paths} | {"splits: test captions": ids, "splits: val images": images}
    rules = Rules(params, paths, runtime.memory)

    def read() -> Iterator[Caption]:
        lists = {"test_captions": coco_test_captions(ids), "val_images": cxc.image_ids("val")}
        opened = open_coco(paths, partial(split_by_ids, **lists), runtime.memory)
        return rules.captions((container, COLUMNS) for container in opened)

    return Input(files, _config(params), read, left_out=rules.left_out)


def _open_files(
    params: IngestParams, path: Path, files: Sequence[Path], runtime: Runtime, row_ids: list[RowIds] | None
) -> Input:
    form, listed = str(params.format), list[Path]()
    rules, given = Rules(params, files, runtime.memory), Columns.given(params)
    rules.row_ids = row_ids
    sha256: Callable[[Path], str] = input_sha256
    config = _config(params, *_READ.get(form, ("ids", "delimiter", "quotes", "columns", "records")))
    if form == "scan":
        listed = [] if params.ids == "position" else [one for one in map(ids_file, files) if one.is_file()]
    elif form == "webdataset":
        # Hash only the captions, a small part of a shard.
        digest = partial(webdataset_digest, text=params.text_column)
        sha256 = partial(input_sha256, compute=digest, name=f"captions {params.text_column}")
    # All files must have the columns of the first one with captions.
    opened = partial(_open, params=params, runtime=runtime, bad=rules.bad)
    model, first, columns = files[0], None, _FIXED.get(form, given)
    if form not in _FIXED:
        model, first, columns = _first(files, partial(opened, given=given))
    opened = partial(opened, given=columns, model=name_below(model, path))
    splits = splits_of_names(files, path, params) if params.in_split is None and columns.split is None else {}
    rules.note = note = f"format {form}; {columns.describe((first and first.example) or {})}"
    if in_names := set(splits.values()):
        note = f"{note.partition('; splits')[0]}; splits: names of files ({', '.join(sorted(in_names))})"
    config |= {"splits": "names of files"} if len(in_names) > 1 else {}
    config |= {"chosen": {**columns.__dict__, "text": list(columns.text)}} if first else {}

    def sources() -> Iterator[tuple[Container, Columns]]:
        for file in files:
            container, of_file = (first, columns) if first and file == model else opened(file)
            yield container, replace(of_file, in_split=splits.get(file) or of_file.in_split)

    named = {name_below(file, path): check_regular(file) for file in [*files, *listed]}
    return Input(named, config, lambda: rules.captions(sources()), sha256, note, rules.left_out, rules.warnings)


def _first(
    files: Sequence[Path], opened: Callable[[Path], tuple[Container, Columns]]
) -> tuple[Path, Container, Columns]:
    """Open the first file that has captions; raise the error of the first file if none has any."""
    for file in files:
        with suppress(CheckError):
            return file, *opened(file)
    return files[0], *opened(files[0])


def _open(
    path: Path, params: IngestParams, given: Columns, runtime: Runtime, bad: Bad, model: str = ""
) -> tuple[Container, Columns]:
    """Open a file; return its container and its columns. `model`: the file from which `given` was detected."""
    form, key = params.format, ""
    if form == "csv":
        container = containers.open_csv(path, params, usual_roles, bad)
    elif form == "jsonl":
        container = containers.open_lines(path, params, bad)
    elif form in ("json", "karpathy"):
        body = containers.open_json(path, params.encoding, runtime.memory)
        rows, key = records_of(body, str(path), params, bad)
        container = of_records(f"{path}: ", rows, str(path))
        if KEY in (container.example or ()):
            given = replace(given, image_id=given.image_id or KEY)
    elif form == "webdataset":
        container = open_tar(path, params, bad)
    elif form == "scan":
        rows = read_scan(path, params.ids, params.captions_per_image, params.encoding)
        return of_records(f"{path}:", rows, str(path)), SCAN
    elif form == "text":
        container = _open_text(path, params)
    else:
        container = open_arrow(path, str(form), runtime.memory)
    if container.example is None:
        return container, given
    try:
        columns = given.find(container.example, container.where, container.hint, key == "annotations")
    except CheckError as error:
        if model:
            existing = ", ".join([*container.example][:20])
            error.hint = f"{model} has it; this file has {existing}. Name columns that all files have, or move files "
            error.hint += "without captions away."
        raise
    return container, replace(columns, unique=columns.unique or given.unique or given.image_id == KEY)


def _open_text(path: Path, params: IngestParams) -> Container:
    """Open a text file that has the name of its image and one caption per line."""
    stem = path.name.removesuffix(".gz").removesuffix(".txt")
    record = {KEY: stem, TEXT: captions_of_text("".join(containers.read_texts(path, params.encoding)))}
    return of_records(f"{path}: ", iter([(stem, record)]), str(path))
