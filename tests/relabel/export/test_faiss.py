"""Contract: faiss reads the indexes of `relabel export faiss`. Their ids are rows of the corpus, which captions.parquet
names. Merged results are those of brute force (exact indexes) or of one index over all captions (trained ones).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.relabel.export.formats import exported, in_folder

from relabel.export import faiss as module
from relabel.stages import Session, open_corpus, open_label

faiss = pytest.importorskip("faiss")
K = 10


@pytest.fixture
def session(small_project: Session, tmp_path: Path) -> Session:
    """Return the small project with a new folder of exports."""
    return in_folder(small_project, tmp_path / "labels")


@pytest.fixture
def vectors(session: Session) -> Any:
    return open_label(session, "cbow", "all").unit_vectors()


def merged_search(folder: Path, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Search every shard and keep the K best, as a user would."""
    found = [faiss.read_index(str(path)).search(queries, K) for path in sorted(folder.glob("*.faiss"))]
    scores, rows = (np.concatenate(side, axis=1) for side in zip(*found, strict=True))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
    return np.take_along_axis(scores, best, 1), np.take_along_axis(rows, best, 1)


@pytest.mark.parametrize("index", ["Flat", "HNSW32;efSearch=500", "IVF4,Flat;nprobe=4"])
def test_merged_shards_find_what_brute_force_finds(index: str, session: Session, vectors: Any) -> None:
    folder, _ = exported(session, "faiss", index=index, rows_per_file=30)
    counts = {split: -(-len(rows) // 30) for split, rows in open_corpus(session).splits.items()}
    names = {f"{split}-{i:05d}-of-{count:05d}.faiss" for split, count in counts.items() for i in range(count)}
    assert {path.name for path in folder.glob("*.faiss")} == names
    (scores, rows), product = merged_search(folder, vectors), vectors @ vectors.T
    np.testing.assert_allclose(scores, -np.sort(-product, axis=1)[:, :K], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(product, rows, 1), scores, atol=1e-6)


def test_ids_are_rows_with_an_encoding_and_captions_have_names(
    session: Session, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = open_corpus(session)
    rows = corpus.split_rows("test")
    vectors[rows.start + 5] = np.nan  # a row without an encoding
    monkeypatch.setattr(module, "vectors_from_table", lambda _: vectors[rows.start : rows.stop])
    folder, _ = exported(session, "faiss", split="test")
    table = pq.read_table(folder / module.CAPTIONS).to_pydict()
    assert table["row"] == list(rows)
    assert table["caption_id"] == corpus.caption_ids[rows.start : rows.stop]
    assert table["image_id"] == [corpus.image_ids[corpus.image[row]] for row in rows]
    index = faiss.read_index(str(folder / "test-00000-of-00001.faiss"))
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    assert faiss.vector_to_array(index.id_map).tolist() == [row for row in rows if row != rows.start + 5]
    np.testing.assert_array_equal(index.reconstruct(rows.start + 7), vectors[rows.start + 7])
