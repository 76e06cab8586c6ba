"""Retrieval metrics in numpy. `retrieval_report` computes all that apply. Kendall's tau of long lists needs scipy.

Names that end in `_percent` are 0..100. All other values are fractions, correlations, ranks counted from 1 or
distances. Ties are `pessimistic` by default: among equal scores, the less relevant item comes first.
"""

from relabel_train.metrics.binary import (
    average_precision_at_r,
    ir_recall,
    mean_rank,
    median_rank,
    r_precision,
    recall_at_k,
    recall_percent,
    rsum,
)
from relabel_train.metrics.graded import label_distance, ncs, ndcg
from relabel_train.metrics.kendall import cs_at_k, kendall_tau
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives, positives_of, read_positives
from relabel_train.metrics.ranking import RankedLabels, Ranking, Ties, ideal_labels, rank_positives, ranked_hits
from relabel_train.metrics.report import Relevance, retrieval_report
from relabel_train.metrics.results import Figure, ReportSettings, RetrievalReport
from relabel_train.metrics.scores import LookupRelevance, open_scores
from relabel_train.metrics.semantic import extended_by_images, extended_by_items

__all__ = [
    "Figure",
    "LookupRelevance",
    "Positives",
    "QueryPositives",
    "RankedLabels",
    "Ranking",
    "Relevance",
    "ReportSettings",
    "RetrievalReport",
    "Ties",
    "average_precision_at_r",
    "cs_at_k",
    "extended_by_images",
    "extended_by_items",
    "ideal_labels",
    "ir_recall",
    "kendall_tau",
    "label_distance",
    "mean_rank",
    "median_rank",
    "ncs",
    "ndcg",
    "open_scores",
    "own_positives",
    "positives_of",
    "r_precision",
    "rank_positives",
    "ranked_hits",
    "read_positives",
    "recall_at_k",
    "recall_percent",
    "retrieval_report",
    "rsum",
]
