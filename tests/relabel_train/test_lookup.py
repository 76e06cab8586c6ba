"""Contract: any block of a lookup, under any pooling, equals explicit loops over single pairs of the pipeline.
Siblings are marked by id, and ids are found without a table in memory. Rows and ids outside the lookup are refused
by name. A caption without an encoding is refused by name, or has NaN on request.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel import stages
from relabel.corpus import References
from relabel.stages import Project
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.lookup import lookup as module

REDUCE: dict[str, Callable[[list[float]], float]] = {
    "first": lambda x: x[0],
    "max": max,
    "mean": lambda x: sum(x) / len(x),
    "set": lambda x: sum(x) / len(x),
}
LABELS = ("same_image", "cbow", "cider", "cider_plain")
TOLERANCE = {"same_image": 0.0, "cbow": 1e-6, "cider": 1e-9, "cider_plain": 1e-9}


def opened(project: Project, label: str) -> Lookup:
    return open_lookup(project.folder("exports", "all", "lookup", label), verify=True)


def sample_rows(lookup: Lookup, count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, len(lookup), count)


def by_loops(project: Project, label: str, rows: Any, columns: Any, pooling: str) -> NDArray[np.float64]:
    """Score single captions by the pipeline, one reference at a time, and pool in Python."""
    corpus, relevance = project.corpus, stages.open_label(project, label, "all")
    expected = np.empty((len(rows), len(columns)))
    for i, row in enumerate(rows):
        first = int(corpus.indptr[corpus.image[row]])
        siblings = int(corpus.indptr[corpus.image[row] + 1]) - first
        references = [row] if pooling == "first" else range(first, first + min(5, siblings))
        for j, column in enumerate(columns):
            captions = np.full(len(references), column, np.int32)
            single = References.of([[r] for r in references])
            expected[i, j] = REDUCE[pooling](relevance.pairs(single, captions, "first").tolist())
    return expected


@pytest.mark.parametrize("pooling", list(REDUCE))
@pytest.mark.parametrize("label", LABELS)
def test_blocks_equal_loops_over_single_pairs(label: str, pooling: str, small_project: Project) -> None:
    lookup = opened(small_project, label)
    if pooling not in lookup.about.poolings:
        with pytest.raises(ValueError, match=r"no pooling 'set'. Use one of first, max, mean"):
            lookup.block([0], pooling=pooling)  # type: ignore[arg-type]
        return
    rows, columns = sample_rows(lookup, 25, 1), sample_rows(lookup, 18, 2)
    columns[:5] = rows[:5]  # the captions themselves
    columns[5:9] = np.minimum(rows[5:9] + 1, len(lookup) - 1)  # mostly siblings
    expected = by_loops(small_project, label, rows, columns, pooling)
    block = lookup.block(rows, columns, pooling, dtype=np.float64)  # type: ignore[arg-type]
    np.testing.assert_allclose(block, expected, rtol=0, atol=TOLERANCE[label])
    single = lookup.block(rows, columns, pooling)  # type: ignore[arg-type]
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=2e-7, atol=1e-6)


@pytest.mark.parametrize("label", LABELS)
def test_a_large_block_equals_small_ones(label: str, small_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = opened(small_project, label)
    rows, columns = sample_rows(lookup, 33, 4), sample_rows(lookup, 41, 5)
    block = lookup.block(rows, columns, dtype=np.float64)
    for cells in (1, 600, 5 * 41 * 7):
        monkeypatch.setattr(module, "_CELLS", cells)
        np.testing.assert_allclose(lookup.block(rows, columns, dtype=np.float64), block, rtol=0, atol=1e-12)


def test_out_is_filled_and_empty_requests(small_project: Project) -> None:
    for label in LABELS:
        lookup = opened(small_project, label)
        room = np.full((2, 3), 7.0, np.float32)
        assert lookup.block([0, 9], [1, 2, 3], out=room) is room
        np.testing.assert_array_equal(room, lookup.block([0, 9], [1, 2, 3]))
        assert lookup.block([], [1, 2]).shape == (0, 2)
        assert lookup.block([1, 2], []).shape == (2, 0)
        with pytest.raises(ValueError, match=r"float32 or float64 \(1, 1\) is needed"):
            lookup.block([0], out=np.empty((1, 2), np.float32))
        with pytest.raises(ValueError, match="float32 or float64"):
            lookup.block([0], dtype=np.int32)


def test_siblings_are_marked_by_id(small_project: Project) -> None:
    lookup, corpus = opened(small_project, "cbow"), small_project.corpus
    rows, columns = sample_rows(lookup, 30, 6), sample_rows(lookup, 20, 7)
    image = corpus.table["image_id"].to_pylist()
    expected = [[image[r] == image[c] for c in columns] for r in rows]
    np.testing.assert_array_equal(lookup.same_image(rows, columns), expected)
    assert lookup.same_image(rows).dtype == np.bool_
    np.testing.assert_array_equal(lookup.same_image(rows), lookup.same_image(rows, rows))
    block, same = lookup.block(np.arange(len(lookup))), lookup.same_image(np.arange(len(lookup)))
    assert ((block > 0.9999) & ~same).any()  # equal texts of different images: r = 1 does not imply equal ids


def test_ids_and_rows(small_project: Project) -> None:
    lookup, corpus = opened(small_project, "cbow"), small_project.corpus
    every = np.arange(len(corpus))
    assert lookup.caption_ids(every) == corpus.caption_ids
    np.testing.assert_array_equal(lookup.rows_of(corpus.caption_ids[::-1]), every[::-1])
    assert lookup.image_ids(every) == corpus.table["image_id"].to_pylist()
    np.testing.assert_array_equal(lookup.rows_of_images(corpus.image_ids), corpus.indptr[:-1])
    np.testing.assert_array_equal(lookup.image_of(every), corpus.image)
    with pytest.raises(KeyError, match="covers no caption nowhere, 0, 1, 2, 3 and 2 more"):
        lookup.rows_of([corpus.caption_ids[0], "nowhere", *map(str, range(6))])
    with pytest.raises(KeyError, match="covers no image x"):
        lookup.rows_of_images(["x"])
    assert lookup.rows_of([]).shape == (0,)


def test_a_split_keeps_the_rows_of_the_corpus(small_project: Project) -> None:
    stages.encode(small_project, "cider", "val").run()
    job = stages.export_lookup(small_project, "cider", "val")
    job.run()
    lookup, corpus = open_lookup(job.out), small_project.corpus
    assert lookup.rows == corpus.splits["val"]
    rows = np.array(lookup.rows, np.int32)
    relevance = stages.open_label(small_project, "cider", "val")
    expected = relevance.block(corpus.references(corpus.image[rows]), rows)
    np.testing.assert_allclose(lookup.block(rows, dtype=np.float64), expected, rtol=0, atol=1e-9)
    assert lookup.caption_ids(rows[:3]) == corpus.caption_ids[rows[0] : rows[0] + 3]
    for outside in (rows[0] - 1, rows[-1] + 1):
        with pytest.raises(IndexError, match=f"row {outside} is not among rows {rows[0]} to {rows[-1]}"):
            lookup.block([rows[3], outside])
    with pytest.raises(ValueError, match="exported without neighbours"):
        lookup.neighbours(rows[:2], 1)


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_neighbours_equal_a_sort(label: str, small_project: Project) -> None:
    lookup = opened(small_project, label)
    every = np.arange(len(lookup))
    scores = by_pairs(small_project, label)
    scores[every, every] = -np.inf
    rows = sample_rows(lookup, 12, 8)
    neighbours, best, same = lookup.neighbours(rows, 5)
    for i, row in enumerate(rows):
        order = sorted(every.tolist(), key=lambda c: (-scores[row, c], c))[:5]
        assert neighbours[i].tolist() == order
        np.testing.assert_allclose(best[i], scores[row, order], atol=1e-6)
    np.testing.assert_array_equal(
        same, lookup.image_of(neighbours.reshape(-1)).reshape(same.shape) == lookup.image_of(rows)[:, None]
    )
    assert (neighbours.dtype, best.dtype, same.dtype) == (np.int32, np.float32, np.bool_)
    assert lookup.neighbours(rows)[0].shape == (12, 8)
    for k in (0, 9):
        with pytest.raises(ValueError, match=f"8 neighbours per caption; {k} were asked for"):
            lookup.neighbours(rows, k)


def by_pairs(project: Project, label: str) -> NDArray[np.float64]:
    relevance, n = stages.open_label(project, label, "all"), len(project.corpus)
    left, right = (np.asarray(a.reshape(-1), np.int32) for a in np.mgrid[:n, :n])
    return relevance.pairs(References.single(left), right, "first").reshape(n, n)


def with_failed(project: Project, label: str, folder: Path, failed: list[int]) -> Lookup:
    """Copy a lookup with some rows marked as failed and without neighbours."""
    shutil.copytree(project.folder("exports", "all", "lookup", label), folder)
    body = json.loads((folder / "lookup.json").read_text())
    arrays = {name: np.load(folder / f"{name}.npy") for name in ("neighbours.indptr", "neighbours.rows")}
    sizes = np.diff(arrays["neighbours.indptr"])
    mask = ~np.isin(np.repeat(np.arange(len(sizes)), sizes), failed)
    sizes[failed] = 0
    changed = {
        "failed": np.array(failed, np.int32),
        "neighbours.indptr": np.concatenate([[0], np.cumsum(sizes)]),
        "neighbours.rows": arrays["neighbours.rows"][mask],
        "neighbours.scores": np.load(folder / "neighbours.scores.npy")[mask],
    }
    for name, array in changed.items():
        np.save(folder / f"{name}.npy", array)
        body["arrays"][name]["shape"] = list(array.shape)
    body["failed"] = len(failed)
    (folder / "lookup.json").write_text(json.dumps(body))
    return open_lookup(folder, verify=False)


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_a_caption_without_an_encoding_is_refused_or_nan_on_request(
    label: str, small_project: Project, tmp_path: Path
) -> None:
    """Check a lookup with two failed rows: dependent values are NaN, and all others are unchanged."""
    intact, failed = opened(small_project, label), [4, 60]
    lookup, every = with_failed(small_project, label, tmp_path / "lookup", failed), np.arange(len(intact))
    references = [
        set(range(a, min(a + 5, b)))
        for a, b in zip(small_project.corpus.indptr, small_project.corpus.indptr[1:], strict=False)
    ]
    name = lookup.caption_ids([4])[0]
    for pooling in ("first", "mean"):
        expected = intact.block(every, pooling=pooling)  # type: ignore[arg-type]
        for row in every:
            sets = {int(row)} if pooling == "first" else references[small_project.corpus.image[row]]
            if sets & set(failed):
                expected[row] = np.nan
        expected[:, failed] = np.nan
        labels = lookup.block(every, pooling=pooling, missing="nan")  # type: ignore[arg-type]
        np.testing.assert_array_equal(labels, expected)
        usable = np.flatnonzero(np.isfinite(np.diagonal(expected)))
        assert lookup.captions(pooling).rows.tolist() == usable.tolist()  # type: ignore[arg-type]
        block = lookup.block(usable, pooling=pooling)  # type: ignore[arg-type]
        np.testing.assert_allclose(block, expected[np.ix_(usable, usable)], atol=1e-6)  # a product of another shape
        with pytest.raises(ValueError, match=rf"caption {name} \(row 4\) has no encoding.*missing='nan'"):
            lookup.block([4], usable[:2], pooling)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=rf"caption {name} \(row 4\) has no encoding"):
            lookup.block(usable[:2], [0, 4], pooling)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"caption {name} has 0 neighbours, not 3"):
        lookup.neighbours([0, 4], 3)
    rows, scores, same = lookup.neighbours([0, 4], 3, missing="nan")
    assert (rows[1].tolist(), same[1].any()) == ([-1] * 3, False)
    assert np.isnan(scores[1]).all()
    np.testing.assert_array_equal(rows[0], intact.neighbours([0], 3)[0][0])
