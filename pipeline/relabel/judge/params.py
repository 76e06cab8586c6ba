"""Parameters of the judgement."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class JudgeParams(BaseModel):
    """How labels are held against human scores and ranked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: Literal["test", "val"] = Field("test", description="CxC split; ECCV Caption has test alone.")
    include_self: bool = Field(
        True, description="Keep the judged caption among its own image's references, as the papers do (SITS)."
    )
    ties: Literal["pessimistic", "row"] = Field(
        "pessimistic",
        description="ECCV: among equals (within 1e-5 of the range) the query's own pair comes first, then what is not "
        "positive; or the order of the corpus.",
    )
    resamples: int = Field(1000, ge=0, description="Bootstrap resamples of the 95% intervals; 0 for none.")
    seed: int = Field(0, description="Seed of the bootstrap.")
    gate: str | None = Field(
        None,
        description="Label whose best candidates a pairs source (meteor) re-ranks on ECCV Caption; "
        "without, it is not ranked.",
    )
    gate_top: int = Field(100, ge=1, description="How many candidates it re-ranks.")
