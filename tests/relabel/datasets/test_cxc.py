"""Contract: the shipped human scores equal CxC's originals cell by cell, with the published counts and images."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import relabel.datasets
from relabel.datasets import cxc

DATA = Path(relabel.datasets.__file__).parent / "cxc_data"
COUNTS = {
    ("sts", "val"): {"c2c_cocaption": 25_000, "c2c_isim": 19_009},
    ("sts", "test"): {"c2c_cocaption": 25_000, "c2c_isim": 19_045},
    ("sits", "val"): {"c2i_original": 25_000, "c2i_intrasim": 19_722},
    ("sits", "test"): {"c2i_original": 25_000, "c2i_intrasim": 19_833},
    ("sis", "val"): {"i2i_csim": 42_767},
    ("sis", "test"): {"i2i_csim": 46_719},
}


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_counts_and_ranges(task: cxc.Task, split: cxc.Split) -> None:
    scores = cxc.human_scores(task, split)
    counts = {m: scores.method.count(m) for m in cxc.METHODS[task]}
    assert counts == COUNTS[task, split]
    assert len(scores) == len(scores.right) == len(scores.score) == sum(counts.values())
    assert scores.score.dtype == np.float64
    assert (scores.score.min(), scores.score.max()) == (0.0, 5.0)
    assert all(i.startswith("coco:") and i[5:].isdecimal() for i in scores.left[:100] + scores.right[:100])


@pytest.mark.parametrize("split", ["val", "test"])
def test_image_ids(split: cxc.Split) -> None:
    ids = cxc.image_ids(split)
    assert ids.dtype == np.int64
    assert len(ids) == 5000
    assert (np.diff(ids) > 0).all()
    named = {f"coco:{i}" for i in ids}
    sis = cxc.human_scores("sis", split)
    assert {*sis.left, *sis.right} == named


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_originals_agree(task: cxc.Task, split: cxc.Split, mirror: Path) -> None:
    path = mirror / "cxc" / f"{task}_{split}.csv"
    if not path.exists():
        pytest.skip("the mirror has no cxc/*.csv")
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    scores = cxc.human_scores(task, split)
    ids = {"caption": r"COCO_val2014:sentid:0*(\d+)", "image": r"COCO_val2014_0*(\d+)\.jpg"}
    for column, side, kind in zip((0, 1), (scores.left, scores.right), cxc.SIDES[task], strict=True):
        assert side == [f"coco:{re.fullmatch(ids[kind], row[column])[1]}" for row in rows]  # type: ignore[index]
    assert scores.score.tolist() == [float(row[2]) for row in rows]
    assert scores.method == [row[3] for row in rows]
