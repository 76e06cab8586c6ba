"""Files: which files of a folder hold captions, the format of each, and the splits that their names tell."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, cast, get_args

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import check_regular, decoded, read_blocks
from relabel.corpus.params import Format, IngestParams
from relabel.corpus.readers.containers import TOKEN, open_arrow, open_json
from relabel.corpus.readers.layouts import ABOUT, STATUS, form_of_text
from relabel.corpus.readers.scan_layout import scan_files
from relabel.corpus.splits import Split, split_of

ENDINGS: dict[str, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".token", ".psv", ".tab"),
    "json": (".json", ".json.gz"),
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonlines", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather"),
    "webdataset": (".tar", ".tar.gz", ".tgz"),
    "text": (".txt", ".txt.gz"),
}
"""Format to the endings of its files. In a folder, files with other endings are not read."""
_BY_NAME = {
    "packed": (".zip", ".bz2", ".xz", ".zst", ".7z", ".xlsx", ".xls", ".pkl"),
    "scan": ("_caps.txt",),
    "names": ("_ids.txt",),
    **{form: ENDINGS[form] for form in ("parquet", "arrow", "webdataset")},
}
"""Formats that the ending decides, without a look into the file, and what is not read."""
_MARKS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff" * 4: "arrow"}
_MARKS |= dict.fromkeys((b"PK\x03\x04", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd"), "packed")
"""Formats by the first bytes of a file."""
_SPLITS = "dataset_dict.json"
"""File of Hugging Face `datasets` beside a folder per split."""


def find_files(path: Path, form: Format | None, encoding: str | None = None) -> tuple[Format, list[Path]]:
    """Return the format and the files of captions at a path.

    `form`: the format if it is given, whose files are read then. Otherwise, all files that may hold captions must be of
    one format.
    """
    if form == "scan":
        return form, scan_files(path)
    if not path.is_dir():
        return form or _format_of_one(check_regular(path), encoding), [path]
    if form is None and any((path / folder / "captions_train2014.json").is_file() for folder in ("", "annotations")):
        return "coco", []
    found = dict[str, list[Path]]()
    endings = tuple(ending for endings in (ENDINGS | _BY_NAME).values() for ending in endings)
    for file in _walk(path):
        named = file.name.lower().endswith(endings) and not ABOUT.fullmatch(file.name)
        if named and (kind := _format_of(file, encoding)):
            found.setdefault(kind, []).append(file)
    if form is not None:
        others = {"img2dataset": ["parquet"], "karpathy": ["json"], "jsonl": ["jsonl", "json"]}.get(form, [form])
        files = [file for kind in others for file in found.get(kind, ())]
        files = files or [file for others in found.values() for file in others]
        return (form, sorted(files)) if files else _unclear(path, {})
    metadata = "parquet" in found and _is_metadata(found["parquet"][0])
    # Lists of names hold no captions, and the files of images that img2dataset wrote repeat the metadata.
    passed = ("webdataset", "text", "json", "names") if metadata else () if "text" in found else ("names",)
    found = {kind: files for kind, files in found.items() if kind not in passed}
    kind = next(iter(found), None)
    if len(found) > 1 or kind not in get_args(Format):
        return _unclear(path, found)
    return "img2dataset" if metadata else cast(Format, kind), found[str(kind)]


def _format_of_one(path: Path, encoding: str | None) -> Format:
    """Return the format of a file that is given by name."""
    form = _format_of(path, encoding)
    if form == "packed":
        todo = "Unpack it, or save it as CSV; .gz is read."
        raise CheckError("a packed file, or a workbook", where=str(path), todo=todo)
    if form == "parquet" and _is_metadata(path):
        return "img2dataset"
    # The name of one file of text is not that of an image.
    return "csv" if form in ("text", "names", "scan") else cast(Format, form) if form else _unclear(path, {})


def _format_of(path: Path, encoding: str | None) -> str | None:
    """Return the format of a file by its ending, or else by its first bytes; None if neither tells it.

    "names" is a list of images, and "packed" what must be unpacked first.
    """
    name, head = path.name.lower(), b""
    if form := next((form for form, endings in _BY_NAME.items() if name.endswith(endings)), None):
        return form
    try:
        head = next(read_blocks(path), b"")
        text = next(decoded([head], path, encoding), "").lstrip()
    except CheckError:
        text = head.decode("latin-1").lstrip()  # the reader names the fault
    if head[257:262] == b"ustar":
        return "webdataset"
    if form := next((form for mark, form in _MARKS.items() if head.startswith(mark)), None):
        return form
    # An object that ends before the next one begins.
    joined = re.match(r"\{[^\n]*\}\s*\n\s*\{", text)
    if joined or (name.endswith(ENDINGS["jsonl"]) and text[:1] != "["):
        return "jsonl"
    named = name.endswith((*ENDINGS["json"], *ENDINGS["jsonl"])) and text[:1] in ("", "[", "{")
    if named or re.match(r'\[\s*[\[{"\]]|\{\s*["}]', text):
        return "json"
    if name.endswith(ENDINGS["csv"]) or TOKEN.match(text):
        return "csv"
    if name.endswith(ENDINGS["text"]):
        return form_of_text(text)
    return "csv" if "\n" in text and "\0" not in text else None


def _is_metadata(path: Path) -> bool:
    """Return whether a Parquet file is the metadata of images that img2dataset downloaded."""
    return {"key", STATUS} <= {*(open_arrow(path, "parquet", 0).example or ())}


def _unclear(path: Path, found: Mapping[str, Sequence[Path]]) -> NoReturn:
    """Raise for files of no format or of several."""
    several = f"files of several formats: {', '.join(found)}"
    problem = several if len(found) > 1 else "no captions of a known format"
    todo = f"Give the format with --format: one of {', '.join(get_args(Format))}."
    if found:
        # The first of each, since there may be thousands.
        names = [f"{kind}: {', '.join(name_below(file, path) for file in files[:5])}" for kind, files in found.items()]
        problem, todo = f"{problem} ({'; '.join(names)})", f"{todo} Files of other formats are not read then."
    raise UsageError(problem, where=str(path), todo=todo)


def table_files(path: Path, endings: Sequence[str]) -> list[Path]:
    """Return the file itself, or the files below a folder with one of the endings, sorted by path.

    Names that begin with a dot or an underscore are left out, as are caches of Hugging Face `datasets`.
    """
    files = _walk(path) if path.is_dir() else [check_regular(path)]
    files = [file for file in files if not path.is_dir() or file.name.lower().endswith(tuple(endings))]
    if not files:
        raise UsageError(f"no {' or '.join(endings)} file in this folder", where=str(path))
    return files


def _walk(path: Path) -> list[Path]:
    """Return the files below a folder, also of folders that are links."""
    hidden, found, seen = (".", "_", "cache-"), list[Path](), {path.resolve()}
    for name, folders, files in os.walk(path, followlinks=True):
        folder = Path(name)
        inner = {one: (folder / one).resolve() for one in folders if not one.startswith(hidden)}
        # A link may lead to a folder above it.
        folders[:] = [one for one, real in inner.items() if real not in seen]
        seen.update(inner.values())
        names = _saved(folder) if any(file.endswith(".arrow") for file in files) else set()
        found += [folder / file for file in files if not file.startswith(hidden) and (not names or file in names)]
    return sorted(found)


def _saved(folder: Path) -> set[str]:
    """Return the shards that `save_to_disk` wrote last, which may be fewer than before; none of any other folder."""
    state = folder / "state.json"
    body = open_json(state, None, 0) if state.is_file() else {}
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
        # TestSet.csv, the folders split=val of Hive, and COCO's test-dev2017.
        words = re.split(r"[-_.= ]|(?<=[a-z])(?=[A-Z])", re.sub(r"(?i)(test)[-_](dev|std)", r"\1", part))
        splits = {split_of(word, names) for word in words} - {None}
        if len(splits) == 1:
            return splits.pop()
    return None


def splits_of_names(files: Sequence[Path], root: Path, params: IngestParams) -> dict[Path, Split]:
    """Return the split in the name of each file; none if no name tells one."""
    splits = {file: split for file in files if (split := split_of_name(file, root, params.split_names)) is not None}
    without = [file for file in files if file not in splits]
    if without and (root / _SPLITS).is_file():
        names = sorted({file.relative_to(root).parts[0] for file in without})
        todo = f"Map them, as in --set 'ingest.split_names={{{names[0]}: val}}', or all to one split with --in-split."
        raise CheckError(f"unknown splits: {', '.join(names)}", where=str(root / _SPLITS), todo=todo)
    if splits and without:
        message = f"{name_below(without[0], root)} names no split, and {name_below(next(iter(splits)), root)} does"
        todo = "Give --in-split, or map the names of others, as in --set 'ingest.split_names={NAME: val}'."
        raise UsageError(message, where=str(root), todo=todo)
    return splits


def name_below(file: Path, root: Path) -> str:
    """Return the name of a file below the folder that was given."""
    return file.relative_to(root).as_posix() if root in file.parents else file.name
