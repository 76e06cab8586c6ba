"""Guess of the format of captions from the suffix and content of their path, and of splits from names of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from relabel.core.errors import UsageError
from relabel.core.parsing import SPLIT_NAMES, check_regular, parse_json, read_text
from relabel.corpus.params import Format, Split

ENDINGS: dict[Format, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    "jsonl": (".jsonl", ".jsonl.gz", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow",),
    "webdataset": (".tar", ".tar.gz", ".tgz"),
}
"""Format to the endings of its files."""
_STATES = ("dataset_dict.json", "state.json")  # of Hugging Face `datasets`, written by save_to_disk


def guess_format(path: Path) -> tuple[Format, str]:
    r"""Return the format of a file or folder of captions, and the reason for the guess."""
    if path.is_dir():
        return _guess_folder(path)
    check_regular(path)
    for name, endings in ENDINGS.items():
        if path.name.lower().endswith(endings):
            return _refine(name, path)
    if path.name.endswith((".json", ".json.gz")):
        # Karpathy's and COCO's files share this ending, so the content decides.
        body = parse_json(read_text(path), str(path))
        if isinstance(body, dict) and isinstance(body.get("images"), list):
            if "annotations" not in body:
                return "karpathy", "a list of images with sentences"
            todo = "Name the folder that holds captions_train2014.json and captions_val2014.json."
            raise UsageError("one file of COCO's two", where=str(path), todo=todo)
    raise _unclear("the format of this file is not clear", path)


def _guess_folder(folder: Path) -> tuple[Format, str]:
    # The surest signs come first: a saved dataset and COCO's annotations hold files of other formats as well.
    for state in _STATES:
        if (folder / state).is_file():
            return "arrow", f"it has a {state}"
    if (folder / "captions_train2014.json").is_file() or (folder / "annotations").is_dir():
        return "coco", "it has COCO's annotations"
    if any(folder.glob("*_caps.txt")):
        return "scan", "it has *_caps.txt files"
    present = [name for name, endings in ENDINGS.items() if table_files(folder, endings, none_is_error=False)]
    # img2dataset writes its metadata as Parquet beside the shards.
    if "parquet" in present:
        guess = _refine("parquet", table_files(folder, ENDINGS["parquet"])[0])
        if guess[0] == "img2dataset" or len(present) == 1:
            return guess
    if len(present) == 1:
        return present[0], f"it has {ENDINGS[present[0]][0]} files"
    problem = f"files of several formats: {', '.join(present)}" if present else "no file of captions in this folder"
    raise _unclear(problem, folder)


def _refine(name: Format, path: Path) -> tuple[Format, str]:
    """Return img2dataset for a Parquet file with its columns, else the format by the ending."""
    from relabel.corpus.readers.tables import parquet_columns

    if name == "parquet" and {"key", "status"} <= set(parquet_columns(path)):
        return "img2dataset", "it has the columns key and status"
    return name, "by its ending"


def _unclear(problem: str, path: Path) -> UsageError:
    formats = ", ".join(get_args(Format))
    return UsageError(problem, where=str(path), todo=f"Give the format with --format: one of {formats}.")


def table_files(path: Path, endings: Sequence[str], *, none_is_error: bool = True) -> list[Path]:
    """Return the file itself, or the files below a folder with one of the endings, sorted by path.

    Names that begin with a dot or an underscore are left out, as are caches of Hugging Face `datasets`.
    """
    if not path.is_dir():
        return [check_regular(path)]
    hidden = (".", "_", "cache-")
    files = sorted(
        file
        for file in path.rglob("*")
        if file.name.lower().endswith(tuple(endings))
        and not any(part.startswith(hidden) for part in file.relative_to(path).parts)
    )
    if not files and none_is_error:
        raise UsageError(f"no {' or '.join(endings)} file in this folder", where=str(path))
    return files


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
