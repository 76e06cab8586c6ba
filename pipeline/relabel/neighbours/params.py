"""Parameters of neighbours."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from relabel.core.parameters import Parameters
from relabel.corpus.build import SPLITS

Of = Literal["captions", "images"]
Within = Literal["train", "val", "test", "all"]
assert set(SPLITS) | {"all"} == set(Within.__args__)  # type: ignore[attr-defined]


class NeighboursParams(Parameters):
    """Parameters of a table of neighbours; images are pooled as their label says."""

    k: int = Field(
        100, ge=1, le=1_000_000, description="Neighbours per caption or image.", json_schema_extra={"name": "-k"}
    )
    of: Of = Field("captions", description="Queries of the table: captions, or images (their references, pooled).")
    within: Within | None = Field(
        None,
        description="Split whose captions are queries and candidates; by default, the split that is encoded.",
    )
    split: Within | None = Field(
        None,
        description="Split of the encoding that is searched; by default, that of `within` if it is encoded, "
        "otherwise all.",
    )
    index: str | None = Field(
        None, description="faiss index factory string of an approximate search; by default, the search is exact."
    )
