"""Parameters of the exports."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from relabel.core.parameters import Parameters
from relabel.export.plan.params import ExportPlanParams


class ExportLookupParams(Parameters):
    """Parameters of a lookup."""

    dtype: Literal["float32", "float16"] = Field(
        "float32",
        description="Type of the vectors in a lookup. float16 halves the file and changes a cosine by up to 1e-3: too "
        "much for losses that compare labels with 1 or with a threshold.",
    )


class ExportParams(Parameters):
    """Parameters of the exports, one block each."""

    labels: tuple[str, ...] = Field(
        ("sbert", "cider"), description="Labels whose neighbours `relabel run` finds and whose lookups it writes."
    )

    lookup: ExportLookupParams = ExportLookupParams()
    plan: ExportPlanParams = ExportPlanParams()
