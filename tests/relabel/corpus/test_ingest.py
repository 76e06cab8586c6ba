"""Contract: ingest turns captions of any format into one verified corpus. Changed files are read again, and unexpected
counts are errors.

Contract: paths that are not files are refused by name. None raises another exception, and none is read endlessly.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus import ingest as corpus_ingest
from relabel.corpus.params import IngestParams
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, read_manifest

ODD = ["A dog\nruns. ", "a\0cat", "two 🐕‍🦺 dogs", "كلب يركض", "word " * 2000]


def ingest(params: IngestParams, out: Path, **runtime: int) -> Manifest:
    return build(out, corpus_ingest.ingest(params, Runtime(threads=1, **runtime)))[0]  # type: ignore[arg-type]


def write(path: Path, texts: Sequence[str] = ODD, per_image: int = 5) -> Path:
    with path.open("w") as file:
        for n, text in enumerate(texts):
            row = {"caption_id": n, "image_id": f"i{n // per_image}", "split": "test", "text": text}
            file.write(json.dumps(row) + "\n")
    return path


def params(path: Path | None, **more: Any) -> IngestParams:
    return IngestParams(**{"dataset": "d", "format": "jsonl", "path": path, **more})


def test_corpus_holds_the_captions_as_written(tmp_path: Path) -> None:
    out = tmp_path / "labels" / "corpus"
    manifest = ingest(params(write(tmp_path / "a.jsonl")), out)
    corpus = Corpus.open(out)
    assert (corpus.texts, corpus.caption_ids) == (ODD, [f"d:{n}" for n in range(5)])
    assert not (tmp_path / "labels/tokens").exists()
    expected = {"digest": corpus.digest, "rows": [0, 5], "splits": {"test": [0, 5]}}
    assert {name: manifest.metadata[name] for name in expected} == expected
    assert manifest.metadata["report"]["captions"] == 5
    assert read_manifest(out, "corpus") == manifest
    again = ingest(params(out, format="parquet"), tmp_path / "again")
    assert again.metadata["digest"] == corpus.digest


def test_shards_have_fixed_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [f"text {n}" for n in range(23)])
    digests = set()
    for size, sizes in ((10, [10, 10, 3]), (23, [23]), (50, [23])):
        out = tmp_path / f"corpus{size}"
        manifest = ingest(params(path), out, rows_per_shard=size)
        assert [pq.read_metadata(out / name).num_rows for name in manifest.parts] == sizes
        assert Corpus.open(out).texts == [f"text {n}" for n in range(23)]
        digests.add(manifest.metadata["digest"])
    assert len(digests) == 1


def test_tokens_are_made_once_and_again_for_other_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("relabel.corpus.table.CHUNK", 10)
    monkeypatch.setattr(
        "relabel.corpus.table.tokenize", lambda texts: calls.append(len(texts)) or [text.upper() for text in texts]
    )
    for count, expected in ((23, [10, 10, 3]), (23, []), (5, [5])):
        path = write(tmp_path / "a.jsonl", [f"text {n}" for n in reversed(range(count))])
        ingest(params(path), tmp_path / "corpus")
        corpus = Corpus.open(tmp_path / "corpus")
        assert corpus.tokens == [text.upper() for text in corpus.texts]
        assert calls == expected
        calls.clear()


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"all": {"captions": 5, "images": 1_000}}, "expected 1,000 images, found 1"),
        ({"test": {"images": 2}}, "expected 2 images in test, found 1"),
        ({"val": {"captions": 1}}, "expected 1 captions in val, found 0"),
    ],
)
def test_other_counts_than_expected_are_refused(tmp_path: Path, expected: Any, message: str) -> None:
    out, path = tmp_path / "corpus", write(tmp_path / "a.jsonl")
    with pytest.raises(CheckError, match=re.escape(f"d ({path}): {message}")) as caught:
        ingest(params(path, expected=expected), out)
    assert not out.exists()
    assert "{} to skip" in str(caught.value)
    ingest(params(path, expected={"all": {"captions": 5, "images": 1}, "test": {}}), out)


@pytest.mark.parametrize("kind", ["coco", "karpathy", "jsonl", "csv", "parquet", "scan"])
def test_a_path_that_is_not_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for name in ("/dev/zero", "pipe", "loop", "empty", "gone"):
        with pytest.raises(RelabelError) as caught:
            ingest(params(tmp_path / name, format=kind), tmp_path / "corpus")
        assert caught.value.exit_code in (2, 3, 4)
        assert caught.value.where
        if kind not in ("scan", "coco") and name in ("/dev/zero", "pipe"):
            assert isinstance(caught.value, MissingError)
