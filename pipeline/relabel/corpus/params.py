"""Parameters of `relabel ingest`: the captions, their format and their expected counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field

from relabel.core.parameters import SET_ONLY, Parameters
from relabel.corpus.splits import NamedSplit

Table = Literal["csv", "parquet", "arrow", "webdataset", "img2dataset", "scan", "text"]
Format = Literal["coco", "karpathy", "json", "jsonl", Table]
NAME = r"^[a-z0-9][a-z0-9_.-]*$"
_FIRST = re.compile(r"-first-\d+$")


def captions_at(location: str) -> dict[str, str]:
    """Return the parameter that sets a location of captions: `ingest.url` for a URL, `ingest.path` for a path."""
    return {"ingest.url" if "://" in location else "ingest.path": location}


def dataset_name(location: str) -> str:
    """Derive the name of a dataset from a file, folder or URL: `My captions.csv.gz` gives `my-captions`."""
    stem = location.rstrip("/").rpartition("/")[2].partition(".")[0]
    return re.sub(r"[^a-z0-9_.-]+", "-", stem.lower()).strip("-_.") or "captions"


def name_of_first(dataset: str, images: int) -> str:
    """Return the name of a dataset limited to its first images, as in `coco-first-500`. An older limit is replaced."""
    return f"{_FIRST.sub('', dataset)}-first-{images}"


class Counts(Parameters):
    """Expected counts of images and captions. A count that is None is not checked."""

    images: int | None = Field(None, ge=0, le=2**31 - 1)
    captions: int | None = Field(None, ge=0, le=2**31 - 1)


Expected = dict[Literal["all", "train", "val", "test"], Counts]

PUBLISHED_COUNTS: dict[str, Expected] = {
    "coco": {
        "train": Counts(images=113_287, captions=566_747),
        "val": Counts(images=5_000, captions=25_010),
        "test": Counts(images=5_000, captions=25_010),
    },
    "flickr30k": {
        "train": Counts(images=29_000, captions=145_000),
        "val": Counts(images=1_014, captions=5_070),
        "test": Counts(images=1_000, captions=5_000),
    },
}
"""Counts of the published datasets. They are checked whatever the format of the captions."""

PUBLISHED_FORMATS: dict[str, Format] = {"coco": "coco", "flickr8k": "karpathy", "flickr30k": "karpathy"}
"""Format in which each dataset is published."""


class IngestParams(Parameters):
    """Parameters of `relabel ingest`."""

    dataset: str = Field("coco", pattern=NAME, description="Name of the corpus.", json_schema_extra=SET_ONLY)
    namespace: str | None = Field(None, pattern=NAME, description="Prefix of every id; by default the dataset's name.")
    format: Format | None = Field(None, description="Format of the captions; by default inferred from the path.")
    path: Path | None = Field(None, description="File or folder of captions; by default the files of `relabel fetch`.")
    url: str | None = Field(None, description="File, folder or pattern of captions on a file system of fsspec.")
    caption_id_column: str | None = Field(
        None, description="Tables: caption ids; by default caption_id; '' generates ids.", json_schema_extra=SET_ONLY
    )
    image_id_column: str | None = Field(None, description="Tables: image ids; by default image_id, filename, url, ...")
    text_column: str | None = Field(None, description="Tables: captions, or lists of them; by default text or caption.")
    split_column: str | None = Field(
        None, description="Tables: column of splits; by default split.", json_schema_extra=SET_ONLY
    )
    image_per_row: bool = Field(False, description="Tables: every row is an image, named by split and number.")
    in_split: NamedSplit | None = Field(
        None, description="Tables: split of all captions; by default the split in the file names, or train."
    )
    columns: tuple[str, ...] = Field((), description="csv: columns of a file without a header, as in caption,url.")
    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="csv: field separator; by default a tab for .tsv, or the header's: comma, tab, semicolon or |.",
        json_schema_extra=SET_ONLY,
    )
    quotes: bool = Field(
        True,
        description="csv: fields may be quoted; set to false if quotes are part of the captions.",
        json_schema_extra=SET_ONLY,
    )
    encoding: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Text encoding; by default UTF-8, or UTF-16 with a byte order mark.",
        json_schema_extra=SET_ONLY,
    )
    records: str | None = Field(
        None,
        description="json: key of the records, or a path as in data.items; detected by default.",
        json_schema_extra=SET_ONLY,
    )
    lists: bool = Field(
        True,
        description="Read a text such as ['a', 'b'] as a list of captions; if false, as one caption.",
        json_schema_extra=SET_ONLY,
    )
    bad_records: Literal["skip", "error"] = Field(
        "skip",
        description="Empty captions and rows that do not parse: skip leaves them out and counts them; error stops.",
        json_schema_extra=SET_ONLY,
    )
    duplicates: Literal["keep", "drop"] = Field(
        "keep",
        description="Captions that repeat a text of their image: keep (they are counted) or drop.",
        json_schema_extra=SET_ONLY,
    )
    split_names: dict[str, NamedSplit] = Field(
        {}, description="Additional names of splits, as in {qual_dev: val}.", json_schema_extra=SET_ONLY
    )
    ids: Literal["image", "caption", "position", "shard", "folder"] = Field(
        "image",
        description="scan: content of the *_ids.txt files; position does not read them. Other formats: shard adds the "
        "name of the shard as a prefix to each key, folder that of the folder to each image id.",
    )
    captions_per_image: int | None = Field(
        None, ge=1, le=1_000_000, description="scan: lines per image.", json_schema_extra=SET_ONLY
    )
    expected: Expected | None = Field(
        None, description="Counts to check; by default the published ones; {} for none.", json_schema_extra=SET_ONLY
    )
    limit: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Read the first images of each split, as the dataset NAME-first-LIMIT."
    )

    @property
    def has_location(self) -> bool:
        """True if the parameters name a path or URL. Otherwise, the captions are those of `relabel fetch`."""
        return self.path is not None or self.url is not None

    @property
    def complete(self) -> str:
        """Name of the dataset without a limit. Both are read from the same files."""
        return self.dataset if self.limit is None else _FIRST.sub("", self.dataset)

    @property
    def prefix(self) -> str:
        """Prefix of the ids, without the colon."""
        return self.namespace or self.dataset

    @property
    def counts(self) -> Expected:
        """Expected counts, by default those of the published dataset. Empty if there is a limit."""
        if self.limit is not None:
            return {}
        return PUBLISHED_COUNTS.get(self.dataset, {}) if self.expected is None else self.expected
