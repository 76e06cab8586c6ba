"""Parameters of the exports."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from relabel.core.parameters import Parameters
from relabel.export.plan.params import ExportPlanParams


class ExportLookupParams(Parameters):
    """How a lookup is stored."""

    dtype: Literal["float32", "float16"] = Field(
        "float32",
        description="Of the vectors in a lookup. float16 halves the file and moves a cosine by up to 1e-3: too much "
        "for losses that ask r < 1, r >= theta or on which side of a window a label lies.",
    )


class ExportParams(Parameters):
    """The exports, one block each."""

    labels: tuple[str, ...] = Field(
        ("sbert", "cider"), description="Labels that `relabel run` finds neighbours of and writes a lookup of."
    )

    lookup: ExportLookupParams = ExportLookupParams()
    plan: ExportPlanParams = ExportPlanParams()
