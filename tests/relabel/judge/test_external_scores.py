"""Contract of scores from elsewhere: every judged pair by its ids, what the file lacks is missing, and errors name file
and line.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import pearson, round_relative
from relabel.datasets.cxc import human_scores
from relabel.judge.cxc_report import correlate
from relabel.judge.external_scores import read_scores
from relabel.judge.notes import task_notes


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_scores_stand_beside_labels(tmp_path: Path) -> None:
    human = human_scores("sits", "test")
    values = [(i * 7919) % 1000 / 1000 for i in range(len(human))]
    records = [
        {"left": a, "right": b, "score": s} for a, b, s in zip(human.left, human.right, values, strict=True)
    ]  # fmt: skip
    scored = read_scores(
        write(tmp_path / "clip.jsonl", [*records[:-3], {"left": "x", "right": "y", "score": 0}]), "test"
    )
    assert scored.label == "clip"
    assert list(scored.tables) == ["sits"]
    rows = {(r.label, r.subset): r for r in correlate([scored], resamples=20)}
    row = rows["clip", "all"]
    assert (row.figures.n, row.missing) == (len(human) - 3, 3)
    assert row.first_missing[0].endswith("not in the file")
    assert row.figures.pearson == pearson(round_relative(np.array(values[:-3])), human.score[:-3])
    assert row.figures.interval is not None
    assert ("same_image", "all") in rows
    assert task_notes("sits", [scored], include_self=True) == ["Scores of another program, by the ids of the pairs."]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"left": "coco:1", "score": 1}, "expected `left` and `right`"),
        ({"left": "a", "right": "b", "score": "high"}, "expected `score`, a number"),
        ({"left": "coco:1", "right": "coco:2", "score": 1}, "there twice"),
    ],
)
def test_an_invalid_record_is_named(tmp_path: Path, record: dict[str, object], message: str) -> None:
    path = write(tmp_path / "s.jsonl", [{"left": "coco:1", "right": "coco:2", "score": 1}, record])
    with pytest.raises(CheckError, match=message) as error:
        read_scores(path, "test")
    assert str(error.value.where).endswith("s.jsonl:2")


def test_no_judged_pair(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", [{"left": "coco:1", "right": "coco:2", "score": 1}])
    with pytest.raises(CheckError, match="no judged pair of CxC's test split"):
        read_scores(path, "test")
