"""Contract: what a format cannot hold is refused before anything is written, by a line that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.relabel.export.formats import exported, in_folder

from relabel.core.errors import MissingError, UsageError
from relabel.stages import Session

Case = tuple[str, str, str, dict[str, Any], type[Exception], str]
CASES: list[Case] = [
    ("candidates", "cbow", "train", {}, MissingError, "--queries images -k 10"),
    ("candidates", "cbow", "train", {"k": 0, "cxc": ("sits",)}, UsageError, "no judged pairs for train"),
    ("faiss", "cbow", "all", {"index": "nonsense"}, UsageError, "nonsense"),
    ("faiss", "cbow", "all", {"index": "IVF5000,Flat"}, UsageError, "IVF5000,Flat"),
    ("faiss", "cider", "all", {}, UsageError, "cider has no index: faiss searches vectors"),
    ("scan", "cbow", "val", {"captions_per_image": 6}, UsageError, "images of val have fewer than 6 .*; first coco:图"),
    ("trec", "cbow", "all", {"levels": (0.8, 0.5)}, UsageError, "cut points must increase"),
    ("trec", "cbow", "all", {"levels": (-1.0, 0.5)}, UsageError, "above -1, the minimum of cbow, and at most 1"),
    ("trec", "cbow", "all", {"queries": "images"}, MissingError, "--label cbow --candidates all --queries images"),
    ("tuples", "cbow", "all", {"negatives": 10**4}, UsageError, "too few for sampling"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}: {case[-1]}")
def test_what_a_format_cannot_hold_is_refused(case: Case, small_project: Session, tmp_path: Path) -> None:
    kind, label, split, params, error, said = case
    session = in_folder(small_project, tmp_path / "labels", "neighbours")
    with pytest.raises(error, match=said):
        exported(session, kind, label, split, **params)
    assert list(session.folder("exports").rglob("*.json")) == []
