"""Losses that learn from graded labels, one per file, on torch alone.

Losses of scores are called `loss(scores, relevance, same_image)`, losses of embeddings `loss(embeddings, distances,
same_image)`. `loss.terms(...)` returns the named parts. docs/losses.md compares them; docs/deviations.md lists every
point in which a paper, its released code and a default of this package differ.
"""

from relabel_train.losses.base import CombinedLoss, Reduction, RelevanceLoss
from relabel_train.losses.bcls import BCLSLoss
from relabel_train.losses.dense_triplet import DenseTripletLoss
from relabel_train.losses.distance_base import DistanceLoss
from relabel_train.losses.kendall import KendallLoss
from relabel_train.losses.ladder import LadderLoss
from relabel_train.losses.log_ratio import LogRatioLoss
from relabel_train.losses.multi_positive_infonce import MultiPositiveInfoNCE
from relabel_train.losses.sam import SAMLoss
from relabel_train.losses.sliding_window_kendall import SlidingWindowKendallLoss
from relabel_train.losses.smooth_ndcg import SmoothNDCGLoss
from relabel_train.losses.smooth_ndcg_triplet import SmoothNDCGTripletLoss
from relabel_train.losses.soft_target import SoftTargetLoss
from relabel_train.losses.triplet import TripletLoss

__all__ = [
    "BCLSLoss",
    "CombinedLoss",
    "DenseTripletLoss",
    "DistanceLoss",
    "KendallLoss",
    "LadderLoss",
    "LogRatioLoss",
    "MultiPositiveInfoNCE",
    "Reduction",
    "RelevanceLoss",
    "SAMLoss",
    "SlidingWindowKendallLoss",
    "SmoothNDCGLoss",
    "SmoothNDCGTripletLoss",
    "SoftTargetLoss",
    "TripletLoss",
]
