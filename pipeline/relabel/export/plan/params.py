"""Parameters of a batch plan."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from relabel.core.parameters import Parameters, Seed
from relabel.core.runtime import parse_size
from relabel.core.types import Pooling

SamplerName = Literal["random", "neighbour", "graded"]


class ExportPlanParams(Parameters):
    """Which batches are planned."""

    batch_size: int | None = Field(
        None, ge=1, le=1_000_000, description="Captions a batch; none: 128, and 50 for neighbour."
    )
    epochs: int = Field(1, ge=1, le=1_000_000, description="Epochs planned.")
    seed: Seed = Field(0, description="Of all that is drawn.")
    batches: int | None = Field(
        None, ge=1, le=1_000_000_000, description="At most so many batches an epoch, its first."
    )
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
    k: int = Field(
        5, ge=0, le=1_000_000, description="neighbour: nearest captions a batch.", json_schema_extra={"name": "-k"}
    )
    siblings: bool = Field(False, description="neighbour, graded: let captions of one image be put together.")
    anchors: int | None = Field(
        None, ge=1, le=1_000_000_000, description="neighbour: batches an epoch; none: as many as random has."
    )
    depth: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="neighbour, graded: neighbours looked at; none: up to k + 15 for neighbour, 100 for graded.",
    )
    levels: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] = Field(
        (), description="graded: thresholds of relevance, falling. Repeatable."
    )
    quantiles: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.1, 0.5, 0.9),
        description="graded, where no levels are given: thresholds that these shares of all neighbours reach.",
    )
    group: int = Field(16, ge=2, le=1_000_000, description="graded: most captions that are put together.")
    max_bytes: str = Field("100GiB", description="Refuse to write more than this.")

    @field_validator("max_bytes")
    @classmethod
    def _is_a_size(cls, value: str) -> str:
        parse_size(value)
        return value

    @property
    def size(self) -> int:
        """Captions a batch."""
        return self.batch_size or (50 if self.sampler == "neighbour" else 128)

    @property
    def most_bytes(self) -> int:
        """`max_bytes` as a number."""
        return parse_size(self.max_bytes)

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
