"""Published figures to compare ours with, as printed in the papers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relabel.datasets.cxc import Task

UNNAMED = "checkpoint not named"


@dataclass(frozen=True)
class PublishedPearson:
    """One figure of a paper.

    `value`: as printed.
    `paper`: short name; see `PAPERS`.
    `label`: name of the label in the paper.
    """

    value: float
    paper: str
    label: str


@dataclass(frozen=True)
class PublishedSampled:
    """Sampled Spearman correlations of a model with CxC's human scores, times 100; None where a paper gives none."""

    model: str
    sts: float
    sis: float | None
    sits: float | None
    paper: str


@dataclass(frozen=True)
class PublishedRanking:
    """Figures of a paper for a label as a ranker on ECCV Caption, in percent."""

    map_at_r: float
    r_precision: float
    paper: str
    label: str


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

# CxC SITS test, Pearson: parameters that a label must have, subset, figure. Both papers take the first five references,
# the judged caption included. A label of `vectors` says nothing of the model behind its files, so that BCLS's figure of
# CLIP's image and caption vectors (0.373) stands beside none.
_SITS: list[tuple[dict[str, Any], str, PublishedPearson]] = [
    (_SAME_IMAGE, "all", PublishedPearson(0.711, "SAM", "Recall (binary)")),
    (_SAME_IMAGE, "c2i_intrasim", PublishedPearson(0.00, "SAM", "Recall (binary)")),
    (_CIDER_PTB, "all", PublishedPearson(0.738, "BCLS", "CIDEr")),
    (_CIDER_SPLIT, "all", PublishedPearson(0.734, "SAM", "NCS with CIDEr")),
    (_CIDER_SPLIT, "c2i_intrasim", PublishedPearson(0.453, "SAM", "NCS with CIDEr")),
    (_METEOR, "all", PublishedPearson(0.757, "BCLS", "METEOR")),
    (_SPICE_RAW, "all", PublishedPearson(0.729, "SAM", "NCS with SPICE")),
    (_SPICE_RAW, "c2i_intrasim", PublishedPearson(0.536, "SAM", "NCS with SPICE")),
    (_SPICE_PTB, "all", PublishedPearson(0.728, "BCLS", "SPICE")),
    (_SBERT, "all", PublishedPearson(0.877, "BCLS", f"S-BERT, {UNNAMED}")),
]

_ECCV: list[tuple[dict[str, Any], str, PublishedRanking]] = [
    (_SAME_IMAGE, "i2t", PublishedRanking(31.33, 31.41, "S-NDCG", "pairwise")),
    (_SAME_IMAGE, "t2i", PublishedRanking(13.62, 13.67, "S-NDCG", "pairwise")),
    (_SBERT, "i2t", PublishedRanking(39.93, 43.73, "S-NDCG", f"RSC, {UNNAMED}")),
    (_SBERT, "t2i", PublishedRanking(37.53, 44.94, "S-NDCG", f"RSC, {UNNAMED}")),
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


def published_pearson(
    params: Mapping[str, Any], task: Task, subset: str, split: str, *, own_model: bool = False
) -> PublishedPearson | None:
    """Find the figure that a paper reports for a label on CxC; None where no paper does.

    `params`: all parameters of the label, `source` among them. `task`, `subset`, `split`: `subset` is "all" or a
    sampling method. `own_model`: True if the label's model was found in a folder rather than by its name on the hub.
    """
    if (task, split) != ("sits", "test"):
        return None
    return next((figure for wanted, s, figure in _SITS if s == subset and _matches(params, wanted, own_model)), None)


def published_ranking(params: Mapping[str, Any], direction: str, *, own_model: bool = False) -> PublishedRanking | None:
    """Find the figures that a paper reports for a label as a ranker on ECCV Caption; None where no paper does.

    `params`, `own_model`: as for `published_pearson`.
    """
    return next((figure for wanted, d, figure in _ECCV if d == direction and _matches(params, wanted, own_model)), None)


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
