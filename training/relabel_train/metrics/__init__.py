"""Retrieval metrics, one a file, numpy alone. Each takes ranked lists as `ranked_hits` makes them."""

from relabel_train.metrics.map_at_r import average_precision_at_r
from relabel_train.metrics.r_precision import r_precision
from relabel_train.metrics.ranking import Ties, ranked_hits
from relabel_train.metrics.recall_at_k import recall_at_k

__all__ = ["Ties", "average_precision_at_r", "r_precision", "ranked_hits", "recall_at_k"]
