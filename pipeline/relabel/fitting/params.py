"""Parameters of the table of losses."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Row(BaseModel):
    """One row of the table: a loss, the label it is trained with, and how its batches are drawn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss: tuple[str, ...] = Field(description="Losses by name, as `relabel fit --loss`.")
    loss_set: tuple[str, ...] = Field((), description="Their parameters.")
    label: str | None = Field(None, description="Label; the first of `fit_table.train_labels` where not given.")
    sampler: Literal["random", "neighbour", "graded"] = Field("random", description="How batches are drawn.")


_NAMES = (
    "triplet",
    "kendall",
    "sliding_window_kendall",
    "bcls",
    "ladder",
    "sam",
    "smooth_ndcg",
    "smooth_ndcg_triplet",
    "log_ratio",
    "dense_triplet",
    "soft_target",
    "multi_positive_infonce",
)
COMPARED = ("bcls", "smooth_ndcg_triplet")
"""Losses that are trained with graded batches as well."""
BY_LABEL = "smooth_ndcg_triplet"
"""The loss that every label is trained with: it takes any range and needs no threshold."""

ROWS: dict[str, Row] = {name: Row(loss=(name,)) for name in _NAMES}
ROWS["triplet_soft"] = Row(loss=("triplet",), loss_set=("negatives=soft",))
ROWS |= {f"{name}, graded batches": Row(loss=(name,), sampler="graded") for name in COMPARED}
"""The rows where no others are given; a row `LOSS, LABEL` for each further label is added."""


class FitTableParams(BaseModel):
    """Small reference trainings on proxy features: what is trained, and how much."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train_labels: tuple[str, ...] = Field(
        ("sbert", "cider"), min_length=1, description="Labels to train with: the first with every loss, all with one."
    )
    judge: str = Field("sbert", description="Label of nDCG, CS@100 and Kendall's tau.")
    ncs: str = Field("cider", description="Label of NCS; of no negative values.")
    rows: dict[str, Row] | None = Field(None, description="Rows by name; every loss by default.")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="Each row is trained once a seed.")
    model: str = Field("vsepp", description="vsepp or vse_inf.")
    embed: int = Field(128, ge=1, description="Width of embeddings: the small configuration; papers have 1024.")
    word: int = Field(64, ge=1, description="Width of word vectors; papers have 300.")
    epochs: int = Field(6, ge=1, description="Epochs of each run.")
    batch_size: int = Field(128, ge=2, description="Captions a batch.")
    lr: float = Field(2e-3, gt=0, description="Learning rate; falls to a tenth at two thirds of the epochs.")
    neighbours: int = Field(50, ge=1, description="Neighbours a caption, for graded batches.")
    graded: int = Field(1000, ge=0, description="Test images of RSUM and of the metrics of labels; 0: all.")

    def settled(self) -> dict[str, Row]:
        """List the rows: those given, or every loss, and the rows of further labels."""
        if self.rows is not None:
            return self.rows
        rows = dict(ROWS)
        if "cider" in self.train_labels:
            rows["sam"] = Row(loss=("sam",), loss_set=("tau=0.3",), label="cider")  # 3, of labels divided by 10
        more = {f"{BY_LABEL}, {label}": Row(loss=(BY_LABEL,), label=label) for label in self.train_labels[1:]}
        return rows | more
