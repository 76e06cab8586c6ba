"""Parameters of bert_sts."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Self

from pydantic import Field
from typing_extensions import override

from relabel.core.types import Pooling
from relabel.sources.base import Paths, SourceParams
from relabel.sources.cosine import ComputeType

TUNED = "tuned"
"""Name of the model that `relabel tune bert_sts` makes."""
GLOVE_THRESHOLD = 0.8
"""Of Zhou et al., AAAI 2020, section 4.1, for a gate of GloVe vectors."""


class BertStsParams(SourceParams):
    """Parameters of bert_sts."""

    paths: ClassVar[Paths] = {"model": {TUNED: None}, "images": {None: None}}
    source: Literal["bert_sts"] = "bert_sts"
    pooling: Pooling = Field("max", description="Pooling of an image's references into one number.")
    model: str = Field(
        TUNED,
        description="A cross-encoder with one label: `tuned` (made by `relabel tune bert_sts`), a folder, or a name on "
        "the hub.",
    )
    images: str | None = Field(
        None,
        pattern=r"\{id[:}]",
        description="Files of images for a model that reads an image and a caption, with {id} for the id without its "
        "namespace: `val2014/COCO_val2014_{id:0>12}.jpg`; null for a model of two captions.",
    )
    gate: str | None = Field(
        "cbow", description="Label of vectors that decides which pairs are refined; null refines all pairs."
    )
    threshold: float | None = Field(
        None,
        ge=-1000,
        le=1000,
        description="Minimum score by the gate for a pair to be refined; null: 0.8 for a gate of GloVe vectors, as the "
        "paper; for others, the threshold that costs at most 0.005 of r on CxC val, where it is chosen.",
    )
    dtype: ComputeType = Field("float32", description="Type of matrix products: float32 or bfloat16.")

    @property
    def symmetric(self) -> bool:
        """True if the order of a pair does not count: both are averaged, unless the model reads an image first."""
        return self.images is None

    @override
    def completed(self, params_of: Callable[[str], SourceParams]) -> Self:
        if self.threshold is None and self.gate and getattr(params_of(self.gate), "vectors", None) == "glove":
            return self.model_copy(update={"threshold": GLOVE_THRESHOLD})
        return self

    @override
    def tuned_models(self) -> tuple[str, ...]:
        return ("bert_sts",) if self.model == TUNED else ()
