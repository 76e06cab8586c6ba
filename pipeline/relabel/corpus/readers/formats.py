"""Guess of the format of captions from the suffix and content of their path, and of splits from names of files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from relabel.core.errors import UsageError
from relabel.core.parsing import SPLIT_NAMES, check_regular, read_json
from relabel.corpus.params import Format, Split
from relabel.corpus.readers.tables import STATUS, arrow_table

ENDINGS: dict[Format, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
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


def guess_format(path: Path) -> Format:
    """Return the format of a file or folder of captions."""
    if path.is_dir():
        signs = [form for pattern, form in _SIGNS.items() if any(path.glob(pattern))]
        found = signs[:1] or [form for form, endings in ENDINGS.items() if _files(path, endings)]
    else:
        check_regular(path)
        found = [form for form, endings in ENDINGS.items() if path.name.lower().endswith(endings)]
        # Karpathy's and COCO's files share this ending, so the content decides.
        if path.name.endswith((".json", ".json.gz")) and isinstance(body := read_json(path), dict) and "images" in body:
            if "annotations" in body:
                todo = "Name the folder that holds captions_train2014.json and captions_val2014.json."
                raise UsageError("one file of COCO's two", where=str(path), todo=todo)
            found = ["karpathy"]
    # img2dataset writes its metadata as Parquet beside the shards.
    if "parquet" in found:
        first = _files(path, ENDINGS["parquet"])[0]
        if {"key", STATUS} <= set(arrow_table(first, "parquet", Counter()).names):
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
