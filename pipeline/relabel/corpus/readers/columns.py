"""Columns of a table of captions: the choice of columns, and the conversion of a record to captions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from relabel.core.errors import CheckError, choices
from relabel.core.parameters import short
from relabel.core.parsing import identifier, namespaced, split_name
from relabel.corpus.build import Caption
from relabel.corpus.params import Split

TEXT_NAMES = ("text", "caption", "captions", "sentences", "sentence", "raw", "title")
IMAGE_NAMES = (
    *("image_id", "img_id", "cocoid", "filename", "file_name", "filepath", "image_path", "image", "url", "key"),
    "image_url",
)
CAPTION_ID_NAMES = ("caption_id", "sentids")
"""Names that are tried, in this order, for a column that is not named."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table. None takes the first of the usual names that exists.

    `caption_id`: strings or whole numbers; lists of them where captions are lists. Without such a column, ids are
        ``IMAGE#0``, ``IMAGE#1``, ... in the order of the file.
    `image_id`: strings, whole numbers, or records with a `path`.
    `text`: captions, or lists of captions of one image.
    `split`: without such a column, all captions are of `in_split`, or train.
    `in_split`: split of every caption; no column is read.
    `image_per_row`: whether each row is an image, named by its split and its number there: `train-0`.
    """

    caption_id: str | None = None
    image_id: str | None = None
    text: str | None = None
    split: str | None = None
    in_split: Split | None = None
    image_per_row: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        image = None if self.image_per_row else self.image_id
        split = self.split if self.in_split is None else None
        return tuple(name for name in (self.caption_id, image, self.text, split) if name is not None)

    def find(self, present: Collection[str], where: str, hint: str = "") -> Columns:
        """Return the columns of a table whose columns have the names `present`. `hint`: further advice."""

        def column(option: str, given: str | None, usual: Sequence[str], required: str = "") -> str | None:
            # A name that the user gave must exist, even where a usual column would do.
            name = given or next((name for name in usual if name in present), None)
            if name in present or not (given or required):
                return name
            problem = f"no column {given!r}" if given else f"no column of {required}"
            todo = f"{choices(given or usual[0], present)} Name the column with --{option}-column."
            # A table of captions alone often has no image ids because each row is one image.
            todo += " If every row is an image, give --image-per-row." if option == "image-id" else ""
            raise CheckError(problem, where=where, todo=todo + hint)

        caption_id = column("caption-id", self.caption_id, CAPTION_ID_NAMES)
        text = column("text", self.text, TEXT_NAMES, "captions")
        image = None if self.image_per_row else column("image-id", self.image_id, IMAGE_NAMES, "image ids")
        split = None if self.in_split else column("split", self.split, ("split",))
        in_split = self.in_split or (None if split else "train")
        return Columns(caption_id, image, text, split, in_split, self.image_per_row)

    def describe(self) -> str:
        """Describe columns for the lines that `relabel ingest` prints."""
        image = "one per row" if self.image_per_row else f"column {self.image_id}"
        ids = "image and position" if self.caption_id is None else f"column {self.caption_id}"
        splits = f"column {self.split}" if self.in_split is None else f"all {self.in_split}"
        return f"images: {image}; captions: column {self.text}; caption ids: {ids}; splits: {splits}"

    def captions(
        self, record: Mapping[str, Any], namespace: str, where: str, counts: MutableMapping[str, int]
    ) -> Iterator[Caption]:
        """Yield the captions of a record, whose columns `find` has returned.

        `record`: values by column. `counts`: number of captions of each image so far, and of rows of each split;
        updated.
        """
        split = self.in_split or split_name(identifier(record[str(self.split)], str(self.split), where))
        if self.image_per_row:
            # No image has the name of a split, which has no number.
            image = f"{split}-{counts.get(split, 0)}"
            counts[split] = counts.get(split, 0) + 1
        else:
            image = self._image(record, where)
        value = record[str(self.text)]
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(text is None or type(text) is str for text in texts):
            problem = f"{self.text!r}: expected a string or a list of strings, found {short(value)}"
            raise CheckError(problem, where=where)
        image_id = namespaced(namespace, image)
        if self.caption_id is None:
            # The captions of an image may lie in several rows or files: positions go on from the last one.
            first = counts.get(image, 0)
            counts[image] = first + len(texts)
            ids = [f"{image_id}#{first + k}" if image else "" for k in range(len(texts))]
        else:
            listed = record[self.caption_id] if isinstance(value, list) else [record[self.caption_id]]
            if not isinstance(listed, list) or len(listed) != len(texts):
                message = f"{self.caption_id!r}: expected a list of {len(texts)} ids, one per caption"
                raise CheckError(message, where=where)
            ids = [namespaced(namespace, identifier(one, self.caption_id, where)) for one in listed]
        for caption_id, text in zip(ids, texts, strict=True):
            yield Caption(caption_id, image_id, split, text or "", where)

    def _image(self, record: Mapping[str, Any], where: str) -> str:
        """Return the id of an image; of a record with a path (an image of Hugging Face `datasets`), the path."""
        value = record[str(self.image_id)]
        if isinstance(value, dict) and not value.get("path"):
            todo = "Name another column with --image-id-column, or give --image-per-row if every row is an image."
            raise CheckError(f"{self.image_id!r} is an image without a path", where=where, todo=todo)
        return identifier(value["path"] if isinstance(value, dict) else value, str(self.image_id), where)
