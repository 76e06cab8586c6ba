"""Rules for the records of all formats: identity of images, captions to leave out, names of splits."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError
from relabel.core.parsing import identifier, namespaced
from relabel.corpus.build import Caption, RowIds, is_unicode
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.containers import Container
from relabel.corpus.readers.layouts import KEY, OPENING, TEXT, Columns, as_list
from relabel.corpus.splits import mapping_hint, split_of

EMPTY = frozenset({"nan", "NaN", "None", "<NA>"})
"""Texts that pandas and Python write for a missing value."""
EMPTY_CAPTION = "empty caption"
SUCCESS = "success"
"""Status of an image that img2dataset downloaded."""
_FEW = 10  # empty captions that do not indicate a wrong layout
_LONGEST = 1 << 18  # maximum number of characters of a caption
_AVERAGE = 4096  # maximum mean length of captions, in characters, if they take over a quarter of the memory
_BYTES = 100  # memory per caption while captions are sorted
_POSITION = re.compile(r"(?!\w+://)(.*[^#\s])#(\d{1,9})", re.DOTALL)
_WHOLE = re.compile(r"-?\d+\.0+")
_FILE_NAME = re.compile(r"[^/\\]+\.[A-Za-z][A-Za-z0-9]{1,4}")


class Rules:
    """Conversion of records to captions, with a count of the records that were left out.

    `left_out`: for each reason, the number of records and the location of the first. `warnings`: complete after all
    captions were read. `note`: the layout, for messages. `row_ids`: list to which the ids of each record are appended.
    """

    def __init__(self, params: IngestParams, files: Sequence[Path], memory: int) -> None:
        self.params, self.files, self.memory = params, files, memory
        self.left_out: dict[str, tuple[int, str]] = {}
        self.row_ids: list[RowIds] | None = None
        self.warnings: list[str] = []
        self.note = ""
        self._file, self._record, self._records, self._bad = 0, 0, 0, 0
        self._example: dict[str, Any] = {}
        self._counts: dict[str, int] = {}
        self._first: dict[str, tuple[int, int, int | str]] = {}
        self._rows: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._characters = self._captions = 0
        self._shared, self._first_shared = 0, ""
        self._known: dict[str, str] = {}
        self._several = len({file.parent for file in files}) > 1
        self._root = os.path.commonpath([file.absolute().parent for file in files]) if files else ""

    def captions(self, sources: Iterable[tuple[Container, Columns]]) -> Iterator[Caption]:
        """Yield the captions of the containers of `files`."""
        for self._file, (container, columns) in enumerate(sources):
            # Names may be unique only within a file or folder.
            by_file = self.params.ids in ("shard", "folder")
            self._prefix = file_prefix(self.files[self._file], self._root, self.params.ids) if by_file else ""
            if (example := container.example) is not None:
                records, count = container.read(columns.paths(example)), len(example)
                self._compare(example, container.where)
                for self._record, (number, values) in enumerate(records):
                    if len(example) > count:
                        count = len(example)
                        self._compare(example, f"{container.place}{number}")
                    yield from self._captions_of(number, f"{container.place}{number}", columns, *values)
            self.end()
            self._records = self._bad = 0
        self.finish()

    def _compare(self, example: Mapping[str, Any], where: str) -> None:
        """Raise CheckError if a new column would have been read if the earlier records had it too."""
        earlier, self._example = self._example, self._example | {**example}
        if not earlier or len(self._example) == len(earlier):
            return
        given = Columns.given(self.params)
        if given.find(earlier, where) != given.find(self._example, where):
            late = ", ".join(name for name in example if name not in earlier)
            hint = "Add it to all records, or name the columns to read: --text-column, --image-id-column, --in-split, "
            hint += "or --set 'ingest.caption_id_column=\"\"'."
            raise CheckError(f"earlier records do not have the column {late}", where=where, hint=hint)

    def bad(self, reason: str, where: str) -> None:
        """Count a record that is left out, or raise CheckError if `bad_records` is "error"."""
        self._count(reason, where)
        self._bad += 1

    def _count(self, reason: str, where: str) -> None:
        if self.params.bad_records == "error":
            raise CheckError(reason, where=where, hint="To leave such records out, set ingest.bad_records=skip.")
        count, first = self.left_out.get(reason, (0, where))
        self.left_out[reason] = count + 1, first

    def end(self) -> None:
        """End a file. Raises CheckError if more than half of its captions were left out."""
        # A few empty captions do not indicate a wrong layout.
        if self._bad > self._records and (self._bad > _FEW or set(self.left_out) != {EMPTY_CAPTION}):
            reasons = "; ".join(f"{n:,} {reason} (first: {where})" for reason, (n, where) in self.left_out.items())
            total = self._bad + self._records
            problem = f"{self._bad:,} of {total:,} captions cannot be read: {reasons}"
            hint = f"Check the format, separator and columns: {self.note}."
            raise CheckError(problem, where=str(self.files[self._file]), hint=hint)

    def finish(self) -> None:
        """Raise CheckError for unknown names of splits; warn about images in several folders."""
        if self._shared and self.params.ids == "image":
            shared = (
                f"images of tables in several folders have {self._shared:,} more captions (first: {self._first_shared})"
            )
            self.warnings.append(f"{shared}; if they are different images, pass --ids folder")
        if unknown := [name for name in self._names if split_of(name, self.params.split_names) is None]:
            counts = ", ".join(f"{name!r} {count:,}" for name, count in self._names.most_common())
            hint = mapping_hint(unknown[0])
            raise CheckError(
                f"unknown split {unknown[0]!r}; there are {counts}",
                where=str(self.params.path or self.params.dataset),
                hint=hint,
            )

    def _captions_of(
        self,
        number: int | str,
        where: str,
        columns: Columns,
        image: Any,
        caption_id: Any,
        split: Any,
        status: Any,
        *texts: Any,
    ) -> Iterator[Caption]:
        """Yield the captions of a record from its values."""
        if status not in (SUCCESS, None):
            if not str(status).startswith("failed"):
                hint = "Rename the column status if it is not the status of a download."
                raise CheckError(f"status {status!r} is not a status of img2dataset", where=where, hint=hint)
            # Counted, but not as bad: a failed download is not an error of the file.
            self._count(f"image not downloaded: {status}", where)
            self._end_row([None], False)
            return
        split = self._split(split, where) if columns.split else columns.in_split or "train"
        # If captions are spread over several columns, a row may leave some of them empty.
        value = texts[0] if len(texts) == 1 else [text for text in texts if text not in (None, "")]
        value = self._unpacked(value, where)
        captions = value if type(value) is list else [value]
        if columns.image_per_row:
            # The name of a split has no position.
            named: list[tuple[str, int | None]] = [(f"{split}-{self._rows[split]}", None)]
            self._rows[split] += 1
        else:
            named = self._images(image, columns, where)
        caption_ids = (
            self._caption_ids(caption_id, value, len(captions), named, columns, where) if columns.caption_id else None
        )
        ids = list[str | None]()
        if not named:
            self.bad("record without an image", where)
        if len(named) == len(captions) > 1:
            hint = "Write a record for each image."
            problem = f"{len(named)} images and {len(captions)} captions: unclear which belong together"
            raise CheckError(problem, where=where, hint=hint)
        for name, position in named:
            image = namespaced(self.params.prefix, self._prefix + name if name else name)
            start = self._counts.get(image, 0) if position is None else position
            self._counts[image] = start + len(captions)
            if columns.unique or self._several:
                self._meet(image, name, columns, number, where)
            for k, text in enumerate(captions):
                ids.append(None)
                if type(text) is not str or not text.strip() or text in EMPTY:
                    self.bad(EMPTY_CAPTION if _is_nothing(text) else "caption that is not text", where)
                # JSON can hold a lone surrogate, but UTF-8 cannot.
                elif not (text.isascii() or is_unicode(text)):
                    self.bad("not Unicode text", where)
                else:
                    self._weigh(text, where)
                    caption = (f"{image}#{start + k}" if image else "") if caption_ids is None else caption_ids[k]
                    ids[-1] = caption
                    yield Caption(caption, image, split, text, where, start + k)
        self._end_row(ids, value is captions or len(named) != 1)

    def _end_row(self, ids: list[str | None], several: bool) -> None:
        if self.row_ids is not None:
            self.row_ids.append(ids if several else ids[0])

    def _unpacked(self, value: Any, where: str, ids: bool = False) -> Any:
        """Parse a list that was written as text; return any other value unchanged."""
        if type(value) is not str or not self.params.lists or not value.lstrip().startswith(OPENING):
            return value
        items = as_list(value, where, ids)
        return value if items is None else items

    def _weigh(self, text: str, where: str) -> None:
        """Count a caption. Raises CheckError if it is too long, or if all captions do not fit into memory."""
        if len(text) > _LONGEST:
            raise CheckError(f"caption of {len(text):,} characters; the maximum is {_LONGEST:,}", where=where)
        self._records += 1
        self._captions += 1
        self._characters += len(text)
        much = self._characters > max(self.memory // 4, _AVERAGE * self._captions)
        if much or self._captions * _BYTES > self.memory:
            problem = f"{self._captions:,} captions of {self._characters:,} characters do not fit into memory"
            raise CheckError(problem, where=where, hint="Increase --memory.")

    def _split(self, value: Any, where: str) -> str:
        """Return the split of a record. Unknown names are reported by `finish`."""
        name = value if type(value) is str else identifier(value, "split", where)
        self._names[name] += 1
        if name not in self._known:
            self._known[name] = split_of(name, self.params.split_names) or "train"
        return self._known[name]

    def _images(self, value: Any, columns: Columns, where: str) -> list[tuple[str, int | None]]:
        """Return the name of each image of a record, and the position of its caption if the name contains it."""
        if columns.image_id == KEY:
            return [(identifier(value, KEY, where), None)]
        value = self._unpacked(value, where, ids=True)
        images = list[tuple[str, int | None]]()
        for one in value if isinstance(value, list) else [value]:
            name = one if type(one) is str else identifier(one, str(columns.image_id), where)
            if name[-2:] == ".0" and _WHOLE.fullmatch(name):
                name = name.partition(".")[0]
            elif name in EMPTY:
                name = ""
            if not name and (columns.image_id or "").endswith(".path"):
                hint = "Name another column with --image-id-column, or pass --image-per-row if every row is an image."
                raise CheckError("an image without a path", where=where, hint=hint)
            at = _POSITION.fullmatch(name) if "#" in name else None
            images.append((at[1], int(at[2])) if at else (name, None))
        return images

    def _caption_ids(
        self, value: Any, text: Any, count: int, images: Sequence[Any], columns: Columns, where: str
    ) -> list[str]:
        key = str(columns.caption_id)
        value = self._unpacked(value, where, ids=True) if isinstance(text, list) else value
        ids = value if isinstance(text, list) else [value]
        if not isinstance(ids, list) or len(ids) != count:
            raise CheckError(f"{key!r}: expected a list of {count} ids, one per caption", where=where)
        if len(images) > 1:
            hint = f"Rename the column {key} to generate ids from image and position instead."
            raise CheckError("one caption id for a caption of several images", where=where, hint=hint)
        return [namespaced(self.params.prefix, self._prefix + identifier(one, key, where)) for one in ids]

    def _meet(self, image: str, name: str, columns: Columns, number: int | str, where: str) -> None:
        """Raise CheckError if another record has an image with the same name."""
        file, record, first = self._first.setdefault(image, (self._file, self._record, number))
        if (file, record) == (self._file, self._record) or not image:
            return
        earlier, current = self.files[file], self.files[self._file]
        if not columns.unique and earlier.parent == current.parent:
            return
        if not (columns.unique or _FILE_NAME.fullmatch(name)):
            # A number or path may be the same image if one dataset is spread over several folders.
            self._first_shared = self._first_shared or f"image {image}, {where}"
            self._shared += 1
            return
        ways = ["--image-id-column url"] if columns.status else []
        ways += ["--image-id-column filename"] if columns.image_id == KEY and columns.text != (TEXT,) else []
        if columns.unique and columns.image_id is not None and columns.image_id.endswith(".path"):
            ways.append("--image-per-row")
        if self.params.ids == "image":
            ways += ["--ids shard"] if file != self._file and columns.unique else []
            ways += ["--ids folder"] if earlier.parent != current.parent else []
        action = f"pass {' or '.join(ways)}" if ways else "give each its own name"
        hint = f"If they are different images, {action}."
        place = f"{earlier}: row {first}" if isinstance(first, int) else f"{earlier}: {first}"
        raise CheckError(f"image {image} is also in another record ({place})", where=where, hint=hint)


def file_prefix(file: Path, root: str, ids: str) -> str:
    """Return the path of a shard or its folder relative to the folder of all files, with a slash at the end."""
    inner = Path(os.path.relpath(file.absolute(), root))
    parent = "" if inner.parent == Path() else f"{inner.parent.as_posix()}/"
    return parent if ids == "folder" else f"{parent}{inner.name.partition('.')[0]}/"


def _is_nothing(text: Any) -> bool:
    return text is None or isinstance(text, str) or (isinstance(text, float) and text != text)
