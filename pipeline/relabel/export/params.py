"""Parameters of the exports."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from relabel.export.plan_params import ExportPlanParams


class ExportLookupParams(BaseModel):
    """How a lookup is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dtype: Literal["float32", "float16"] = Field(
        "float32",
        description="Of the vectors in a lookup. float16 halves the file and moves a cosine by up to 1e-3: too much "
        "for losses that ask r < 1, r >= theta or on which side of a window a label lies.",
    )


class ExportParams(BaseModel):
    """The exports, one block each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: tuple[str, ...] = Field(
        ("sbert", "cider"), description="Labels that `relabel run` finds neighbours of and writes a lookup of."
    )

    lookup: ExportLookupParams = ExportLookupParams()
    plan: ExportPlanParams = ExportPlanParams()
