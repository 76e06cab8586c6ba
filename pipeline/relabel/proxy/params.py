"""Parameters of proxy features."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from relabel.captions import SPLITS


class ProxyFeaturesParams(BaseModel):
    """Which images are stood in for, and by what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    images: int | None = Field(None, ge=1, description="Images of every split; `train`, `val`, `test` where not given.")
    train: int = Field(3000, ge=0, description="Images of train, drawn by the seed.")
    val: int = Field(500, ge=0, description="Images of val.")
    test: int = Field(5000, ge=0, description="Images of test; all 5,000 of COCO, so that ECCV Caption covers them.")
    vectors: int = Field(16, ge=1, description="Token vectors an image, the first of its caption.")
    model: str = Field("sentence-transformers/all-MiniLM-L6-v2", description="Whose token vectors: name or folder.")
    revision: str | None = Field(None, description="Of a model from the Hugging Face hub: commit, tag or branch.")
    seed: int = Field(0, ge=0, description="Draws images, and the caption that stands for each.")
    images_per_shard: int = Field(1000, ge=1, description="Images a file.")

    @property
    def counts(self) -> dict[str, int]:
        """Images wanted of each split."""
        return {split: self.images or getattr(self, split) for split in SPLITS}
