"""Discovery of the files with captions in a folder, with their format and the splits in their names."""

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
from relabel.corpus.splits import Split, mapping_hint, split_of

ENDINGS: dict[str, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".token", ".psv", ".tab"),
    "json": (".json", ".json.gz"),
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonlines", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather"),
    "webdataset": (".tar", ".tar.gz", ".tgz"),
    "text": (".txt", ".txt.gz"),
}
"""File endings of each format. In a folder, files with other endings are not read."""
_BY_NAME = {
    "packed": (".zip", ".bz2", ".xz", ".zst", ".7z", ".xlsx", ".xls", ".pkl"),
    "scan": ("_caps.txt",),
    "names": ("_ids.txt",),
    **{form: ENDINGS[form] for form in ("parquet", "arrow", "webdataset")},
}
"""Endings that decide the format without reading the file, including formats that cannot be read."""
_MARKS = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff" * 4: "arrow"}
_MARKS |= dict.fromkeys((b"PK\x03\x04", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd"), "packed")
"""Formats by the first bytes of a file."""
_SPLITS = "dataset_dict.json"
"""File that Hugging Face `datasets` writes next to the folders of the splits."""


def find_files(path: Path, form: Format | None, encoding: str | None = None) -> tuple[Format, list[Path]]:
    """Return the format and the files of captions at a path.

    `form`: format of the files to return. By default, all files that may hold captions must have the same format.
    """
    if form == "scan":
        return form, scan_files(path)
    if not path.is_dir():
        return form or _format_of_one(check_regular(path), encoding), [path]
    if form is None and any((path / folder / "captions_train2014.json").is_file() for folder in ("", "annotations")):
        return "coco", []
    by_kind = dict[str, list[Path]]()
    endings = tuple(ending for endings in (ENDINGS | _BY_NAME).values() for ending in endings)
    for file in _walk(path):
        named = file.name.lower().endswith(endings) and not ABOUT.fullmatch(file.name)
        if named and (kind := _format_of(file, encoding)):
            by_kind.setdefault(kind, []).append(file)
    if form is not None:
        kinds = {"img2dataset": ["parquet"], "karpathy": ["json"], "jsonl": ["jsonl", "json"]}.get(form, [form])
        files = [file for kind in kinds for file in by_kind.get(kind, ())]
        files = files or [file for any_kind in by_kind.values() for file in any_kind]
        return (form, sorted(files)) if files else _unclear(path, {})
    metadata = "parquet" in by_kind and _is_metadata(by_kind["parquet"][0])
    # Lists of names do not hold captions, and the other files of img2dataset repeat the metadata.
    passed = ("webdataset", "text", "json", "names") if metadata else () if "text" in by_kind else ("names",)
    by_kind = {kind: files for kind, files in by_kind.items() if kind not in passed}
    kind = next(iter(by_kind), None)
    if len(by_kind) > 1 or kind not in get_args(Format):
        return _unclear(path, by_kind)
    return "img2dataset" if metadata else cast(Format, kind), by_kind[str(kind)]


def _format_of_one(path: Path, encoding: str | None) -> Format:
    """Return the format of a single file."""
    form = _format_of(path, encoding)
    if form == "packed":
        hint = "Unpack it, or save it as CSV; .gz files can be read."
        raise CheckError("compressed files and workbooks cannot be read", where=str(path), hint=hint)
    if form == "parquet" and _is_metadata(path):
        return "img2dataset"
    # A single text file is a table of captions: its name is not that of an image.
    return "csv" if form in ("text", "names", "scan") else cast(Format, form) if form else _unclear(path, {})


def _format_of(path: Path, encoding: str | None) -> str | None:
    """Detect the format of a file from its ending or its first bytes; return None if it is unknown.

    "names" is a list of names of images, and "packed" is a compressed file or a workbook.
    """
    name, head = path.name.lower(), b""
    if form := next((form for form, endings in _BY_NAME.items() if name.endswith(endings)), None):
        return form
    try:
        head = next(read_blocks(path), b"")
        text = next(decoded([head], path, encoding), "").lstrip()
    except CheckError:
        text = head.decode("latin-1").lstrip()  # the reader reports the error
    if head[257:262] == b"ustar":
        return "webdataset"
    if form := next((form for mark, form in _MARKS.items() if head.startswith(mark)), None):
        return form
    # An object that ends on its first line, followed by another one.
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
    """Return True if a Parquet file is the metadata of images that img2dataset downloaded."""
    return {"key", STATUS} <= {*(open_arrow(path, "parquet", 0).example or ())}


def _unclear(path: Path, found: Mapping[str, Sequence[Path]]) -> NoReturn:
    """Raise UsageError for files of several formats, or of an unknown one."""
    several = f"files of several formats: {', '.join(found)}"
    problem = several if len(found) > 1 else "no captions in a known format"
    hint = f"Set the format with --format: one of {', '.join(get_args(Format))}."
    if found:
        # Name only a few files of each format, because there may be thousands.
        names = [f"{kind}: {', '.join(name_below(file, path) for file in files[:5])}" for kind, files in found.items()]
        problem, hint = f"{problem} ({'; '.join(names)})", f"{hint} Files of other formats are then ignored."
    raise UsageError(problem, where=str(path), hint=hint)


def table_files(path: Path, endings: Sequence[str]) -> list[Path]:
    """Return the file itself, or the files below a folder that have one of the endings, sorted by path.

    Names that begin with a dot or an underscore, and caches of Hugging Face `datasets`, are ignored.
    """
    files = _walk(path) if path.is_dir() else [check_regular(path)]
    files = [file for file in files if not path.is_dir() or file.name.lower().endswith(tuple(endings))]
    if not files:
        raise UsageError(f"no {' or '.join(endings)} file in this folder", where=str(path))
    return files


def _walk(path: Path) -> list[Path]:
    """Return the files below a folder, following links to folders."""
    hidden, paths, seen = (".", "_", "cache-"), list[Path](), {path.resolve()}
    for name, folders, files in os.walk(path, followlinks=True):
        folder = Path(name)
        inner = {one: (folder / one).resolve() for one in folders if not one.startswith(hidden)}
        # A link may point to one of its parents.
        folders[:] = [one for one, real in inner.items() if real not in seen]
        seen.update(inner.values())
        names = _saved(folder) if any(file.endswith(".arrow") for file in files) else set()
        paths += [folder / file for file in files if not file.startswith(hidden) and (not names or file in names)]
    return sorted(paths)


def _saved(folder: Path) -> set[str]:
    """Return the shards that `save_to_disk` wrote last: older ones may remain. Empty for any other folder."""
    state = folder / "state.json"
    body = open_json(state, None, 0) if state.is_file() else {}
    shards = body.get("_data_files") if isinstance(body, dict) else None
    return {str(shard.get("filename")) for shard in shards or () if isinstance(shard, dict)}


def split_of_name(file: Path, root: Path, names: Mapping[str, Split] = {}) -> Split | None:
    """Return the split in the name of a file or of a folder between it and `root`, or None if there is none."""
    # Folders above `root` do not describe the file.
    inner = file.relative_to(root).parts if root in file.parents else (file.name,)
    # The file is checked first, then its parents. A name with two splits is skipped.
    for part in reversed(inner):
        if split := split_of(part.partition(".")[0], names):
            return split
        # Words of names such as TestSet.csv, split=val (Hive) and test-dev2017 (COCO).
        words = re.split(r"[-_.= ]|(?<=[a-z])(?=[A-Z])", re.sub(r"(?i)(test)[-_](dev|std)", r"\1", part))
        splits = {split_of(word, names) for word in words} - {None}
        if len(splits) == 1:
            return splits.pop()
    return None


def splits_of_names(files: Sequence[Path], root: Path, params: IngestParams) -> dict[Path, Split]:
    """Return the split in the name of each file. Empty if no name contains a split."""
    splits = {file: split for file in files if (split := split_of_name(file, root, params.split_names)) is not None}
    without = [file for file in files if file not in splits]
    if without and (root / _SPLITS).is_file():
        names = sorted({file.relative_to(root).parts[0] for file in without})
        problem = f"unknown splits: {', '.join(names)}"
        raise CheckError(problem, where=str(root / _SPLITS), hint=mapping_hint(names[0]))
    if splits and without:
        first, other = name_below(without[0], root), name_below(next(iter(splits)), root)
        message = f"the name of {first} contains no split, but that of {other} does"
        hint = "Pass --in-split, or map the other names, as in --set 'ingest.split_names={NAME: val}'."
        raise UsageError(message, where=str(root), hint=hint)
    return splits


def name_below(file: Path, root: Path) -> str:
    """Return the path of a file relative to the folder `root`, or its name if it is not inside."""
    return file.relative_to(root).as_posix() if root in file.parents else file.name
