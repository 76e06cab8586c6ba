"""Published figures to compare ours with, as printed in the papers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNNAMED = "checkpoint not named"


@dataclass(frozen=True)
class Published:
    """Figures of a paper for a label.

    `value`: Pearson's r with CxC's human scores, or mAP@R on ECCV Caption in percent.
    `paper`: short name; see `PAPERS`.
    `label`: name of the label in the paper.
    `r_precision`: of a ranking, in percent.
    """

    value: float
    paper: str
    label: str
    r_precision: float | None = None


@dataclass(frozen=True)
class PublishedSampled:
    """Sampled Spearman correlations of a model with CxC's human scores, times 100; None where a paper gives none."""

    model: str
    sts: float
    sis: float | None
    sits: float | None
    paper: str


PAPERS = {
    "BCLS": "Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision, arXiv 2210.11319",
    "SAM": "Biten et al., Is An Image Worth Five Sentences?, WACV 2022, arXiv 2110.02623, Table 1",
    "S-NDCG": "Li et al., Integrating Listwise Ranking into Pairwise-based Image-Text Retrieval, arXiv 2305.16566, "
    "Table I",
    "ALIGN": "Jia et al., Scaling Up Visual and Vision-Language Representation Learning With Noisy Text Supervision, "
    "ICML 2021, arXiv 2102.05918, Table 3",
    "PromCSE": "Jiang et al., Improved Universal Sentence Embeddings with Prompt-based Contrastive Learning and "
    "Energy-based Learning, arXiv 2203.06875, Table 2",
}
"""Short name to citation."""

_CIDER_D = {"source": "cider", "pooling": "refs", "variant": "cider_d", "n": 4, "sigma": 6.0, "df": "encoded"}
_CIDER_PTB = _CIDER_D | {"tokenizer": "ptb"}
_CIDER_SPLIT = _CIDER_D | {"tokenizer": "lower_split"}
_METEOR = {"source": "meteor", "pooling": "refs", "language": "en"}
_SPICE = {"source": "spice", "pooling": "refs"}
_SPICE_RAW = _SPICE | {"text": "raw"}
_SPICE_PTB = _SPICE | {"text": "ptb"}
# Where a paper names no checkpoint, it may mean any model of the organisation sentence-transformers, by its full name.
_UNTUNED = re.compile(r"sentence-transformers/[\w.-]+")
_SBERT = {"source": "sbert", "pooling": "max", "prompt": None, "max_length": None, "model": _UNTUNED}
_SAME_IMAGE = {"source": "same_image"}

# Parameters that a label must have, task, subset, figure on the test split. On CxC both papers take the first five
# references, the judged caption included. A label of `vectors` says nothing of the model behind its files, so that
# BCLS's figure of CLIP's image and caption vectors (0.373) stands beside none.
_FIGURES: list[tuple[dict[str, Any], str, str, Published]] = [
    (_SAME_IMAGE, "sits", "all", Published(0.711, "SAM", "Recall (binary)")),
    (_SAME_IMAGE, "sits", "c2i_intrasim", Published(0.00, "SAM", "Recall (binary)")),
    (_CIDER_PTB, "sits", "all", Published(0.738, "BCLS", "CIDEr")),
    (_CIDER_SPLIT, "sits", "all", Published(0.734, "SAM", "NCS with CIDEr")),
    (_CIDER_SPLIT, "sits", "c2i_intrasim", Published(0.453, "SAM", "NCS with CIDEr")),
    (_METEOR, "sits", "all", Published(0.757, "BCLS", "METEOR")),
    (_SPICE_RAW, "sits", "all", Published(0.729, "SAM", "NCS with SPICE")),
    (_SPICE_RAW, "sits", "c2i_intrasim", Published(0.536, "SAM", "NCS with SPICE")),
    (_SPICE_PTB, "sits", "all", Published(0.728, "BCLS", "SPICE")),
    (_SBERT, "sits", "all", Published(0.877, "BCLS", f"S-BERT, {UNNAMED}")),
    (_SAME_IMAGE, "eccv", "i2t", Published(31.33, "S-NDCG", "pairwise", 31.41)),
    (_SAME_IMAGE, "eccv", "t2i", Published(13.62, "S-NDCG", "pairwise", 13.67)),
    (_SBERT, "eccv", "i2t", Published(39.93, "S-NDCG", f"RSC, {UNNAMED}", 43.73)),
    (_SBERT, "eccv", "t2i", Published(37.53, "S-NDCG", f"RSC, {UNNAMED}", 44.94)),
]

SAMPLED = (
    PublishedSampled("VSE++", 74.4, 73.3, 55.2, "ALIGN"),
    PublishedSampled("VSRN", 73.0, 70.1, 60.4, "ALIGN"),
    PublishedSampled("DE_I2T", 50.9, 81.3, 61.6, "ALIGN"),
    PublishedSampled("DE_T2T+I2T", 74.2, 74.5, 61.9, "ALIGN"),
    PublishedSampled("ALIGN", 72.9, 77.2, 67.6, "ALIGN"),
    PublishedSampled("MURAL-large", 74.1, None, None, "PromCSE"),
    PublishedSampled("PromCSE", 74.0, None, None, "PromCSE"),
    PublishedSampled("SimCSE, supervised", 73.0, None, None, "PromCSE"),
)
"""CxC test, sampled Spearman. PromCSE's rows draw images rather than captions, which gives 0.7 to 1.0 more."""


def published(
    params: Mapping[str, Any], task: str, subset: str, split: str = "test", *, own_model: bool = False
) -> Published | None:
    """Find the figures that a paper reports for a label; None where no paper does.

    `params`: all parameters of the label, `source` among them. `task`, `subset`: "sits" and "all" or a sampling method,
    or "eccv" and a direction. `own_model`: True if the label's model was found in a folder rather than by its name on
    the hub.
    """
    for wanted, *place, figure in _FIGURES:
        if place == [task, subset] and split == "test" and _matches(params, wanted, own_model):
            return figure
    return None


def _matches(params: Mapping[str, Any], wanted: Mapping[str, Any], own_model: bool) -> bool:
    """Return whether a label has the parameters of a paper's; a pattern stands for the name of a model on the hub."""
    for name, value in wanted.items():
        if isinstance(value, re.Pattern):
            # A model in a folder may have been tuned.
            if own_model or not value.fullmatch(str(params.get(name))):
                return False
        elif name not in params or params[name] != value:
            return False
    return True
