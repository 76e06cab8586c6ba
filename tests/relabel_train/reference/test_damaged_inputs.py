"""Contract: a damaged corpus or file of positives raises one FitError that names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel_train.metrics.positives import read_ids
from relabel_train.reference.data import read_split
from relabel_train.reference.options import FitError


@pytest.mark.parametrize("damage", ["empty", "text", "columns"])
def test_a_damaged_shard_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "part-00000-of-00001.parquet"
    if damage == "columns":
        pq.write_table(pa.table({"split": ["train"]}), path)
    else:
        path.write_bytes(b"" if damage == "empty" else b"PAR1" * 100)
    features: Any = None
    with pytest.raises(FitError, match=r"part-00000-of-00001\.parquet: not a shard"):
        read_split(tmp_path, "train", features)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"9" * 5000, b"[]", b'{"1": 2}'])
def test_damaged_positives_are_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "eccv_image_to_caption.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"eccv_image_to_caption\.json: "):
        read_ids(path, "coco")
