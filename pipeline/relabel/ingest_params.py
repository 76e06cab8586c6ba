"""Parameters of ingest: which captions, and how they become a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Format = Literal["coco", "karpathy", "jsonl", "csv", "parquet", "scan"]
Split = Literal["train", "val", "test"]
NAME = r"^[a-z0-9][a-z0-9_.-]*$"


class Counts(BaseModel):
    """How many images and captions there must be; None is not checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    images: int | None = None
    captions: int | None = None


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
"""Counts of the datasets as their own formats (coco, karpathy) hold them."""


KARPATHY = ("flickr8k", "flickr30k")
"""Datasets that come as Karpathy's JSON alone."""


class IngestParams(BaseModel):
    """Which captions, and how they become a corpus."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: str = Field("coco", pattern=NAME, description="Name of the corpus.")
    namespace: str | None = Field(
        None, pattern=NAME, description="Put before every id; the dataset's name if not given."
    )
    format: Format = Field("coco", description="How the captions are stored.")
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
    captions_per_image: int | None = Field(None, ge=1, description="scan: how many lines each image has.")
    expected: Expected | None = Field(
        None, description="Counts to insist on; those of the dataset as published if not given, {} for none."
    )
    rows_per_shard: int = Field(50_000, ge=1, description="Captions a shard.")

    @model_validator(mode="before")
    @classmethod
    def _know_format(cls, values: Any) -> Any:
        """Datasets that come as Karpathy's JSON alone need not say so."""
        if isinstance(values, dict) and values.get("format") is None and values.get("dataset") in KARPATHY:
            return {**values, "format": "karpathy"}
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
        """What the corpus must hold."""
        if self.expected is not None:
            return self.expected
        return KNOWN.get(self.dataset, {}) if self.format in ("coco", "karpathy") else {}
