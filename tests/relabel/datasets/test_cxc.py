"""Contract: the shipped human scores equal CxC's originals cell by cell, with the published counts and images.

Contract: the STS-B reader parses quoted fields as CSV, and counts the lines of the file.

Contract: every dataset has a complete manifest, in which every file has a sha256 and its sources in order.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from relabel.datasets import cxc, load_manifest, names
from relabel.datasets.evaluation_sets.stsb import read_stsb

COUNTS = {
    ("sts", "val"): {"c2c_cocaption": 25_000, "c2c_isim": 19_009},
    ("sts", "test"): {"c2c_cocaption": 25_000, "c2c_isim": 19_045},
    ("sits", "val"): {"c2i_original": 25_000, "c2i_intrasim": 19_722},
    ("sits", "test"): {"c2i_original": 25_000, "c2i_intrasim": 19_833},
    ("sis", "val"): {"i2i_csim": 42_767},
    ("sis", "test"): {"i2i_csim": 46_719},
}


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_counts_and_ranges(task: cxc.Task, split: cxc.JudgedSplit) -> None:
    scores = cxc.human_scores(task, split)
    counts = {m: scores.method.count(m) for m in cxc.METHODS[task]}
    assert counts == COUNTS[task, split]
    assert len(scores) == len(scores.right) == len(scores.score) == sum(counts.values())
    assert scores.score.dtype == np.float64
    assert (scores.score.min(), scores.score.max()) == (0.0, 5.0)


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_originals_agree(task: cxc.Task, split: cxc.JudgedSplit, mirror: Path) -> None:
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


def test_reads_quotes_commas_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "stsb-en-dev.csv"
    path.write_bytes(b'"A dog, runs",a cat,4.2\r\n"He said, ""go""",he said go,0\r\n"two\nlines",x,1.0\r\ny,z,5\r\n')
    assert read_stsb(path) == [
        ("A dog, runs", "a cat", 4.2, 1),
        ('He said, "go"', "he said go", 0.0, 2),
        ("two\nlines", "x", 1.0, 3),
        ("y", "z", 5.0, 5),
    ]


@pytest.mark.parametrize("name", names())
def test_a_manifest_is_complete(name: str) -> None:
    manifest = load_manifest(name)
    assert manifest.name == name
    assert len({file.name for file in manifest.files}) == len(manifest.files)
    assert manifest.homepage.startswith("https://")
    for file in manifest.files:
        for content in file.contents:
            # Files that nobody here has seen are of human judgements alone.
            unseen = name in ("flickr8k-cf", "composite", "polaris", "nebula") and not content.sha256
            assert unseen or re.fullmatch("[0-9a-f]{64}", content.sha256)
            assert unseen or content.bytes > 0
        kinds = [[bool(getattr(s, kind)) for kind in ("package", "url", "maven", "mirror")] for s in file.sources]
        assert kinds == sorted(kinds, reverse=True)  # order: package, URL, mirror
        assert all(sum(kind) == 1 for kind in kinds)
        assert any(s.mirror for s in file.sources)
        for source in file.sources:
            # An archive is verified before a member is read from it.
            assert bool(source.archive) == bool(source.url and source.member)
            assert source.url is None or source.url.startswith(("https://", "hf://", "http://images.cocodataset.org/"))
            assert all(".." not in path and not path.startswith("/") for path in (source.path, source.mirror or ""))
