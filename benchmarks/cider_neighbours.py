"""Exact CIDEr-D neighbours of captions among themselves, the top 100 of each, for growing numbers of captions.

    python benchmarks/cider_neighbours.py [--rows 20000 40000 80000 145000] [--mirror DIR]

The data are Flickr30K's training captions if the mirror has them, otherwise COCO's captions inside pycocoevalcap. Every
run has the document frequencies of its own captions. relabel's search is compared with three computations on samples,
whose times are scaled to all queries:

- the unpruned kernel of relabel, on a sample of queries;
- sparse_dot_topn on the same queries: an approximation, since it multiplies unclipped tf-idf cosines and has no length
  penalty;
- pycocoevalcap on a sample of the neighbour pairs.

CPU seconds are reported beside wall seconds, since other processes may use the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from cider import check, opened
from common import _inside, describe, machine, peak_gib, save, show

from relabel.core.runtime import Runtime, ignore_progress
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.corpus.readers.coco import read_karpathy
from relabel.corpus.tokenizers import lower_split
from relabel.sources.cider.maxscore import CiderFinder
from relabel.sources.cider.relevance import CiderRelevance
from relabel.sources.finder import Search
from relabel.store.workdir import Work

K = 100
T = TypeVar("T")
FLICKR = "flickr30k/dataset_flickr30k.json.gz"


def read_captions(mirror: Path | None, count: int) -> tuple[str, list[Caption]]:
    """Return the name of the data and its first `count` training captions."""
    if mirror is not None and (mirror / FLICKR).is_file():
        flickr = (c for c in read_karpathy(mirror / FLICKR, "flickr30k") if c.split == "train")
        return "Flickr30K train", [c for c, _ in zip(flickr, range(count), strict=False)]
    with zipfile.ZipFile(_inside("pycocoevalcap", "spice/spice-1.0.jar")) as jar:
        coco = [
            json.loads(jar.read(f"coco/annotations/captions_{part}2014.json"))["annotations"]
            for part in ("train", "val")
        ]
    notes = sorted(coco[0] + coco[1], key=lambda a: (a["image_id"], a["id"]))[:count]
    return "COCO", [Caption(f"coco:{a['id']}", f"coco:{a['image_id']}", "train", a["caption"]) for a in notes]


def clocked(work: Callable[[], T]) -> tuple[float, float, T]:
    """Return wall seconds, CPU seconds of all threads, and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


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
    right = csr_matrix(left.T)
    sample = left[queries]
    return lambda: sp_matmul_topn(sample, right, top_n=K + 1, threshold=0.0, n_threads=threads)


def by_pycocoevalcap(relevance: CiderRelevance, pairs: list[tuple[int, int]]) -> Callable[[], np.ndarray]:
    """Score single captions with the document frequencies of all images."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    corpus, scorer = relevance.corpus, CiderScorer(n=4, sigma=6.0)
    tokens = corpus.tokens or []
    for refs in corpus.references(range(len(corpus.image_ids))):
        scorer += (None, [tokens[r] for r in refs])
    scorer.compute_doc_freq()
    documents = len(scorer.crefs)
    scorer.crefs, scorer.ctest = [], []
    for query, candidate in pairs:
        scorer += (tokens[candidate], [tokens[query]])

    def work() -> np.ndarray:
        # The peer's compute_cider derives the number of documents from its own pairs.
        padded = scorer.crefs
        scorer.crefs = padded + [[]] * (documents - len(padded))
        try:
            return np.array(scorer.compute_cider())
        finally:
            scorer.crefs = padded

    return work


def measure(name: str, captions: list[Caption], args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    corpus = Corpus.from_captions(captions)
    corpus = corpus.with_tokens([" ".join(lower_split(text.rstrip(". "))) for text in corpus.texts])
    relevance = opened(corpus, folder)
    rows, runtime = np.arange(len(corpus), dtype=np.int32), Runtime(memory=args.memory << 20)
    single = References.single(rows)
    finder = CiderFinder(relevance, Search(single, rows, rows, K), "refs", runtime)
    compiles = CiderFinder(relevance, Search(single, rows, rows[:100], 1), "refs", runtime)
    compiles.find(Work(folder), range(1), ignore_progress)
    wall, cpu, (nearest, scores) = clocked(lambda: finder.find(Work(folder), range(len(rows)), ignore_progress))
    peak = peak_gib()

    rng = np.random.default_rng(0)
    sample = np.sort(rng.choice(rows, min(args.sample, len(rows)), replace=False)).astype(np.int32)
    scale = len(rows) / len(sample)
    captions_index = relevance.index(rows)
    _, plain_cpu, (plain, worth) = clocked(lambda: captions_index.topk(References.single(sample), K + 1))
    keep = plain != sample[:, None]
    keep[keep.all(axis=1), -1] = False  # the query is outside its own top k where its relevance to itself is 0
    ours, expected = (nearest[sample], scores[sample]), (plain[keep].reshape(-1, K), worth[keep].reshape(-1, K))
    if not all(np.array_equal(a, b) for a, b in zip(ours, expected, strict=True)):
        raise SystemExit("the finder and the unpruned kernel differ")
    line = {
        "data": name,
        "captions": len(rows),
        "seconds": wall,
        "cpu_seconds": cpu,
        "peak_gib": peak,
        "unpruned_cpu_seconds": plain_cpu * scale,
    }
    if importlib.util.find_spec("sparse_dot_topn"):
        work = by_sparse_dot_topn(relevance, sample, runtime.threads)
        sparse_wall, sparse_cpu, product = clocked(work)
        line |= {"sparse_dot_topn_seconds": sparse_wall * scale, "sparse_dot_topn_cpu_seconds": sparse_cpu * scale}
        recalls = [
            len(np.intersect1d(product.indices[product.indptr[i] : product.indptr[i + 1]], nearest[q])) / K
            for i, q in enumerate(sample)
        ]
        line["sparse_dot_topn_recall"] = float(np.mean(recalls))
    if importlib.util.find_spec("pycocoevalcap"):
        few = [(int(q), int(nearest[q, 0])) for q in sample]
        _, peer_cpu, theirs = clocked(by_pycocoevalcap(relevance, few))
        check("pycocoevalcap", np.array([scores[q, 0] for q, _ in few]), theirs)
        line["pycocoevalcap_pairs_per_cpu_second"] = len(few) / peer_cpu
        line["relabel_pairs_per_cpu_second"] = len(rows) ** 2 / cpu
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mirror = os.environ.get("RELABEL_MIRROR")
    parser.add_argument("--mirror", type=Path, default=Path(mirror) if mirror else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 40_000, 80_000, 145_000])
    parser.add_argument("--sample", type=int, default=2000, help="queries of the peers")
    parser.add_argument("--memory", type=int, default=4096, help="MiB")
    args = parser.parse_args()
    name, captions = read_captions(args.mirror, max(args.rows))
    with tempfile.TemporaryDirectory() as scratch:
        lines = [measure(name, captions[:count], args, Path(scratch) / str(count)) for count in args.rows]
    title = f"Exact CIDEr-D top {K} of captions against themselves: {name}, lower-case words"
    head = ["captions", "seconds", "CPU s", "unpruned CPU s", "sparse_dot_topn CPU s", "recall", "peak GiB"]
    columns = ["captions", "seconds", "cpu_seconds", "unpruned_cpu_seconds", "sparse_dot_topn_cpu_seconds"]
    columns += ["sparse_dot_topn_recall", "peak_gib"]
    show(title, head, [[f"{line.get(c, float('nan')):,.{2 * (c != 'captions')}f}" for c in columns] for line in lines])
    facts = machine("numba", "numpy", "scipy")
    print(describe(facts))
    print(save("cider_neighbours", {"title": title, "sample": args.sample, "machine": facts, "rows": lines}))


if __name__ == "__main__":
    main()
