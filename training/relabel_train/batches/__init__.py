"""Composition of batches, in numpy: samplers, statistics of how graded their batches are, and batch plans.

`DataLoader(dataset, batch_sampler=sampler.batches(epoch, rank, world_size))` draws the batches of a sampler,
`DataLoader(plan, batch_size=None, sampler=plan.epoch(epoch, rank, world_size))` those of a plan with their labels.
"""

from relabel_train.batches.base import Captions, Neighbours, RandomBatches, Sampler
from relabel_train.batches.graded import GradedBatches, GradingReport, grading, grading_table, labelled, quantile_levels
from relabel_train.batches.neighbour import NeighbourBatches
from relabel_train.batches.plan import Batch, Plan, open_plan

__all__ = [
    "Batch",
    "Captions",
    "GradedBatches",
    "GradingReport",
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
