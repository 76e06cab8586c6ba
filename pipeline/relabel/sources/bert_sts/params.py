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
"""Name of the model from `relabel tune bert_sts`."""
GLOVE_THRESHOLD = 0.8
"""Threshold of Zhou et al., AAAI 2020, section 4.1, for a gate with GloVe vectors."""


class BertStsParams(SourceParams):
    """Parameters of bert_sts."""

    paths: ClassVar[Paths] = {"model": {TUNED: None}, "images": {None: None}}
    source: Literal["bert_sts"] = "bert_sts"
    pooling: Pooling = Field("max", description="Pooling of the scores of an image's references to one score.")
    model: str = Field(
        TUNED,
        description="Cross-encoder with one output: `tuned` (from `relabel tune bert_sts`), a folder, or a name on "
        "the hub.",
    )
    images: str | None = Field(
        None,
        pattern=r"\{id[:}]",
        description="Image files for a model that reads an image and a caption, with {id} for the id without "
        "namespace: `val2014/COCO_val2014_{id:0>12}.jpg`; null for a model of two captions.",
    )
    gate: str | None = Field(
        "cbow", description="Label with vectors that selects the pairs to refine; null refines all pairs."
    )
    threshold: float | None = Field(
        None,
        ge=-1000,
        le=1000,
        description="Minimum score by the gate to refine a pair; null: 0.8 for a gate with GloVe vectors, as in the "
        "paper; for others, the threshold that reduces r on CxC val by at most 0.005.",
    )
    dtype: ComputeType = Field("float32", description="dtype of matrix products: float32 or bfloat16.")

    @property
    def symmetric(self) -> bool:
        """True if both orders of a pair are averaged; False if the model reads an image and a caption."""
        return self.images is None

    @override
    def completed(self, params_of: Callable[[str], SourceParams]) -> Self:
        if self.threshold is None and self.gate and getattr(params_of(self.gate), "vectors", None) == "glove":
            return self.model_copy(update={"threshold": GLOVE_THRESHOLD})
        return self

    @override
    def tuned_models(self) -> tuple[str, ...]:
        return ("bert_sts",) if self.model == TUNED else ()
