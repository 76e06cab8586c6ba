"""What the papers report, to stand beside our figures. Numbers as printed; none is ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relabel.judge.human import Task


@dataclass(frozen=True)
class Published:
    """One figure of a paper.

    Attributes
    ----------
    value : float
        As printed.
    paper : str
        Short name; see `PAPERS`.
    label : str
        What the paper calls the label.
    """

    value: float
    paper: str
    label: str


@dataclass(frozen=True)
class PublishedRanking:
    """What a paper reports for a label as a ranker on ECCV Caption, in percent."""

    map_at_r: float
    r_precision: float
    paper: str
    label: str


PAPERS = {
    "BCLS": "Li et al., Image-Text Retrieval with Binary and Continuous Label Supervision, arXiv 2210.11319",
    "SAM": "Biten et al., Is An Image Worth Five Sentences?, WACV 2022, arXiv 2110.02623, Table 1",
    "S-NDCG": "Li et al., Integrating Listwise Ranking into Pairwise-based Image-Text Retrieval, arXiv 2305.16566, "
    "Table I",
}
"""Short name to citation."""

_CIDER_PTB = {"source": "cider", "variant": "cider_d", "tokenizer": "ptb"}
_CIDER_SPLIT = {"source": "cider", "variant": "cider_d", "tokenizer": "lower_split"}
_SPICE_RAW = {"source": "spice", "text": "raw"}
_SPICE_PTB = {"source": "spice", "text": "ptb"}
_SBERT = {"source": "sbert", "pooling": "max"}

# CxC SITS test, Pearson: parameters that a label must have, subset, figure. Both papers take the first five references,
# the judged caption included.
_SITS: list[tuple[dict[str, str], str, Published]] = [
    ({"source": "same_image"}, "all", Published(0.711, "SAM", "Recall (binary)")),
    ({"source": "same_image"}, "c2i_intrasim", Published(0.00, "SAM", "Recall (binary)")),
    (_CIDER_PTB, "all", Published(0.738, "BCLS", "CIDEr")),
    (_CIDER_SPLIT, "all", Published(0.734, "SAM", "NCS with CIDEr")),
    (_CIDER_SPLIT, "c2i_intrasim", Published(0.453, "SAM", "NCS with CIDEr")),
    ({"source": "meteor"}, "all", Published(0.757, "BCLS", "METEOR")),
    (_SPICE_RAW, "all", Published(0.729, "SAM", "NCS with SPICE")),
    (_SPICE_RAW, "c2i_intrasim", Published(0.536, "SAM", "NCS with SPICE")),
    (_SPICE_PTB, "all", Published(0.728, "BCLS", "SPICE")),
    (_SBERT, "all", Published(0.877, "BCLS", "S-BERT, checkpoint not named")),
    ({"source": "vectors", "pooling": "refs"}, "all", Published(0.373, "BCLS", "CLIP's image and caption vectors")),
]

_ECCV: list[tuple[dict[str, str], str, PublishedRanking]] = [
    ({"source": "same_image"}, "i2t", PublishedRanking(31.33, 31.41, "S-NDCG", "pairwise")),
    ({"source": "same_image"}, "t2i", PublishedRanking(13.62, 13.67, "S-NDCG", "pairwise")),
    (_SBERT, "i2t", PublishedRanking(39.93, 43.73, "S-NDCG", "RSC, checkpoint not named")),
    (_SBERT, "t2i", PublishedRanking(37.53, 44.94, "S-NDCG", "RSC, checkpoint not named")),
]


def published_pearson(params: Mapping[str, Any], task: Task, subset: str, split: str) -> Published | None:
    """Find what a paper reports for a label on CxC; None where none does.

    Parameters
    ----------
    params : mapping
        The label's parameters, `source` among them.
    task, subset, split : str
        `subset` is "all" or a sampling method.
    """
    if (task, split) != ("sits", "test"):
        return None
    return next((figure for wanted, s, figure in _SITS if s == subset and wanted.items() <= params.items()), None)


def published_ranking(params: Mapping[str, Any], direction: str) -> PublishedRanking | None:
    """Find what a paper reports for a label as a ranker on ECCV Caption ("i2t" or "t2i"); None where none does."""
    return next((figure for wanted, d, figure in _ECCV if d == direction and wanted.items() <= params.items()), None)
