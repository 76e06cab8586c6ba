"""Contract: faiss reads the indexes of `relabel export faiss`. Their ids are rows of the corpus, which captions.parquet
names. Merged results are those of brute force (exact indexes) or of one index over all captions (trained ones). Labels
without vectors and strings that faiss refuses end in one line before any work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.relabel.export.formats import in_folder, with_params

from relabel import stages
from relabel.core.errors import UsageError
from relabel.export.faiss import CAPTIONS
from relabel.stages import Project, open_label

faiss = pytest.importorskip("faiss")
K = 10


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    """Return the small project with a new folder of exports."""
    return in_folder(small_project, tmp_path / "labels")


def exported(project: Project, split: str = "all", **values: Any) -> Path:
    job = stages.export(with_params(project, "faiss", **values), "faiss", "cbow", split)
    job.run()
    return job.out


def merged_search(folder: Path, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Search every shard and keep the K best, as a user would."""
    found = [faiss.read_index(str(path)).search(queries, K) for path in sorted(folder.glob("*.faiss"))]
    scores, rows = (np.concatenate(side, axis=1) for side in zip(*found, strict=True))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)


def vectors_of(project: Project) -> NDArray[np.float32]:
    vectors = open_label(project, "cbow", "all").unit_vectors()
    assert vectors is not None
    return vectors


@pytest.mark.parametrize("index", ["Flat", "HNSW32;efSearch=500", "IVF4,Flat;nprobe=4"])
def test_merged_shards_find_what_brute_force_finds(index: str, project: Project) -> None:
    folder, vectors = exported(project, index=index, rows_per_shard=30), vectors_of(project)
    names = sorted(path.name for path in folder.glob("*.faiss"))
    assert names == [
        f"{split}-{i:05d}-of-{count:05d}.faiss"
        for split, count in sorted((split, -(-len(rows) // 30)) for split, rows in project.corpus.splits.items())
        for i in range(count)
    ]
    scores, rows = merged_search(folder, vectors)
    product = vectors @ vectors.T
    np.testing.assert_allclose(scores, -np.sort(-product, axis=1)[:, :K], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(product, rows, 1), scores, atol=1e-6)


def test_ids_are_rows_and_captions_have_names(project: Project) -> None:
    folder, corpus = exported(project, "test"), project.corpus
    rows = corpus.rows(["test"])
    table = pq.read_table(folder / CAPTIONS).to_pydict()
    assert table["row"] == list(rows)
    assert table["caption_id"] == corpus.caption_ids[rows.start : rows.stop]
    assert table["image_id"] == [corpus.image_ids[corpus.image[row]] for row in rows]
    index = faiss.read_index(str(folder / "test-00000-of-00001.faiss"))
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    np.testing.assert_array_equal(index.reconstruct(rows.start + 3), vectors_of(project)[rows.start + 3])


def test_failed_rows_are_left_out(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from relabel.export import faiss as module

    def broken(table: Any) -> NDArray[np.float32]:
        vectors = vectors_from_table(table).copy()
        vectors[5] = np.nan
        return vectors

    vectors_from_table = module.vectors_from_table
    monkeypatch.setattr(module, "vectors_from_table", broken)
    folder, rows = exported(project, "test", index="IVF2,Flat"), project.corpus.rows(["test"])
    index = faiss.read_index(str(folder / "test-00000-of-00001.faiss"))
    ids = np.concatenate([faiss.rev_swig_ptr(index.invlists.get_ids(i), index.invlists.list_size(i)) for i in range(2)])
    assert sorted(ids) == [row for row in rows if row != rows.start + 5]


@pytest.mark.parametrize("index", ["nonsense", "IVF0,Flat", "HNSW1", "Flat;nprobe=x", "IDMap2,nonsense"])
def test_a_string_that_faiss_refuses(index: str, project: Project) -> None:
    with pytest.raises(UsageError, match=index.split(";")[0]):
        stages.export(with_params(project, "faiss", index=index), "faiss", "cbow", "all").run()
