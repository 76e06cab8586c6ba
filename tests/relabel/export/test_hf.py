"""Contract: `datasets.load_dataset` opens the folder of `relabel export hf` with its splits, ids, texts, vectors and
neighbours; the card states label, range, licence and how to load it.

safetensors reads the vectors of a label, with the rows and ids of their captions; labels without vectors are refused.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.stages import Project, open_label
from relabel_train.lookup import open_lookup


@pytest.fixture(scope="module")
def folder(small_project: Project) -> Path:
    job = stages.export(with_params(small_project, "hf", rows_per_shard=40), "hf", "cbow", "all")
    job.run()
    return job.out


def test_datasets_loads_the_folder(small_project: Project, folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    corpus, lookup = small_project.corpus, open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    assert {name: len(part) for name, part in loaded.items()} == {
        {"val": "validation"}.get(split, split): len(rows) for split, rows in corpus.splits.items()
    }
    rows = [row for name in ("train", "validation", "test") for row in loaded[name]]
    assert [row["caption_id"] for row in rows] == corpus.caption_ids
    assert [row["text"] for row in rows] == corpus.texts
    assert [row["image_id"] for row in rows] == [corpus.image_ids[m] for m in corpus.image]
    vectors = np.array([row["vector"] for row in rows], np.float32)
    np.testing.assert_allclose(vectors @ vectors.T, lookup.block(lookup.rows, pooling="first"), atol=1e-6)
    near, scores, same = lookup.neighbours(lookup.rows)
    assert [row["neighbours"] for row in rows] == [lookup.caption_ids(line) for line in near]
    assert [row["neighbour_images"] for row in rows] == [lookup.image_ids(line) for line in near]
    np.testing.assert_array_equal(np.array([row["scores"] for row in rows], np.float32), scores)
    assert [row["same_image"] for row in rows] == same.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_safetensors_reads_vectors_rows_and_ids(small_project: Project, dtype: Literal["float32", "float16"]) -> None:
    job = stages.export(
        with_params(small_project, "safetensors", rows_per_shard=30, dtype=dtype), "safetensors", "cbow", "all"
    )
    manifest, _ = job.run()
    vectors = open_label(small_project, "cbow", "all").unit_vectors()
    assert vectors is not None
    corpus, seen = small_project.corpus, 0
    for split, rows in corpus.splits.items():
        names = sorted(name for name in manifest.files if name.startswith(f"{split}-"))
        assert len(names) == -(-len(rows) // 30)
        first = rows.start
        for name in names:
            tensors = load_file(job.out / name)
            size = len(tensors["rows"])
            assert tensors["rows"].tolist() == list(range(first, first + size))
            assert tensors["vectors"].dtype == dtype
            np.testing.assert_array_equal(tensors["vectors"], vectors[first : first + size].astype(dtype))
            text, offsets = tensors["caption_ids.bytes"].tobytes(), tensors["caption_ids.offsets"]
            ids = [text[a:b].decode() for a, b in pairwise(offsets)]
            assert ids == corpus.caption_ids[first : first + size]
            first, seen = first + size, seen + size
    assert seen == len(corpus)
    with safe_open(job.out / names[0], "np") as file:
        # A second entry would be written in a random order.
        assert list(file.metadata()) == ["encoding"]
        assert json.loads(file.metadata()["encoding"])["label"] == "cbow"
