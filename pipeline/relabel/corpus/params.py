"""Parameters of ingest: the captions and their way into a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from relabel.core.parameters import Parameters

Format = Literal["coco", "karpathy", "jsonl", "csv", "parquet", "scan"]
Split = Literal["train", "val", "test"]
NAME = r"^[a-z0-9][a-z0-9_.-]*$"


class Counts(Parameters):
    """Expected counts of images and captions; None is not checked."""

    images: int | None = Field(None, ge=0, le=2**31 - 1)
    captions: int | None = Field(None, ge=0, le=2**31 - 1)


Expected = dict[Literal["all", "train", "val", "test"], Counts]

KNOWN: dict[str, Expected] = {
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
"""Counts of the published datasets. Captions with other counts are not the dataset, whatever their format."""

OWN_FORMAT: dict[str, Format] = {"coco": "coco", "flickr8k": "karpathy", "flickr30k": "karpathy"}
"""Format in which a published dataset comes."""


class IngestParams(Parameters):
    """Parameters of ingest."""

    dataset: str = Field("coco", pattern=NAME, description="Name of the corpus.")
    namespace: str | None = Field(
        None, pattern=NAME, description="Put before every id; the dataset's name if not given."
    )
    format: Format | None = Field(
        None,
        description="How the captions are stored; as the dataset is published if not given: coco as coco, "
        "flickr8k and flickr30k as karpathy.",
    )
    path: Path | None = Field(None, description="File or folder of captions; what `relabel fetch` got if not given.")
    splits: Path | None = Field(
        None, description="coco: a dataset_coco.json that names the splits; those of ECCV Caption and CxC if not given."
    )
    tokenizer: Literal["ptb", "none"] = Field("ptb", description="Tokens to store; ptb needs Java.")
    caption_id_column: str = Field("caption_id", description="jsonl, csv, parquet: column of caption ids.")
    image_id_column: str = Field("image_id", description="jsonl, csv, parquet: column of image ids.")
    text_column: str | None = Field(
        None, description="jsonl, csv, parquet: column of captions; text or caption if not given."
    )
    split_column: str = Field("split", description="jsonl, csv, parquet: column of splits.")
    in_split: Split | None = Field(
        None, description="jsonl, csv, parquet: the split of all captions; no column is read."
    )
    delimiter: str = Field(",", min_length=1, max_length=1, description="csv: what stands between fields.")
    ids: Literal["image", "caption", "position"] = Field(
        "image", description="scan: what the *_ids.txt name; position reads none and makes ids of line numbers."
    )
    captions_per_image: int | None = Field(None, ge=1, le=1_000_000, description="scan: how many lines each image has.")
    expected: Expected | None = Field(
        None, description="Counts to insist on; those of the dataset as published if not given, {} for none."
    )
    rows_per_shard: int = Field(50_000, ge=1, le=10_000_000, description="Captions a shard.")

    @model_validator(mode="before")
    @classmethod
    def _set_own_format(cls, values: Any) -> Any:
        """Fill in the format of a published dataset."""
        if isinstance(values, dict) and values.get("format") is None:
            return {**values, "format": OWN_FORMAT.get(str(values.get("dataset", "coco")))}
        return values

    @model_validator(mode="after")
    def _refuse_idle(self) -> IngestParams:
        if self.splits is not None and self.format != "coco":
            raise ValueError(f"splits is for the format coco; {self.format} names its own")
        if self.captions_per_image is not None and self.format != "scan":
            raise ValueError(f"captions_per_image is for the format scan, not {self.format}")
        return self

    @property
    def prefix(self) -> str:
        """The namespace of ids."""
        return self.namespace or self.dataset

    @property
    def counts(self) -> Expected:
        """Expected counts of the corpus."""
        if self.expected is not None:
            return self.expected
        return KNOWN.get(self.dataset, {})
