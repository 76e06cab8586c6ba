"""Contract: faiss reads the vectors, ir_measures reads neighbours as a run, and numpy computes a
block.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from relabel.stages import Project
from relabel_train.lookup import open_lookup


def shards(folder: Path) -> list[dict[str, Any]]:
    return [line for path in sorted(folder.glob("part-*.parquet")) for line in pq.read_table(path).to_pylist()]


def test_faiss_reads_the_vectors(small_project: Project) -> None:
    faiss = pytest.importorskip("faiss")
    lookup = small_project.folder("exports", "all", "lookup", "cbow")
    vectors = np.load(lookup / "vectors.npy", mmap_mode="r")
    built = faiss.IndexFlatIP(vectors.shape[1])
    built.add(np.ascontiguousarray(vectors))
    expected = open_lookup(lookup).block([3, 50], np.arange(len(vectors)), "first")
    scores, rows = built.search(np.ascontiguousarray(vectors[[3, 50]]), 10)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :10], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(expected, rows, 1), scores, atol=1e-6)


def test_ir_measures_reads_neighbours_as_a_run(small_project: Project, tmp_path: Path) -> None:
    """Evaluate neighbours with siblings as qrels: how well they retrieve the other captions of the image."""
    ir_measures = pytest.importorskip("ir_measures")
    corpus = shards(small_project.folder("corpus"))
    table = shards(small_project.folder("neighbours", "all", "captions", "cbow"))
    ids = [line["caption_id"] for line in corpus]
    run, qrels, expected = [], [], []
    for line in table:
        row, image = line["row"], corpus[line["row"]]["image_id"]
        siblings = [c["caption_id"] for c in corpus if c["image_id"] == image and c["row"] != row]
        if not siblings:
            continue
        qrels += [ir_measures.Qrel(ids[row], sibling, 1) for sibling in siblings]
        # A run is ordered by score with ties by id: lower equal scores to keep the order of the list.
        scores = [score - 1e-4 * i for i, score in enumerate(line["scores"])]
        run += [ir_measures.ScoredDoc(ids[row], ids[n], s) for n, s in zip(line["neighbours"], scores, strict=True)]
        hits = np.array(line["same_image"])
        expected.append(hits[:5].sum() / 5)
    measure = ir_measures.P @ 5
    assert ir_measures.calc_aggregate([measure], qrels, run)[measure] == pytest.approx(np.mean(expected))
    path = tmp_path / "neighbours.run"
    path.write_text("".join(f"{d.query_id} Q0 {d.doc_id} 0 {d.score} relabel\n" for d in run), encoding="utf-8")
    again = ir_measures.read_trec_run(str(path))
    assert ir_measures.calc_aggregate([measure], qrels, again)[measure] == pytest.approx(np.mean(expected))


def test_numpy_alone_computes_a_block(small_project: Project) -> None:
    """Check the description of the arrays: a block of vectors and one of CIDEr-D by loops over the files."""
    rows, columns = [3, 40, 120], [4, 41, 200]
    folder = small_project.folder("exports", "all", "lookup", "cbow")
    about = json.loads((folder / "lookup.json").read_text(encoding="utf-8"))
    assert about["orientation"].startswith("rows are images")
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    ours = open_lookup(folder).block(rows, columns, "first")
    np.testing.assert_allclose(vectors[rows] @ vectors[columns].T, ours, atol=1e-6)
    folder = small_project.folder("exports", "all", "lookup", "cider")
    arrays = {p.stem: np.load(p, mmap_mode="r") for p in folder.glob("*.npy")}
    about = json.loads((folder / "lookup.json").read_text(encoding="utf-8"))
    image, first, indptr = arrays["image"], arrays["indptr"], arrays["features.indptr"]
    expected = np.zeros((3, 3))
    for i, row in enumerate(rows):
        m = int(image[row])
        references = range(int(first[m]), min(int(first[m]) + about["references"], int(first[m + 1])))
        for j, column in enumerate(columns):
            scores = []
            for r in references:
                if image[column] == m:
                    n = int(first[m + 1] - first[m])
                    at = int(arrays["siblings.start"][m]) + (column - int(first[m])) * n + r - int(first[m])
                    scores.append(float(arrays["siblings.scores"][at]))
                    continue
                a, b = range(indptr[r], indptr[r + 1]), range(indptr[column], indptr[column + 1])
                weight = {int(arrays["features.columns"][e]): float(arrays["features.candidate"][e]) for e in b}
                total = sum(
                    float(arrays["features.reference"][e]) * weight.get(int(arrays["features.columns"][e]), 0.0)
                    for e in a
                )
                apart = abs(int(arrays["features.length"][r]) - int(arrays["features.length"][column]))
                scores.append(total * float(arrays["features.gauss"][apart]))
            expected[i, j] = sum(scores) / len(scores)
    ours = open_lookup(folder).block(rows, columns, dtype=np.float64)
    np.testing.assert_allclose(ours, expected, atol=1e-9)
    assert (expected > 0).any()
