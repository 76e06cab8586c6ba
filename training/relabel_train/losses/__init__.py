"""Losses that learn from graded labels, one family per file. They depend only on torch.

Losses of scores are called `loss(scores, relevance, same_image)`, losses of embeddings `loss(embeddings, distances,
same_image)`. `loss.terms(...)` returns the named parts. docs/losses.md compares the losses. docs/deviations.md lists
every difference between a paper, its released code and the defaults of this package.
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    error.add_note("Run `pip install 'relabel-itr[train]'`.")
    raise

from relabel_train.losses.base import CombinedLoss, Reduction, RelevanceLoss
from relabel_train.losses.distance import DenseTripletLoss, DistanceLoss, LogRatioLoss
from relabel_train.losses.graded_sigmoid import GradedSigmoidLoss
from relabel_train.losses.kendall import BCLSLoss, KendallLoss, SlidingWindowKendallLoss
from relabel_train.losses.ladder import LadderLoss
from relabel_train.losses.smooth_ndcg import SmoothNDCGLoss, SmoothNDCGTripletLoss
from relabel_train.losses.softmax import MultiPositiveInfoNCE, SoftTargetLoss
from relabel_train.losses.triplet import SAMLoss, TripletLoss

__all__ = [
    "BCLSLoss",
    "CombinedLoss",
    "DenseTripletLoss",
    "DistanceLoss",
    "GradedSigmoidLoss",
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

LOSSES: dict[str, type[RelevanceLoss | CombinedLoss | DistanceLoss]] = {
    "triplet": TripletLoss,
    "kendall": KendallLoss,
    "sliding_window_kendall": SlidingWindowKendallLoss,
    "bcls": BCLSLoss,
    "ladder": LadderLoss,
    "sam": SAMLoss,
    "smooth_ndcg": SmoothNDCGLoss,
    "smooth_ndcg_triplet": SmoothNDCGTripletLoss,
    "log_ratio": LogRatioLoss,
    "dense_triplet": DenseTripletLoss,
    "soft_target": SoftTargetLoss,
    "multi_positive_infonce": MultiPositiveInfoNCE,
    "graded_sigmoid": GradedSigmoidLoss,
}
"""Losses by the names that commands and parameter files use."""
