"""Human scores of Crisscrossed Captions (CxC), shipped as Parquet files of ids, scores and sampling methods.

CxC (Parekh et al., EACL 2021, arXiv 2004.15020) has scores from 0 (nothing in common) to 5 (the same) for pairs of
captions and images of COCO's Karpathy val and test splits. The tasks are `sts` (caption and caption), `sits` (caption
and image) and `sis` (image and image).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.store.files import input_sha256
from relabel.store.manifest import read_columns, view_column

Task = Literal["sts", "sits", "sis"]
JudgedSplit = Literal["val", "test"]
Side = Literal["caption", "image"]

TASKS: tuple[Task, ...] = get_args(Task)
SIDES: dict[Task, tuple[Side, Side]] = {
    "sts": ("caption", "caption"),
    "sits": ("caption", "image"),
    "sis": ("image", "image"),
}
"""Kinds of the left and the right id of each task."""
METHODS: dict[Task, tuple[str, ...]] = {
    "sts": ("c2c_cocaption", "c2c_isim"),
    "sits": ("c2i_original", "c2i_intrasim"),
    "sis": ("i2i_csim",),
}
"""Sampling methods. `c2c_cocaption` and `c2i_original` are pairs of one image (GT), the others of two images."""
NAMESPACE = "coco"


@dataclass(frozen=True, eq=False)
class HumanScores:
    """All judged pairs of one task and split, in the order of the original file.

    `left`, `right`: caption or image ids with namespace (`coco:770337`); see `SIDES`.
    `score`: (P,) float64; mean human score, 0..5. The decimals of the original file are preserved exactly.
    `method`: sampling method of each pair; see `METHODS`.
    """

    task: Task
    split: JudgedSplit
    left: list[str]
    right: list[str]
    score: NDArray[np.float64]
    method: list[str]

    def __len__(self) -> int:
        return len(self.left)


def sha256(task: Task, split: JudgedSplit) -> str:
    """Return the sha256 of a shipped file; it is recorded as an input of judgements."""
    return input_sha256(shipped(task, split))


def human_scores(task: Task, split: JudgedSplit) -> HumanScores:
    """Read the shipped scores of one task and split. Works offline and without other files."""
    table = _read(task, split)
    left, right = ([f"{NAMESPACE}:{n}" for n in table[side].to_pylist()] for side in ("left", "right"))
    method = table["method"].cast(pa.string()).to_pylist()
    return HumanScores(task, split, left, right, table["score"].to_numpy(), method)


def image_ids(split: JudgedSplit) -> NDArray[np.int64]:
    """Return the sorted COCO ids of a split's SITS images, (5000,) int64. They are the images of Karpathy's split."""
    return np.unique(view_column(_read("sits", split)["right"])).astype(np.int64)


def shipped(task: Task, split: JudgedSplit) -> Path:
    """Return the path of the shipped file of one task and split."""
    return Path(__file__).with_name("cxc_data") / f"cxc_{task}_{split}.parquet"


def _read(task: Task, split: JudgedSplit) -> pa.Table:
    return read_columns(shipped(task, split))
