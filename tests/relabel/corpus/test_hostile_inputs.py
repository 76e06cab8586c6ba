"""Contract: `relabel ingest` refuses paths that are not files, and files whose content no corpus can hold, by name.

No path raises another exception, and none is read endlessly.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relabel.core import parsing
from relabel.core.errors import MissingError, RelabelError
from relabel.core.runtime import Runtime
from relabel.corpus import ingest as corpus_ingest
from relabel.corpus.params import IngestParams
from relabel.store.artefact import build
from relabel.store.manifest import Manifest

RECORD = {"caption_id": "1", "image_id": "1", "text": "a dog", "split": "test"}
FORMATS = ("coco", "karpathy", "jsonl", "csv", "parquet", "scan")


def ingest(params: IngestParams, out: Path, runtime: Runtime) -> tuple[Manifest, bool]:
    return build(out, corpus_ingest.ingest(params, runtime), runtime.progress)


def run(path: Path, kind: str, **more: Any) -> None:
    params = IngestParams(dataset="mine", format=kind, path=path, tokenizer="none", **more)
    ingest(params, path.parent / "corpus" if len(path.name) < 200 else Path("corpus"), Runtime())


def refusal(path: Path, kind: str, **more: Any) -> RelabelError:
    with pytest.raises(RelabelError) as caught:
        run(path, kind, **more)
    assert caught.value.exit_code in (2, 3, 4)
    assert caught.value.where
    return caught.value


@pytest.mark.parametrize("kind", FORMATS)
def test_a_path_that_is_not_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    paths = [Path("/dev/zero"), *(tmp_path / name for name in ("pipe", "loop", "empty", "gone"))]
    for path in paths:
        refusal(path, kind)
    if kind not in ("scan", "coco"):
        for path in paths[:2]:
            assert isinstance(refusal(path, kind), MissingError)


def test_pipes_inside_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("train_caps.txt", "captions_train2014.json", "captions_val2014.json", "a.csv"):
        os.mkfifo(tmp_path / name)
    for kind in ("scan", "coco", "csv"):
        assert "not a regular file" in str(refusal(tmp_path, kind, **({"ids": "position"} if kind == "scan" else {})))


def test_an_archive_with_too_large_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_BYTES", 1 << 23)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\n" * (1 << 24)))
    assert "unpacks to more than" in refusal(tmp_path / "a.jsonl.gz", "jsonl").problem


def test_ids_of_any_length_are_valid(tmp_path: Path) -> None:
    ids = [2**70, "9" * 5000, "a" + "0" * 5000 + "7"]
    lines = [json.dumps(RECORD | {"caption_id": name, "image_id": name}) for name in ids]
    (tmp_path / "a.jsonl").write_text("\r\n".join(lines))
    run(tmp_path / "a.jsonl", "jsonl")


def test_an_empty_file_of_captions_beside_ids_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_caps.txt").write_bytes(b"")
    (tmp_path / "test_ids.txt").write_text("1\n2\n")
    for more in ({}, {"captions_per_image": 5}, {"ids": "caption", "captions_per_image": 1}):
        assert refusal(tmp_path, "scan", **more).where == str(tmp_path / "test_caps.txt")


def test_a_doubled_parquet_column_is_refused(tmp_path: Path) -> None:
    names = [*RECORD, "text"]
    pq.write_table(pa.Table.from_arrays([pa.array(["1"])] * 5, names=names), tmp_path / "a.parquet")
    assert "text" in refusal(tmp_path / "a.parquet", "parquet").problem
