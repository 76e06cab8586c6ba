"""Local copies of captions at a URL of fsspec. For tar files, only the members with captions are copied.

Captions are hashed and then read, so each file is read twice. With a copy, both passes read the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core.errors import MissingError, PartialError, RelabelError
from relabel.core.runtime import SILENT, Progress
from relabel.corpus.params import Format, IngestParams
from relabel.corpus.readers.files import ENDINGS
from relabel.corpus.readers.webdataset import copy_captions
from relabel.store.files import write_atomic
from relabel_train.files import check_name

_READ = tuple(ending for endings in ENDINGS.values() for ending in endings)
"""Endings of the files that are copied from a folder."""


def fetch_captions(params: IngestParams, data: Path, progress: Progress = SILENT) -> Path:
    """Copy the captions at `params.url` into the folder of fetched files; return the local file or folder.

    The folder is named by the names, sizes and ETags of the files. An interrupted copy resumes, a complete one is
    reused, and if any file changes at the URL, all files are copied again.
    """
    import fsspec

    where = url = str(params.url)
    try:
        filesystem, path = fsspec.url_to_fs(url)
        root, files = _list_files(filesystem, path.rstrip("/"), params.format)
        state = json.dumps([params.text_column, files], sort_keys=True, default=str)
        place, folder = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in (url, state))
        copies = data / "remote" / place / folder
        with progress.bar(f"copy {url}", len(files), "files") as bar:
            for name in files:
                where = f"{url}: {name}"
                if not (copies / name).is_file():
                    with filesystem.open(f"{root}/{name}", "rb") as file:
                        write_atomic(copies / name, partial(_copy, file, params.text_column, where))
                bar.advance(1)
    except RelabelError:
        raise
    except (FileNotFoundError, FileExistsError, ImportError, ValueError) as error:
        raise MissingError(str(error), where=where, hint="Check the URL, or pass a pattern.") from error
    # The errors of file systems do not have a common base class.
    except Exception as error:
        hint = "Check your credentials and connection, and run the command again. Complete files are kept."
        raise PartialError(f"{type(error).__name__}: {error}", where=where, hint=hint) from error
    for other in copies.parent.iterdir():
        if other != copies:
            shutil.rmtree(other)
    single = path.rpartition("/")[2]
    return copies / single if list(files) == [single] else copies


def _list_files(filesystem: Any, path: str, form: Format | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """List the files at a path or pattern; return their folder, and the properties of each file by relative name."""
    filesystem.invalidate_cache()  # another process may have written since
    if filesystem.isdir(path):
        root, entries = path, filesystem.find(path, detail=True)
        entries = {key: about for key, about in entries.items() if key.lower().endswith(_READ)}
        # img2dataset writes tar files of images next to its metadata.
        if form != "webdataset" and any(key.endswith(".parquet") for key in entries):
            entries = {key: about for key, about in entries.items() if not key.endswith(ENDINGS["webdataset"])}
    else:
        # The root is above the first pattern, because names of folders may contain splits.
        root, entries = re.split(r"/[^/]*[*?[]|/[^/]*$", path, maxsplit=1)[0], filesystem.glob(path, detail=True)
    if not (keys := [key for key in sorted(entries) if entries[key]["type"] == "file"]):
        raise FileNotFoundError("no captions at this URL")
    # Keys of object stores and archives may be unsafe paths, such as paths out of their folder.
    return root, {check_name(key.removeprefix(f"{root}/")): entries[key] for key in keys}


def _copy(file: Any, text: str | None, where: str, out: Path) -> None:
    if where.lower().endswith(ENDINGS["webdataset"]):
        copy_captions(file, out, text, where)
        return
    with out.open("wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 22)
