"""Contract: a label ranks ECCV Caption's galleries by r(V_i, T_j) in both directions, with the documented ties and
counts of positives. Figures equal those of eccv_caption's code on its queries, same_image has its known figures, and a
gate re-ranks its best candidates.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.judge.conftest import Odd

from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.judge.eccv import DIRECTIONS, Direction, Eccv, Gate, Queries, Ranker, read_eccv, score_eccv
from relabel.judge.report import Record
from relabel.sources.cosine import VectorRelevance
from relabel.sources.same_image import SameImageRelevance
from relabel.store.workdir import Work


def read_table(work: Work, direction: Direction) -> pa.Table:
    return pq.read_table(work.folder / f"{direction}-00000-of-00001.parquet")


@pytest.fixture(scope="module")
def eccv(cxc_test: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Eccv:
    pytest.importorskip("eccv_caption")
    return read_eccv(cxc_test, tmp_path_factory.mktemp("data"))


@pytest.fixture
def tiny(few: Corpus) -> Eccv:
    """Return 40 images and their captions; a query has its own and some drawn positives, and one lacks one."""
    generator = np.random.default_rng(3)
    images = np.arange(10, 50, dtype=np.int32)
    captions = np.sort(few.references(images).rows)
    queries = {}
    for direction, query_ids, items in (("i2t", images, len(captions)), ("t2i", captions, len(images))):
        index = np.sort(generator.choice(query_ids, 9, replace=False))
        own = (few.image[captions] == q if direction == "i2t" else images == few.image[q] for q in index)
        drawn = (generator.choice(items, generator.integers(1, 6), replace=False) for _ in index)
        positives = [np.union1d(np.flatnonzero(of), some) for of, some in zip(own, drawn, strict=True)]
        count = np.array([len(f) for f in positives]) + (np.arange(9) == 4)
        queries[direction] = Queries([f"q{i}" for i in index], index, positives, count)
    return Eccv(few, captions, images, queries)


def figures(records: list[Record]) -> dict[str, list[float]]:
    return {r["subset"]: [r[name] for name in ("map_at_r", "r_precision", "r_at_1")] for r in records}


@pytest.mark.slow
def test_same_image_equals_the_published_pairwise_figures(eccv: Eccv, cxc_test: Corpus, work: Work) -> None:
    relevance = SameImageRelevance(cxc_test, range(len(cxc_test)), "max")
    records = score_eccv(Ranker(relevance, 1), eccv, work)
    rows = figures(records)
    assert rows["i2t"][:2] == pytest.approx([31.27, 31.30], abs=0.1)
    assert rows["t2i"][:2] == pytest.approx([13.59, 13.59], abs=0.1)
    assert [(r["task"], r["ties"], r["gate"], r["n"]) for r in records] == [
        ("eccv", "pessimistic", None, 1261), ("eccv", "pessimistic", None, 1332)
    ]  # fmt: skip
    # The figures are means over the queries.
    for direction in DIRECTIONS:
        table = read_table(work, direction)
        assert rows[direction][0] == pytest.approx(100 * table["ap_at_r"].to_numpy().mean())


@pytest.mark.slow
def test_equal_to_eccv_caption_without_ties(eccv: Eccv, cxc_test: Corpus, work: Work) -> None:
    """Compare random 16-d vectors, close within an image, pooled by mean; eccv_caption takes ranked lists of ids."""
    metrics = pytest.importorskip("eccv_caption").Metrics()
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(5000, 16))[cxc_test.image] + 0.7 * generator.normal(size=(25_000, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    relevance = VectorRelevance(cxc_test, range(25_000), "mean", vectors, lambda _: vectors[0])
    # Ranks of rounded scores with ties broken by row: eccv_caption defines no rule for ties.
    rows = figures(score_eccv(Ranker(relevance, 1), eccv, work, ties="row"))
    ranked: dict[str, dict[int, list[int]]] = {}
    for direction in DIRECTIONS:
        queries, gallery = eccv.queries[direction], eccv.gallery(direction)
        names = cxc_test.caption_ids if direction == "i2t" else cxc_test.image_ids
        query_ids = queries.index if direction == "i2t" else eccv.images
        block = relevance.block(cxc_test.references(query_ids), gallery if direction == "i2t" else queries.index)
        scores = np.round((block if direction == "i2t" else block.T) * 1e5)
        best = np.sort(np.argpartition(-scores, 200, axis=1)[:, :200])
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable"), 1)
        ranked[direction] = {
            int(q[5:]): [int(names[gallery[j]][5:]) for j in row] for q, row in zip(queries.ids, best, strict=True)
        }
    theirs = metrics.compute_all_metrics(
        ranked["i2t"], ranked["t2i"], ("eccv_map_at_r", "eccv_rprecision", "eccv_r1"), (1,), False
    )
    for direction in DIRECTIONS:
        expected = [100 * theirs[name][direction] for name in ("eccv_map_at_r", "eccv_rprecision", "eccv_r1")]
        assert rows[direction] == pytest.approx(expected, abs=1e-9)
        assert 5 < expected[0] < 60


def by_hand(corpus: Corpus, relevance: Odd, eccv: Eccv, direction: Direction, top: int | None) -> list[list[float]]:
    """Compute the three figures of every query by sorting. The gate is the same label, pooled by mean."""
    queries, gallery, out = eccv.queries[direction], eccv.gallery(direction), []
    everything = range(len(gallery))

    def score(q: int, j: int, pooling: Pooling) -> tuple[float, bool]:
        """Return the negated score of an item in steps, and whether it is of another image than the query."""
        image, caption = (queries.index[q], gallery[j]) if direction == "i2t" else (gallery[j], queries.index[q])
        r = relevance.pairs(corpus.references([image]), np.array([caption], np.int32), pooling)[0]
        return -np.round(r * 1e5), bool(corpus.image[caption] != image)

    def order(q: int, items: Iterable[int], pooling: Pooling) -> list[int]:
        return sorted(items, key=lambda j: (*score(q, j, pooling), j in queries.items[q], j))

    for q in range(len(queries)):
        if top is None:
            ranked = order(q, everything, "max")
        else:
            # The gate orders by (-score, own, column); ties of the remaining items are pessimistic.
            coarse = sorted(everything, key=lambda j, q=q: (*score(q, j, "mean"), j))[:top]  # type: ignore[misc]
            ranked = order(q, coarse, "max") + order(q, {*everything} - {*coarse}, "mean")
        hits, r = [j in queries.items[q] for j in ranked], int(queries.positives[q])
        ap = sum(sum(hits[:k]) / k for k in range(1, r + 1) if hits[k - 1]) / r
        out.append([ap, sum(hits[:r]) / r, float(hits[0])])
    return out


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("top", [None, 3, 20, 10_000])
def test_equal_to_plain_sorting(few: Corpus, tiny: Eccv, work: Work, direction: Direction, top: int | None) -> None:
    relevance, pooled = Odd(few, range(len(few))), Odd(few, range(len(few)), "mean")
    gate = None if top is None else Gate("mean", Ranker(pooled, 1), top)
    score_eccv(Ranker(relevance, 1), tiny, work, gate=gate)
    table = read_table(work, direction)
    assert table["query"].to_pylist() == tiny.queries[direction].ids
    assert table["positives"].to_pylist() == tiny.queries[direction].positives.tolist()
    rows = np.stack([table[c].to_numpy() for c in ("ap_at_r", "r_precision", "r_at_1")], axis=1)
    assert rows == pytest.approx(np.array(by_hand(few, relevance, tiny, direction, top)), abs=1e-12)
