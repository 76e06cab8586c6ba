"""SCAN's files: `train_caps.txt`, `dev_caps.txt`, `test_caps.txt` (or `testall_caps.txt`), one caption per line.

The layout was introduced by Lee et al., Stacked Cross Attention, ECCV 2018, and is also used by VSE-infinity, SGRAF and
others. The captions of an image are consecutive. Ids are optional, in `train_ids.txt`, `dev_ids.txt`, ...
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus.readers.containers import Record, read_lines
from relabel.corpus.readers.layouts import Columns
from relabel.corpus.splits import split_of


def scan_files(folder: Path) -> list[Path]:
    """Return the `*_caps.txt` of a folder, one per split. `testall` is preferred: `test` is its first 1,000 images."""
    by_split: dict[str, Path] = {}
    # In reverse order, `testall_caps.txt` comes before `test_caps.txt`.
    for path in sorted(folder.glob("*_caps.txt"), reverse=True):
        name = _name(path)
        first = by_split.setdefault(split_of(name, {}) or name, path)
        if first != path and (_name(first), name) != ("testall", "test"):
            raise UsageError(f"{first.name} and {path.name} belong to one split", where=str(folder), hint="Keep one.")
    if not by_split:
        raise MissingError("no *_caps.txt in this folder", where=str(folder))
    return sorted(by_split.values())


def ids_file(path: Path) -> Path:
    """Return the path of the file with the ids of a file of captions."""
    return path.with_name(f"{_name(path)}_ids.txt")


COLUMNS = Columns("caption", "image", ("text",), "split")


def read_scan(path: Path, ids: str, captions_per_image: int | None, encoding: str | None = None) -> Iterator[Record]:
    """Read one split as records of caption, image, split and text.

    `ids`: content of `{split}_ids.txt`. "image" means image ids, one per caption or per image; captions become
    `{image}#0`, `{image}#1`. "caption" means caption ids; images become `{split}-0`. With "position", the file is not
    read; images become `{split}-0` and captions `{split}-0#0`. `captions_per_image`: lines per image, required unless
    the ids are image ids.
    """
    # The number of all lines is needed to check the ids.
    lines = [line.rstrip("\r\n") for line in read_lines(path, encoding)]
    if not lines:
        raise CheckError("no captions in this file", where=str(path))
    names = _names(path, len(lines), ids, captions_per_image)
    for number, (text, (caption, image)) in enumerate(zip(lines, names, strict=True), start=1):
        yield number, {"caption": caption, "image": image, "split": _name(path), "text": text}


def _names(path: Path, count: int, ids: str, size: int | None) -> list[tuple[str, str]]:
    """Return the caption id and image id of every line."""
    listed = [] if ids == "position" else _read_ids(path)
    if ids == "image":
        images = _image_of_line(ids_file(path), listed, count, size)
    elif size is None:
        hint = "Pass --set ingest.captions_per_image=N (usually 5)."
        raise UsageError("the number of captions per image is unknown", where=str(path), hint=hint)
    elif count % size:
        raise CheckError(f"{count:,} captions are not a multiple of {size} per image", where=str(path))
    else:
        images = [f"{_name(path)}-{n // size}" for n in range(count)]
    if ids == "caption":
        if len(listed) != count:
            problem = f"expected {count:,} ids, one per caption; found {len(listed):,}"
            raise CheckError(problem, where=str(ids_file(path)))
        return list(zip(listed, images, strict=True))
    positions: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    return [(f"{image}#{next(positions[image])}", image) for image in images]


def _image_of_line(path: Path, listed: Sequence[str], count: int, size: int | None) -> list[str]:
    """Return the image id of every line from a list with one id per caption or per image."""
    each, rest = divmod(count, len(listed)) if listed else (0, count)
    if rest or (size and each not in (1, size)):
        also = f"one per image ({count // size:,})" if size else "one per image"
        raise CheckError(f"expected {count:,} ids, one per caption, or {also}; found {len(listed):,}", where=str(path))
    # Distinct ids, one per caption, may be caption ids, or ids of images with one caption each.
    if each == 1 and size is None and len(set(listed)) == count:
        hint = "For caption ids, pass --ids caption and --set ingest.captions_per_image=N. For images with one "
        hint += "caption, pass --set ingest.captions_per_image=1."
        raise CheckError("every id appears once: caption ids or image ids?", where=str(path), hint=hint)
    # In a list by image, each id appears once. In a list by caption, it appears once per caption of the image.
    per_id = (size or each) // each if size or each > 1 else None
    for image, repeats in Counter(listed).items():
        if per_id and repeats != per_id:
            problem = f"image {image}: expected {per_id * each} captions, found {repeats * each}"
            raise CheckError(problem, where=f"{path}:{listed.index(image) + 1}")
    return [image for image in listed for _ in range(each)]


def _read_ids(path: Path) -> list[str]:
    ids = ids_file(path)
    if not ids.is_file():
        hint = "Add it, or generate ids with --ids position and --set ingest.captions_per_image=N."
        raise MissingError("missing file of ids", where=str(ids), hint=hint)
    listed = [line.strip() for line in read_lines(ids, None)]
    if "" in listed:
        raise CheckError("empty id", where=f"{ids}:{listed.index('') + 1}")
    return listed


def _name(path: Path) -> str:
    return path.name.removesuffix("_caps.txt")
