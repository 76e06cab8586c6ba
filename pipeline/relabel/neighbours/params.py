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
    """Which neighbours are looked for; the pooling of images is the label's."""

    k: int = Field(100, ge=1, le=1_000_000, description="Neighbours of each.", json_schema_extra={"name": "-k"})
    of: Of = Field("captions", description="Whose neighbours: captions, or images (their references, pooled).")
    within: Within | None = Field(
        None, description="Split whose captions ask and are searched; what is encoded where nothing is said."
    )
    split: Within | None = Field(
        None, description="Encoding to search: that of the split `within` where there is one, else that of all."
    )
    index: str | None = Field(
        None, description="faiss index factory string for an approximate search; exact search without."
    )
