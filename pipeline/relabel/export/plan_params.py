"""Parameters of a batch plan."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, TypeAdapter, field_validator

from relabel.sources.base import Pooling

SamplerName = Literal["random", "neighbour", "graded"]


class ExportPlanParams(BaseModel):
    """Which batches are planned."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch_size: int | None = Field(None, ge=1, description="Captions a batch; none: 128, and 50 for neighbour.")
    epochs: int = Field(1, ge=1, description="Epochs planned.")
    seed: int = Field(0, ge=0, description="Of all that is drawn.")
    batches: int | None = Field(None, ge=1, description="At most so many batches an epoch, its first.")
    drop_last: bool = Field(True, description="Leave out a last batch that is short.")
    sampler: SamplerName = Field(
        "random",
        description="random: every caption once an epoch; neighbour: an anchor, its nearest and random others; graded: "
        "every caption once, among candidates of every level.",
    )
    pooling: Pooling | None = Field(None, description="How references become one number; none: the label's own.")
    one_caption_an_image: bool = Field(False, description="random: every image once an epoch, with one caption.")
    neighbours: str | None = Field(
        None, description="neighbour, graded: label whose neighbours decide who meets; none: the planned label."
    )
    k: int = Field(5, ge=0, description="neighbour: nearest captions a batch.", json_schema_extra={"name": "-k"})
    siblings: bool = Field(False, description="neighbour, graded: let captions of one image be put together.")
    anchors: int | None = Field(None, ge=1, description="neighbour: batches an epoch; none: as many as random has.")
    depth: int | None = Field(
        None,
        ge=1,
        description="neighbour, graded: neighbours looked at; none: up to k + 15 for neighbour, 100 for graded.",
    )
    levels: tuple[float, ...] = Field((), description="graded: thresholds of relevance, falling. Repeatable.")
    quantiles: tuple[float, ...] = Field(
        (0.1, 0.5, 0.9),
        description="graded, where no levels are given: thresholds that these shares of all neighbours reach.",
    )
    group: int = Field(16, ge=2, description="graded: most captions that are put together.")
    max_bytes: str = Field("100GiB", description="Refuse to write more than this.")

    @field_validator("max_bytes")
    @classmethod
    def _is_a_size(cls, value: str) -> str:
        TypeAdapter(ByteSize).validate_python(value)
        return value

    @property
    def size(self) -> int:
        """Captions a batch."""
        return self.batch_size or (50 if self.sampler == "neighbour" else 128)

    @property
    def most_bytes(self) -> int:
        """`max_bytes` as a number."""
        return int(TypeAdapter(ByteSize).validate_python(self.max_bytes))

    @property
    def semantic(self) -> dict[str, Any]:
        """All that decides which batches are planned; what another sampler alone reads is left out."""
        own = {
            "random": {"one_caption_an_image"},
            "neighbour": {"k", "siblings", "anchors", "depth"},
            "graded": {"siblings", "depth", "levels", "group"} | (set() if self.levels else {"quantiles"}),
        }[self.sampler]
        shared = {"epochs", "seed", "batches", "drop_last", "sampler"}
        return self.model_dump(mode="json", include=shared | own) | {"batch_size": self.size}
