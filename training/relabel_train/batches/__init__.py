"""Which captions meet in a batch: samplers, how graded their batches are, and batch plans.

numpy alone; `relabel_train.batches.torch_batches` is what needs torch.
"""

from relabel_train.batches.base import Captions, Neighbours, Sampler
from relabel_train.batches.graded import GradedBatches, quantile_levels
from relabel_train.batches.neighbour import NeighbourBatches
from relabel_train.batches.plan import Batch, Plan, open_plan
from relabel_train.batches.random import RandomBatches
from relabel_train.batches.report import Grading, grading, grading_table, labelled

__all__ = [
    "Batch",
    "Captions",
    "GradedBatches",
    "Grading",
    "NeighbourBatches",
    "Neighbours",
    "Plan",
    "RandomBatches",
    "Sampler",
    "grading",
    "grading_table",
    "labelled",
    "open_plan",
    "quantile_levels",
]
