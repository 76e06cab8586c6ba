"""Retrieval metrics, one a file, numpy alone; `retrieval_report` takes all that apply.

Names that end in `_percent` are 0..100; everything else is a fraction, a correlation, a rank counted from 1 or a
distance. Ties are `pessimistic` unless told otherwise: among equal scores the less relevant item comes first.
"""

from relabel_train.metrics.figures import Figure, RetrievalReport
from relabel_train.metrics.lookup_relevance import LookupRelevance
from relabel_train.metrics.map_at_r import average_precision_at_r
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives, positives_of, read_positives
from relabel_train.metrics.r_precision import r_precision
from relabel_train.metrics.ranking import Ties, ranked_hits
from relabel_train.metrics.recall_at_k import recall_at_k
from relabel_train.metrics.report import Relevance, retrieval_report
from relabel_train.metrics.settings import ReportSettings

__all__ = [
    "Figure",
    "LookupRelevance",
    "Positives",
    "QueryPositives",
    "Relevance",
    "ReportSettings",
    "RetrievalReport",
    "Ties",
    "average_precision_at_r",
    "own_positives",
    "positives_of",
    "r_precision",
    "ranked_hits",
    "read_positives",
    "recall_at_k",
    "retrieval_report",
]
