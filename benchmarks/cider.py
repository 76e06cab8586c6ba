"""CIDEr-D of every COCO test image's references against all 25,000 test captions, with the top 100 of each image.

    python benchmarks/cider.py [--peer DIR] [--tokenizer lower_split]

The search covers 125 million pairs. The peers are pycocoevalcap on two samples of 5,000 pairs with the document
frequencies of the complete split (counting of n-grams is not timed), the same product by sparse_dot_topn, and
ncs_metric on 100 images (`--peer` names a clone of furkanbiten/ncs_metric). The benchmark stops if a peer's score
differs from relabel's by more than 1e-9.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import Table, agree, alternate, coco_captions, encoded, options

from relabel.core.runtime import Runtime, ignore_progress
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.finder import Search
from relabel.store.workdir import Work

K = 100


def by_pycocoevalcap(relevance: CiderRelevance, tokens: list[str], candidates: np.ndarray) -> Callable[[], np.ndarray]:
    """Score one candidate per image, so that the documents are all images."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    scorer = CiderScorer(n=4, sigma=6.0)
    for m, refs in enumerate(relevance.corpus.references(range(len(candidates)))):
        scorer += (tokens[candidates[m]], [tokens[r] for r in refs])
    scorer.compute_doc_freq()
    return lambda: np.array(scorer.compute_cider())


def by_sparse_dot_topn(relevance: CiderRelevance, threads: int) -> np.ndarray:
    """Multiply clipped counts as (n-gram, level) columns, one sparse product per caption length; merge the top k."""
    from scipy.sparse import csr_matrix
    from sparse_dot_topn import sp_matmul_topn, zip_sp_matmul_topn

    features, weighting = relevance.features, relevance.weighting
    sets = relevance.corpus.references(range(len(relevance.corpus.image_ids)))
    entry = np.repeat(np.arange(len(features.ids)), features.counts)
    level = np.arange(len(entry)) - np.repeat(np.cumsum(features.counts) - features.counts, features.counts)
    row = np.repeat(np.arange(len(features.bigrams)), np.diff(features.indptr))[entry]
    order = np.searchsorted(weighting.starts, features.ids[entry], side="right") - 1
    levels = int(level.max()) + 1
    _, column = np.unique(features.ids[entry].astype(np.int64) * levels + level, return_inverse=True)
    inverse = features.inverse[row, order]
    owner = np.repeat(np.arange(len(sets)), np.diff(sets.indptr))  # captions are in row order: owner[r] is r's image
    weight = weighting.idf[features.ids[entry]] ** 2 * features.counts[entry] * inverse
    shape = (len(sets), int(column.max()) + 1)
    cells, place = np.unique(owner[row].astype(np.int64) * shape[1] + column, return_inverse=True)
    indptr = np.searchsorted(cells, np.arange(len(sets) + 1) * shape[1])
    products = []
    for length in np.unique(features.bigrams):
        rows_of_length = np.flatnonzero(features.bigrams == length)
        gauss = weighting.gauss[np.abs(features.bigrams - length)]
        left = csr_matrix((np.bincount(place, weight * gauss[row]), cells % shape[1], indptr), shape=shape)
        mine = np.flatnonzero(features.bigrams[row] == length)
        local = np.searchsorted(rows_of_length, row[mine])
        right = csr_matrix((inverse[mine], (column[mine], local)), shape=(shape[1], len(rows_of_length)))
        products.append(sp_matmul_topn(left, right, top_n=K, threshold=0.0, n_threads=threads))
    best = zip_sp_matmul_topn(K, products)
    scores = np.zeros((len(sets), K))
    image = np.repeat(np.arange(len(sets)), np.diff(best.indptr))
    scores[image, np.arange(len(best.data)) - best.indptr[image]] = best.data * 10 / 20
    return -np.sort(-scores, axis=1)


def by_ncs_metric(folder: Path, relevance: CiderRelevance, tokens: list[str]) -> np.ndarray:
    """Compute the (captions, images) scores of a corpus with the peer's all-pairs function."""
    sys.path.append(str(folder))
    from custom_cider import CiderScorer  # type: ignore[import-not-found]

    scorer = CiderScorer()
    for refs in relevance.corpus.references(range(len(relevance.corpus.image_ids))):
        scorer += (None, [tokens[r] for r in refs])
    return np.asarray(scorer.compute_fast())


def main() -> None:
    args = options(__doc__, captions=25_000, tokenizer="ptb", repeats=5)
    os.environ["TQDM_DISABLE"] = "1"  # ncs_metric prints progress bars
    with tempfile.TemporaryDirectory() as folder:
        captions = coco_captions(args.captions)
        relevance: Any = encoded(Path(folder) / "all", captions, "cider", args.tokenizer, args.threads)
        small: Any = encoded(Path(folder) / "small", captions[:500], "cider", args.tokenizer, args.threads)
    # Those of the encoding, which are in memory: the first captions are the small corpus.
    tokens = relevance.corpus.words(args.tokenizer, range(len(relevance.corpus)))
    images, rows = len(relevance.corpus.image_ids), np.arange(len(relevance.corpus), dtype=np.int32)
    sets, rng = relevance.corpus.references(range(images)), np.random.default_rng(0)
    asked = Search(sets, np.full(images, -1, np.int32), rows, K)

    def search() -> tuple[np.ndarray, np.ndarray]:
        finder = relevance.finder(asked, None, Runtime(threads=args.threads))
        return finder.find(Work(Path()), range(images), ignore_progress)  # type: ignore[no-any-return]

    nearest, best = search()  # the first call compiles
    rank, chance = rng.integers(0, K, images), rng.integers(0, len(rows), images, dtype=np.int32)
    top = nearest[np.arange(images), rank]
    agree("pairs", best[np.arange(images), rank], relevance.pairs(sets, top), 0.0)

    peers: dict[str, tuple[Callable[[], Any], np.ndarray, int]] = {
        f"pycocoevalcap, {name}": (by_pycocoevalcap(relevance, tokens, each), relevance.pairs(sets, each), images)
        for name, each in {"of the top 100": top, "at random": chance}.items()
    }
    peers["sparse_dot_topn"] = (lambda: by_sparse_dot_topn(relevance, args.threads), best, images * len(rows))
    if args.peer:
        block = small.block(small.corpus.references(range(100)), rows[:500]).T
        peers["ncs_metric"] = (lambda: by_ncs_metric(args.peer, small, tokens), block, block.size)
    works = {"relabel": search, **{name: peer[0] for name, peer in peers.items()}}
    costs = alternate(works, args.repeats)
    table = Table(f"CIDEr-D of {images:,} images and {len(rows):,} captions, top {K}, {args.threads} threads")
    ours = costs["relabel"]
    table.add("the search", "s", ours.wall)
    for name, (_, expected, pairs) in peers.items():
        apart = agree(name, expected, costs[name].result, 1e-9)
        rate = images * len(rows) / ours.wall
        table.add("pairs", "pairs/s", rate, name, pairs / costs[name].wall, seconds=costs[name].wall, apart=apart)
    table.end("cider", args.save, "numba", "numpy", "pycocoevalcap", "scipy", "sparse-dot-topn")


if __name__ == "__main__":
    main()
