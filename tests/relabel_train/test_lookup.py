"""Contract: any block of a lookup, under any pooling, equals explicit loops over single pairs of the pipeline.
Siblings are marked by id, and ids are found without a table in memory. Rows and ids outside the lookup are refused
by name. A caption without an encoding is refused by name, or has NaN on request. Labels are within the bounds of their
source, and equal captions have its maximum, whatever type is stored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from relabel import stages
from relabel.corpus import References
from relabel.stages import Session, open_corpus
from relabel_train import losses
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.lookup import lookup as module

REDUCE: dict[str, Any] = {"first": min, "max": max, "mean": np.mean, "set": np.mean}  # `first` has one reference
TOLERANCE = {"same_image": 0.0, "cbow": 1e-6, "cider": 1e-9, "cider_plain": 1e-9}


def opened(session: Session, label: str) -> Lookup:
    return open_lookup(session.folder("exports", "all", "lookup", label), verify=True)


def sample_rows(lookup: Lookup, count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, len(lookup), count)


def references_of(session: Session, row: int) -> range:
    corpus = open_corpus(session)
    first, stop = corpus.indptr[corpus.image[row] :][:2].tolist()
    return range(first, min(stop, first + 5))


def by_loops(session: Session, label: str, rows: Any, columns: Any, pooling: str) -> NDArray[np.float64]:
    """Score single captions by the pipeline, one reference at a time, and pool in Python."""
    relevance, expected = stages.open_label(session, label, "all"), np.empty((len(rows), len(columns)))
    for i, row in enumerate(rows):
        references = [row] if pooling == "first" else references_of(session, row)
        single = References.of([[r] for r in references])
        for j, column in enumerate(columns):
            captions = np.full(len(references), column, np.int32)
            expected[i, j] = REDUCE[pooling](relevance.pairs(single, captions, "first").tolist())
    return expected


@pytest.mark.parametrize("pooling", REDUCE)
@pytest.mark.parametrize("label", TOLERANCE)
def test_blocks_equal_loops_over_single_pairs(
    label: str, pooling: Any, small_project: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = opened(small_project, label)
    if pooling not in lookup.about.poolings:
        with pytest.raises(ValueError, match="no pooling 'set'"):
            lookup.block([0], pooling=pooling)
        return
    rows, columns = sample_rows(lookup, 25, 1), sample_rows(lookup, 18, 2)
    columns[:5] = rows[:5]  # the captions themselves
    columns[5:9] = np.minimum(rows[5:9] + 1, len(lookup) - 1)  # mostly siblings
    expected = by_loops(small_project, label, rows, columns, pooling)
    single = lookup.block(rows, columns, pooling)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=2e-7, atol=1e-6)
    room = np.full(single.shape, 7.0, np.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # labels of a training step have full precision
        assert lookup.block(rows, columns, pooling, out=room) is room
    np.testing.assert_allclose(room, single, rtol=0, atol=1e-6)
    block = lookup.block(rows, columns, pooling, dtype=np.float64)
    np.testing.assert_allclose(block, expected, rtol=0, atol=TOLERANCE[label])
    for cells in (1, 600, 5 * 18 * 7):  # blocks in pieces
        monkeypatch.setattr(module, "_CELLS", cells)
        np.testing.assert_allclose(lookup.block(rows, columns, pooling, dtype=np.float64), block, rtol=0, atol=1e-12)
    assert (lookup.block([], columns, pooling).shape, lookup.block(rows, [], pooling).shape) == ((0, 18), (25, 0))


def test_ids_rows_and_siblings(small_project: Session) -> None:
    lookup, corpus = opened(small_project, "cbow"), open_corpus(small_project)
    every, image_ids = np.arange(len(corpus)), corpus.table["image_id"].to_pylist()
    assert (lookup.caption_ids(every), lookup.image_ids(every)) == (corpus.caption_ids, image_ids)
    np.testing.assert_array_equal(lookup.rows_of(corpus.caption_ids[::-1]), every[::-1])
    np.testing.assert_array_equal(lookup.rows_of_images(corpus.image_ids), corpus.indptr[:-1])
    np.testing.assert_array_equal(lookup.image_of(every), corpus.image)
    assert lookup.rows_of([]).shape == (0,)
    rows, columns, same = every[::2], every[::-3], lookup.same_image(every)
    np.testing.assert_array_equal(same, [[a == b for b in image_ids] for a in image_ids])
    np.testing.assert_array_equal(lookup.same_image(rows, columns), same[np.ix_(rows, columns)])
    # Equal texts of different images: a label of 1 does not imply equal ids.
    assert ((lookup.block(every) > 0.9999) & ~same).any()


def test_captions_are_named_by_their_image(small_project: Session) -> None:
    """Check ids without the dataset's prefix, positions, texts, the table, and names in place of rows."""
    lookup, corpus = opened(small_project, "cbow"), open_corpus(small_project)
    table = lookup.table().to_pylist()
    assert table == corpus.table.select(["caption_id", "image_id", "position", "text"]).to_pylist()
    bare = [{**row, "image_id": row["image_id"].partition(":")[2]} for row in table]
    for rows in (table, bare):
        by_position = lookup.rows_of([(row["image_id"], row["position"]) for row in rows])
        np.testing.assert_array_equal(by_position, np.arange(len(corpus)))
        by_text = lookup.rows_of([(row["image_id"].encode(), f" {row['text']}\n") for row in rows])
        assert [table[row]["text"] for row in by_text] == [row["text"] for row in table]
        np.testing.assert_array_equal(lookup.image_of(by_text), corpus.image)
    np.testing.assert_array_equal(lookup.rows_of([name.partition(":")[2] for name in corpus.caption_ids]), lookup.rows)
    pairs = [(row["image_id"], row["position"]) for row in table[:5]]
    np.testing.assert_array_equal(lookup.block(pairs, corpus.caption_ids[:7]), lookup.block(range(5), range(7)))
    image = table[0]["image_id"]
    for wrong, message in (((image, 99), "no caption of position 99"), ((image, "?"), "no caption of text '[?]'")):
        with pytest.raises(KeyError, match=message):
            lookup.rows_of([wrong])
    with pytest.raises(KeyError, match="no image nowhere"):
        lookup.rows_of([("nowhere", 0)])


@pytest.mark.parametrize("label", ["cbow", "cider"])  # the second is not symmetric
def test_deviation_between_captions_of_an_image(label: str, small_project: Session) -> None:
    """Check single captions in both orders, without themselves and without captions that have no encoding."""
    lookup, failed = opened(small_project, label), [4, 60]
    image = lookup.image_of(lookup.rows).tolist()
    for given, left_out in ((lookup, []), (with_failed(lookup, failed), failed)):
        values = [
            lookup.block([a], [b], "first", dtype=np.float64).item()
            for a in lookup.rows
            for b in lookup.rows
            if a != b and image[a] == image[b] and not {a, b} & {*left_out}
        ]
        mean = sum(values) / len(values)
        expected = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        assert given.sibling_std() == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="no image of 'all' has two captions"):
        with_failed(lookup, list(lookup.rows)).sibling_std()


def test_a_split_keeps_the_rows_of_the_corpus(small_project: Session) -> None:
    stages.encoding(small_project, "cider", "val").run()
    job = stages.lookup_export(small_project, "cider", "val")
    job.run()
    lookup, corpus = open_lookup(job.out), open_corpus(small_project)
    rows = np.array(corpus.splits["val"], np.int32)
    expected = stages.open_label(small_project, "cider", "val").block(corpus.references(corpus.image[rows]), rows)
    np.testing.assert_allclose(lookup.block(rows, dtype=np.float64), expected, rtol=0, atol=1e-9)
    assert lookup.caption_ids(rows) == [corpus.caption_ids[row] for row in rows]
    for outside in (rows[0] - 1, rows[-1] + 1):
        with pytest.raises(IndexError, match=f"row {outside} is not among rows {rows[0]} to {rows[-1]}"):
            lookup.block([rows[3], outside])
    with pytest.raises(ValueError, match="exported without neighbours"):
        lookup.neighbours(rows[:2], 1)


def test_refusals_name_the_row_the_id_or_the_number(small_project: Session) -> None:
    lookup = opened(small_project, "cbow")
    refused: list[Any] = [
        (ValueError, "list of corpus rows", lookup.block, wrong) for wrong in ([0.5], [[1, 2]], 3, "a")
    ]
    refused += [(ValueError, f"8 neighbours per caption; {k} were", lookup.neighbours, [0], k) for k in (0, 9)]
    refused += [(KeyError, "nowhere, 1, 2, 3, 4 and 2 more", lookup.rows_of, ["coco:ç0-0", "nowhere", *"123456"])]
    refused += [(TypeError, "image ids are strings or integers, found float", lookup.rows_of, [(1.5, 0)])]
    refused += [(KeyError, "image x", lookup.rows_of_images, ["x"]), (IndexError, "row -1 ", lookup.same_image, [-1])]
    refused += [(ValueError, r"float32 or float64 \(1, 1\)", partial(lookup.block, dtype=np.int32), [0])]
    refused += [(ValueError, r"float32 or float64 \(1, 1\)", partial(lookup.block, out=np.empty((1, 2))), [0])]
    for error, named, method, *given in refused:
        with pytest.raises(error, match=named):
            method(*given)


@pytest.mark.parametrize("label", ["cbow", "cider", "same_image"])
def test_labels_are_within_the_bounds_of_their_source(label: str, small_project: Session) -> None:
    """Check a source with narrower bounds than its scores."""
    lookup, every = opened(small_project, label), np.arange(90)
    narrow = Lookup(lookup.folder, replace(lookup.about, bounds=(0.125, 0.25)), lookup.arrays)
    for pooling in lookup.about.poolings:
        expected = lookup.block(every, pooling=pooling).clip(0.125, 0.25)
        np.testing.assert_array_equal(narrow.block(every, pooling=pooling), expected)
    if lookup.about.neighbours is not None:
        np.testing.assert_array_equal(narrow.neighbours(every)[1], lookup.neighbours(every)[1].clip(0.125, 0.25))
    if label == "cbow":
        np.testing.assert_allclose(narrow.to("cpu").block(every), narrow.block(every), atol=1e-6)


@pytest.mark.parametrize("stored", ["float16", "float32"])
def test_equal_captions_have_relevance_1(stored: str, small_project: Session) -> None:
    """Check random vectors, each of two captions, a vector of zeros and one of NaN, and losses of these labels."""
    lookup = opened(small_project, "cbow")
    half, width = len(lookup) // 2, 300
    vectors = np.random.default_rng(0).normal(size=(half, width))
    vectors = np.tile(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), (2, 1)).astype(stored)
    vectors[[3, half + 3]], vectors[[4, half + 4]] = 0, np.nan
    images = np.ones((len(lookup.arrays["indptr"]) - 1, width)).astype(stored)  # vectors of any length
    about = replace(lookup.about, kind="image_vectors", poolings=("first", "max", "mean", "set"))
    lookup = Lookup(lookup.folder, about, lookup.arrays | {"vectors": vectors[: len(lookup)], "image_vectors": images})
    rows, columns = np.arange(half), np.arange(half, 2 * half)
    apart = np.delete(rows, [3, 4])
    for dtype in (np.float32, np.float64):
        for block in (
            lookup.block(rows, columns, "first", dtype=dtype),
            lookup.block(columns, rows, "first", dtype=dtype),
            lookup.block(rows, pooling="first", dtype=dtype),
            lookup.to("cpu").block(rows, columns, "first").numpy(),
        ):
            assert block[np.isfinite(block)].max() <= 1
            assert block[apart, apart].min() >= 1 - 1e-6
            assert np.isnan(block[4]).all()
            assert not np.delete(block[3], 4).any()
    if stored == "float16":
        usable = lookup.block(apart, apart + half, "first", dtype=np.float64)
        wide = np.float64(vectors[apart])
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
        np.testing.assert_allclose(usable, np.minimum(wide @ wide.T, 1), atol=1e-12)
        for pooling in about.poolings:
            block = lookup.block(apart, pooling=pooling)
            np.testing.assert_allclose(lookup.to("cpu").block(apart, pooling=pooling), block, atol=1e-6)
    both = np.concatenate([apart[:20], apart[:20] + half])
    relevance = torch.from_numpy(lookup.block(both, pooling="first"))
    exact = torch.where(relevance > 0.999, 1, relevance)
    scores = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    kinds: list[Any] = [
        losses.TripletLoss(negatives="soft"),
        losses.MultiPositiveInfoNCE(positive=1),
        losses.BCLSLoss(),
    ]
    kinds += [losses.LadderLoss((1.0, 0.1)), losses.GradedSigmoidLoss(labels="cosine"), losses.SmoothNDCGLoss()]
    for loss in kinds:
        torch.testing.assert_close(loss(scores, relevance), loss(scores, exact), rtol=1e-5, atol=0)
    log_ratio = losses.LogRatioLoss()
    torch.testing.assert_close(log_ratio(scores, 1 - relevance), log_ratio(scores, 1 - exact), rtol=1e-2, atol=0)


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_neighbours_equal_a_sort(label: str, small_project: Session) -> None:
    lookup, relevance = opened(small_project, label), stages.open_label(small_project, label, "all")
    every, rows = np.arange(len(lookup), dtype=np.int32), sample_rows(lookup, 12, 8)
    neighbours, best, same = lookup.neighbours(rows, 5)
    for i, row in enumerate(rows):
        scores = relevance.pairs(References.single(np.full_like(every, row)), every, "first")
        order = sorted(set(every.tolist()) - {int(row)}, key=lambda c: (-scores[c], c))[:5]
        assert neighbours[i].tolist() == order
        np.testing.assert_allclose(best[i], scores[order], atol=1e-6)
        np.testing.assert_array_equal(same[i], lookup.same_image([row], order)[0])
    assert (neighbours.dtype, best.dtype, same.dtype) == (np.int32, np.float32, np.bool_)
    assert lookup.neighbours(rows)[0].shape == (12, 8)


def with_failed(lookup: Lookup, failed: list[int]) -> Lookup:
    """Return a lookup with some rows marked as failed and without neighbours."""
    arrays, sizes = lookup.arrays, np.diff(lookup.arrays["neighbours.indptr"])
    kept = ~np.isin(np.repeat(np.arange(len(sizes)), sizes), failed)
    sizes[failed] = 0
    changed = {"failed": np.array(failed, np.int32), "neighbours.indptr": np.concatenate([[0], np.cumsum(sizes)])}
    changed |= {name: arrays[name][kept] for name in ("neighbours.rows", "neighbours.scores")}
    return Lookup(lookup.folder, replace(lookup.about, failed=len(failed)), arrays | changed)


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_a_caption_without_an_encoding_is_refused_or_nan_on_request(label: str, small_project: Session) -> None:
    intact, failed = opened(small_project, label), [4, 60]
    lookup, every = with_failed(intact, failed), np.arange(len(intact))
    name = lookup.caption_ids([4])[0]
    poolings: Any = ("first", "mean")
    for pooling in poolings:
        expected = intact.block(every, pooling=pooling)
        expected[:, failed] = np.nan
        for row in every:
            if set(failed).intersection([row] if pooling == "first" else references_of(small_project, row)):
                expected[row] = np.nan
        np.testing.assert_allclose(lookup.block(every, pooling=pooling, missing="nan"), expected, atol=1e-6)
        usable = np.flatnonzero(np.isfinite(np.diagonal(expected)))
        assert lookup.captions(pooling).rows.tolist() == usable.tolist()
        block = lookup.block(usable, pooling=pooling)
        np.testing.assert_allclose(block, expected[np.ix_(usable, usable)], atol=1e-6)  # a product of another shape
        for rows, columns in (([4], usable[:2]), (usable[:2], [0, 4])):
            with pytest.raises(ValueError, match=rf"caption {name} \(row 4\) has no encoding"):
                lookup.block(rows, columns, pooling)
    with pytest.raises(ValueError, match=f"caption {name} has 0 neighbours, not 3"):
        lookup.neighbours([0, 4], 3)
    near, scores, same = lookup.neighbours([0, 4], 3, missing="nan")
    assert (near[1].tolist(), same[1].any(), np.isnan(scores[1]).all()) == ([-1] * 3, False, True)
    np.testing.assert_array_equal(near[0], intact.neighbours([0], 3)[0][0])
