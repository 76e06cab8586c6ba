"""Exact CIDEr-D neighbours of captions among themselves, the top 100 of each, for growing numbers of captions.

    python benchmarks/cider_neighbours.py [--rows 20000 40000 80000 145000]

The data are Flickr30K's training captions in the folder of $RELABEL_MIRROR, or COCO's test captions. relabel's search
is compared with sparse_dot_topn on a sample of queries, scaled to all. That product is an approximation, since it
multiplies unclipped tf-idf cosines and has no length penalty: `recall` is the share of the exact top 100 that it
finds. The scores of the nearest captions of these queries must be pycocoevalcap's.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import MIRROR, Table, agree, clock, coco_captions, encoded, options, peak_gib

from relabel.core.runtime import Runtime, ignore_progress
from relabel.corpus import References
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.cider.search import CiderFinder
from relabel.sources.finder import Search
from relabel.store.workdir import Work

K = 100


def read_captions(count: int) -> list[tuple[str, str, str]]:
    """Return Flickr30K's first training captions, or COCO's test captions."""
    path = MIRROR / "flickr30k/dataset_flickr30k.json.gz"
    if not path.is_file():
        return coco_captions(count)
    images = json.loads(gzip.decompress(path.read_bytes()))["images"]
    sentences = [s for image in images if image["split"] == "train" for s in image["sentences"]]
    return [(str(s["sentid"]), str(s["imgid"]), s["raw"]) for s in sentences[:count]]


def by_sparse_dot_topn(relevance: CiderRelevance, queries: np.ndarray, threads: int) -> Callable[[], Any]:
    """Multiply unclipped cosines of n-grams of all orders; the transposed matrix is built beforehand."""
    from scipy.sparse import csr_matrix
    from sparse_dot_topn import sp_matmul_topn

    features, weighting = relevance.features, relevance.weighting
    owner = np.repeat(np.arange(len(features.bigrams)), np.diff(features.indptr))
    order = np.searchsorted(weighting.starts, features.ids, side="right") - 1
    values = features.counts * weighting.idf[features.ids] * features.inverse[owner, order]
    shape = (len(features.bigrams), int(weighting.starts[-1]))
    left = csr_matrix((values, features.ids, features.indptr), shape=shape)
    right, sample = csr_matrix(left.T), left[queries]
    return lambda: sp_matmul_topn(sample, right, top_n=K + 1, threshold=0.0, n_threads=threads)


def by_pycocoevalcap(relevance: CiderRelevance, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Score single captions with the document frequencies of all images."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    corpus, scorer = relevance.corpus, CiderScorer(n=4, sigma=6.0)
    tokens = corpus.words("lower_split", range(len(corpus)))
    for refs in corpus.references(range(len(corpus.image_ids))):
        scorer += (None, [tokens[r] for r in refs])
    scorer.compute_doc_freq()
    documents = len(scorer.crefs)
    scorer.crefs, scorer.ctest = [], []
    for query, candidate in zip(queries, candidates, strict=True):
        scorer += (tokens[candidate], [tokens[query]])
    # The peer's compute_cider derives the number of documents from its own pairs.
    scorer.crefs += [[]] * (documents - len(scorer.crefs))
    return np.array(scorer.compute_cider())


def measure(table: Table, captions: list[tuple[str, str, str]], args: Any, folder: Path) -> None:
    relevance: Any = encoded(folder, captions, "cider", "lower_split", args.threads)
    rows, runtime = np.arange(len(captions), dtype=np.int32), Runtime(threads=args.threads)
    every = References.single(rows)
    work = Work(folder)
    CiderFinder(relevance, Search(every, rows, rows[:100], 1), "set", runtime).find(work, range(1), ignore_progress)
    finder = CiderFinder(relevance, Search(every, rows, rows, K), "set", runtime)
    ours = clock(lambda: finder.find(work, range(len(rows)), ignore_progress))
    peak = peak_gib()
    nearest, scores = ours.result

    sample = np.sort(np.random.default_rng(0).choice(rows, min(args.sample, len(rows)), replace=False))
    agree("pycocoevalcap", scores[sample, 0], by_pycocoevalcap(relevance, sample, nearest[sample, 0]), 1e-9)
    product = clock(by_sparse_dot_topn(relevance, sample, args.threads))
    lists = np.split(product.result.indices, product.result.indptr[1:-1])
    recall = np.mean([len(np.intersect1d(a, nearest[q])) / K for a, q in zip(lists, sample, strict=True)])
    peer, scaled = "sparse_dot_topn", product.cpu * len(rows) / len(sample)
    more = {"seconds": ours.wall, "peak GiB": peak, "recall": float(recall)}
    table.add(f"{len(rows):,} captions", "CPU s", ours.cpu, peer, scaled, **more)


def main() -> None:
    args = options(__doc__, rows=[20_000, 40_000, 80_000, 145_000], sample=2000)
    captions = read_captions(max(args.rows))
    table = Table(f"Exact CIDEr-D top {K} of captions against themselves, lower-case words")
    with tempfile.TemporaryDirectory() as folder:
        for count in args.rows:
            measure(table, captions[:count], args, Path(folder) / str(count))
    table.end("cider_neighbours", args.save, "numba", "numpy", "scipy", "sparse-dot-topn")


if __name__ == "__main__":
    main()
