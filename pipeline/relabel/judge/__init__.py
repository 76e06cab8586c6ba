"""Agreement of labels with human judgement: Crisscrossed Captions, ECCV Caption and STS-B."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from relabel.core.parameters import Parameters, Seed
from relabel.corpus.splits import named_split
from relabel.datasets.cxc import TASKS, Task
from relabel.datasets.evaluation_sets import Statistic

SamplingSide = Literal["left", "either"]
SamplingUnit = Literal["item", "image"]


class JudgeParams(Parameters):
    """Parameters of the judgement."""

    split: Annotated[Literal["test", "val"], BeforeValidator(named_split)] = Field(
        "test", description="CxC split; ECCV Caption has test alone."
    )
    tasks: tuple[Task, ...] = Field(TASKS, min_length=1, description="Tasks of CxC that labels are judged on.")
    leave_one_out: bool = Field(
        False, description="Leave the judged caption out of its own image's references; the papers keep it (SITS)."
    )
    ties: Literal["pessimistic", "row"] = Field(
        "pessimistic",
        description="ECCV: among equals (within 1e-5 of the range) the query's own pair comes first, then what is not "
        "positive; or the order of the corpus.",
    )
    resamples: int = Field(
        1000, ge=0, le=1_000_000, description="Bootstrap resamples of the 95% intervals; 0 for none."
    )
    seed: Seed = Field(0, description="Seed of the bootstrap and of the draws.")
    draws: int = Field(
        1000, ge=0, le=1_000_000, description="CxC: draws of the sampled Spearman correlation; 0 for none."
    )
    draw_side: SamplingSide = Field(
        "left", description="CxC: items that a draw takes a pair of (STS, SIS): the left ones, or either."
    )
    draw_unit: SamplingUnit = Field(
        "item", description="CxC: unit of a draw (STS): a caption, or the image it belongs to."
    )
    statistic: Statistic = Field("pearson", description="Statistic of a file of judgements (`correlate --on FILE`).")
    gate: str | None = Field(
        None,
        description="Label whose best candidates a pairs source (meteor) re-ranks on ECCV Caption; "
        "without, it is not ranked.",
    )
    gate_top: int = Field(100, ge=1, le=1_000_000, description="How many candidates it re-ranks.")
