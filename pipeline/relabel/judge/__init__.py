"""Agreement of labels with human judgement: Crisscrossed Captions, ECCV Caption and STS-B."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from relabel.core.parameters import SET_ONLY, Parameters, Seed
from relabel.corpus.splits import named_split
from relabel.datasets.cxc import TASKS, Task
from relabel.datasets.evaluation_sets import Statistic

GATE_TOP = 100
"""Number of candidates that a source with pairwise scores re-ranks. Metrics read at most the first 50."""


class JudgeParams(Parameters):
    """Parameters of the comparison with human judgements."""

    split: Annotated[Literal["test", "val"], BeforeValidator(named_split)] = Field(
        "test", description="CxC split; ECCV Caption has only test."
    )
    tasks: tuple[Task, ...] = Field(
        TASKS, min_length=1, description="Tasks of CxC on which labels are judged.", json_schema_extra=SET_ONLY
    )
    leave_one_out: bool = Field(
        False,
        description="SITS: remove the judged caption from its image's references; the papers keep it.",
        json_schema_extra=SET_ONLY,
    )
    ties: Literal["pessimistic", "row"] = Field(
        "pessimistic",
        description="ECCV: order of ties (within 1e-5 of the range): the query's own pair first, then "
        "non-positive items; or the order of the corpus.",
        json_schema_extra=SET_ONLY,
    )
    resamples: int = Field(
        1000, ge=0, le=1_000_000, description="Bootstrap resamples for the 95% intervals; 0 for no intervals."
    )
    seed: Seed = Field(0, description="Seed of the bootstrap and of sampling.", json_schema_extra=SET_ONLY)
    statistic: Statistic = Field(
        "pearson",
        description="Statistic of a file of judgements (`correlate --on FILE`).",
        json_schema_extra={"option": "correlate"},
    )
    gate: str | None = Field(
        None,
        description="ECCV Caption: label that selects 100 candidates; slow labels (meteor) re-rank them, "
        "and are left out otherwise.",
    )
