"""Parameters of `relabel ingest`: the captions, their format and their expected counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from relabel.core.parameters import Parameters

Format = Literal["coco", "karpathy", "jsonl", "csv", "parquet", "arrow", "webdataset", "img2dataset", "scan"]
Split = Literal["train", "val", "test"]
NAME = r"^[a-z0-9][a-z0-9_.-]*$"


class Counts(Parameters):
    """Expected counts of images and captions. None is not checked."""

    images: int | None = Field(None, ge=0, le=2**31 - 1)
    captions: int | None = Field(None, ge=0, le=2**31 - 1)


Expected = dict[Literal["all", "train", "val", "test"], Counts]

PUBLISHED_COUNTS: dict[str, Expected] = {
    "coco": {
        "all": Counts(images=123_287, captions=616_767),
        "train": Counts(images=113_287, captions=566_747),
        "val": Counts(images=5_000, captions=25_010),
        "test": Counts(images=5_000, captions=25_010),
    },
    "flickr30k": {
        "all": Counts(images=31_014, captions=155_070),
        "train": Counts(images=29_000, captions=145_000),
        "val": Counts(images=1_014, captions=5_070),
        "test": Counts(images=1_000, captions=5_000),
    },
}
"""Counts of the published datasets. Captions with other counts are not the dataset, in any format."""

PUBLISHED_FORMATS: dict[str, Format] = {"coco": "coco", "flickr8k": "karpathy", "flickr30k": "karpathy"}
"""Format in which a dataset is published."""


class IngestParams(Parameters):
    """Parameters of `relabel ingest`."""

    dataset: str = Field("coco", pattern=NAME, description="Name of the corpus.")
    namespace: str | None = Field(
        None, pattern=NAME, description="Prefix of every id; the dataset's name if not given."
    )
    format: Format | None = Field(
        None,
        description="Format of the captions; guessed from the path if not given. arrow: save_to_disk of Hugging Face "
        "`datasets`. img2dataset: its metadata, of images that were downloaded.",
    )
    path: Path | None = Field(
        None, description="File or folder of captions; the files of `relabel fetch` if not given."
    )
    url: str | None = Field(
        None,
        description="URL of captions instead of a path: a file, a folder or a pattern on any file system of fsspec, as "
        "in s3://bucket/captions/*.parquet. They are copied into the folder of fetched files.",
    )
    tokenizer: Literal["ptb", "none"] = Field("ptb", description="Tokens to store; ptb needs Java.")
    caption_id_column: str | None = Field(
        None,
        description="Tables: column of caption ids; caption_id or sentids if not given, else ids are made from image "
        "and position.",
    )
    image_id_column: str | None = Field(
        None, description="Tables: column of image ids; image_id, filename, image, url or the like if not given."
    )
    text_column: str | None = Field(
        None, description="Tables: column of captions, or of lists of captions; text or caption if not given."
    )
    split_column: str | None = Field(None, description="Tables: column of splits; split if not given.")
    image_per_row: bool = Field(False, description="Tables: every row is an image, named by split and number.")
    in_split: Split | None = Field(
        None,
        description="Tables: split of all captions. Without it or a column of splits, the split is that in the names "
        "of files, else train.",
    )
    columns: tuple[str, ...] = Field(
        (), description="csv: names of the columns of a file without a header, as in caption,url."
    )
    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="csv: separator of fields; a tab for .tsv files, else a comma."
    )
    quotes: bool = Field(True, description="csv: fields may be quoted; false if quotes are part of the captions.")
    ids: Literal["image", "caption", "position", "shard"] = Field(
        "image",
        description="scan: content of the *_ids.txt files; position reads none and makes ids from line numbers. "
        "webdataset: shard puts the name of the shard before each key.",
    )
    captions_per_image: int | None = Field(None, ge=1, le=1_000_000, description="scan: lines per image.")
    expected: Expected | None = Field(
        None, description="Counts to check; those of the published dataset if not given, {} for none."
    )
    rows_per_shard: int = Field(50_000, ge=1, le=10_000_000, description="Captions per shard.")

    @field_validator("columns", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        texts = [value] if isinstance(value, str) else value
        return [name.strip() for text in texts for name in str(text).split(",")] if isinstance(texts, list) else texts

    @field_validator("url", mode="after")
    @classmethod
    def _refuse_path(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("path") is not None:
            raise ValueError("path and url exclude each other")
        return value

    def separator(self, file: Path) -> str:
        """Return the separator of fields of a CSV file."""
        return self.delimiter or ("\t" if ".tsv" in file.suffixes else ",")

    @property
    def has_location(self) -> bool:
        """True if the parameters say where the captions are: they are not those of `relabel fetch`."""
        return self.path is not None or self.url is not None

    @property
    def prefix(self) -> str:
        """Namespace of ids."""
        return self.namespace or self.dataset

    @property
    def counts(self) -> Expected:
        """Expected counts: those of the parameters, else those of the published dataset, else none."""
        if self.expected is not None:
            return self.expected
        return PUBLISHED_COUNTS.get(self.dataset, {})
