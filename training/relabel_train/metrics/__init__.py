"""Retrieval metrics, one a file, numpy alone; `retrieval_report` takes all that apply.

Names that end in `_percent` are 0..100; everything else is a fraction, a correlation, a rank counted from 1 or a
distance. Ties are `pessimistic` unless told otherwise: among equal scores the less relevant item comes first.
"""

from relabel_train.metrics.cs_at_k import cs_at_k
from relabel_train.metrics.figures import Figure, RetrievalReport
from relabel_train.metrics.hits import first_hits
from relabel_train.metrics.ir_recall import ir_recall
from relabel_train.metrics.kendall_tau import kendall_tau
from relabel_train.metrics.label_distance import label_distance
from relabel_train.metrics.lookup_relevance import LookupRelevance
from relabel_train.metrics.map_at_r import average_precision_at_r
from relabel_train.metrics.mean_rank import mean_rank
from relabel_train.metrics.median_rank import median_rank
from relabel_train.metrics.ncs import ncs
from relabel_train.metrics.ndcg import ndcg
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives, positives_of, read_positives
from relabel_train.metrics.r_precision import r_precision
from relabel_train.metrics.ranked_labels import RankedLabels, Ranking, ideal_labels
from relabel_train.metrics.ranking import Ties, ranked_hits
from relabel_train.metrics.ranks import best_ranks
from relabel_train.metrics.recall_at_k import recall_at_k
from relabel_train.metrics.recall_percent import recall_percent
from relabel_train.metrics.report import Relevance, retrieval_report
from relabel_train.metrics.rsum import rsum
from relabel_train.metrics.scores import open_scores
from relabel_train.metrics.semantic_recall import extended_by_images, extended_by_items
from relabel_train.metrics.settings import ReportSettings

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
    "best_ranks",
    "cs_at_k",
    "extended_by_images",
    "extended_by_items",
    "first_hits",
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
    "ranked_hits",
    "read_positives",
    "recall_at_k",
    "recall_percent",
    "retrieval_report",
    "rsum",
]
