"""Human scores: Crisscrossed Captions (CxC), shipped as Parquet of ids, scores and sampling methods.

CxC (Parekh et al., EACL 2021, arXiv 2004.15020) scores pairs of COCO's Karpathy val and test captions and images from 0
(nothing in common) to 5 (the same). Three tasks: `sts` caption and caption, `sits` caption and image, `sis` image and
image.
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
"""Sampling methods. `c2c_cocaption` and `c2i_original` are pairs of one image (GT); all others are of two images."""
NAMESPACE = "coco"


@dataclass(frozen=True, eq=False)
class HumanScores:
    """All judged pairs of one task and split, in the order of the original file.

    `left`, `right`: namespaced caption or image ids (`coco:770337`); see `SIDES`.
    `score`: (P,) float64; mean human score, 0..5; the original's decimals round-trip exactly.
    `method`: sampling method; see `METHODS`.
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
    """Return the sha256 of a shipped file, which judgements record as their input."""
    return input_sha256(shipped(task, split))


def human_scores(task: Task, split: JudgedSplit) -> HumanScores:
    """Read the shipped scores of one task and split; needs no network and no other file."""
    table = _read(task, split)
    left, right = ([f"{NAMESPACE}:{n}" for n in table[side].to_pylist()] for side in ("left", "right"))
    method = table["method"].cast(pa.string()).to_pylist()
    return HumanScores(task, split, left, right, table["score"].to_numpy(), method)


def image_ids(split: JudgedSplit) -> NDArray[np.int64]:
    """Return the COCO ids of a split's SITS images, sorted, (5000,) int64: exactly the images of Karpathy's split."""
    return np.unique(view_column(_read("sits", split)["right"])).astype(np.int64)


def shipped(task: Task, split: JudgedSplit) -> Path:
    """Return the shipped file of one task and split."""
    return Path(__file__).with_name("cxc_data") / f"cxc_{task}_{split}.parquet"


def _read(task: Task, split: JudgedSplit) -> pa.Table:
    return read_columns(shipped(task, split))
