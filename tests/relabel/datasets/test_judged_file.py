"""Contract: files of judgements have equal content as JSON Lines, CSV and Parquet. Caption ids become captions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.datasets.evaluation_file import evaluation_file

RECORDS: list[dict[str, Any]] = [
    {"references": ["a dog", "a puppy"], "candidate": "a dog runs", "human": 4.5, "group": "x"},
    {"references": ["two cats"], "candidate": "a dog runs", "human": 1.0, "group": "y"},
]


def write(folder: Path, ending: str) -> Path:
    path = folder / f"mine{ending}"
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    elif ending == ".jsonl":
        path.write_text("\n".join(map(json.dumps, RECORDS)) + "\n\n")
    else:
        lines = ["references,candidate,human,group"]
        for r in RECORDS:
            cell = json.dumps(r["references"]).replace('"', '""')
            lines.append(f'"{cell}",{r["candidate"]},{r["human"]},{r["group"]}')
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_three_formats_are_equal(tmp_path: Path, ending: str) -> None:
    judged = evaluation_file(write(tmp_path, ending), "tau_b")
    pairs = judged.open(tmp_path)
    assert pairs.references == [["a dog", "a puppy"], ["two cats"]]
    assert pairs.candidates == ["a dog runs"] * 2
    assert pairs.ratings is not None
    assert pairs.ratings.tolist() == [[4.5], [1.0]]
    assert pairs.groups == ["x", "y"]
    assert judged.statistics == ("tau_b",)


def test_one_reference_no_group_and_caption_ids(tmp_path: Path) -> None:
    path = tmp_path / "ids.jsonl"
    path.write_text('{"reference": "coco:1", "candidate": "coco:2", "human": 3}')
    pairs = evaluation_file(path, texts={"coco:1": "a cat", "coco:2": "a dog"}).open(tmp_path)
    assert (pairs.references, pairs.candidates, pairs.groups) == ([["a cat"]], ["a dog"], ["all"])
