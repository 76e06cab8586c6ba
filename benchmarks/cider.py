"""CIDEr-D of every COCO test image's references against all 25,000 test captions, with the top 100 of each image.

    python benchmarks/cider.py [--peer DIR]

The search covers 125 million pairs. The peers are pycocoevalcap on two samples of 5,000 pairs with the document
frequencies of the complete split, the same product by sparse_dot_topn, and ncs_metric on 100 images (`--peer` names a
clone of furkanbiten/ncs_metric). Index construction is timed on both sides. The benchmark stops if a peer's score
differs from relabel's by more than 1e-9.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import coco_test_captions, describe, machine, peak_gib, rounds, save, show, timed

from relabel.core.runtime import SILENT, Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.base import OpenEncoding
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.cider.relevance import CiderRelevance
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel.store.tasks import make_all

K = 100
TOLERANCE = 1e-9


def read_corpus(tokenizer: str) -> Corpus:
    captions = [Caption(f"coco:{c}", f"coco:{i}", "test", text) for c, i, text in coco_test_captions()]
    corpus = Corpus.from_captions(captions)
    if tokenizer == "ptb":
        from relabel.corpus.tokenizers import tokenize

        return corpus.with_tokens(tokenize(corpus.texts, Runtime()))
    return corpus.with_tokens([" ".join(text.lower().split()) for text in corpus.texts])


def opened(corpus: Corpus, folder: Path) -> CiderRelevance:
    source, rows, runtime = Cider(CiderParams()), range(len(corpus)), Runtime()

    def fill(work: Any) -> None:
        work.facts["rows"] = [rows.start, rows.stop]
        make_all(source.tasks(corpus, rows, 50_000, runtime), work, SILENT)

    artefact = ArtefactSpec(
        "encoding", "cider", source.fingerprint_params(corpus, rows, runtime), {"corpus": corpus.digest}
    )
    return source.open(OpenEncoding(corpus, folder, build(folder, artefact, fill)[0], runtime))


def check(name: str, ours: np.ndarray, theirs: np.ndarray) -> float:
    worst = float(np.abs(ours - theirs).max())
    if not worst <= TOLERANCE:
        raise SystemExit(f"{name} and relabel differ by {worst:.3g}")
    return worst


def by_pycocoevalcap(relevance: CiderRelevance, candidates: np.ndarray) -> Callable[[], np.ndarray]:
    """Score one candidate per image, so that the documents are all images; n-gram counting is not timed."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    corpus, scorer = relevance.corpus, CiderScorer(n=4, sigma=6.0)
    tokens = corpus.tokens or []
    for m, refs in enumerate(corpus.references(range(len(candidates)))):
        scorer += (tokens[candidates[m]], [tokens[r] for r in refs])
    scorer.compute_doc_freq()
    return lambda: np.array(scorer.compute_cider())


def by_sparse_dot_topn(relevance: CiderRelevance, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Multiply clipped counts as (n-gram, level) columns, one sparse product per caption length; merge the top k."""
    from scipy.sparse import csr_matrix
    from sparse_dot_topn import sp_matmul_topn, zip_sp_matmul_topn

    features, weighting = relevance.features, relevance.weighting
    sets = relevance.corpus.references(range(len(relevance.corpus.image_ids)))
    entry = np.repeat(np.arange(len(features.ids)), features.counts)
    level = np.arange(len(entry)) - np.repeat(np.cumsum(features.counts) - features.counts, features.counts)
    row = np.repeat(np.arange(len(features.bigrams)), np.diff(features.indptr))[entry]
    order = np.searchsorted(weighting.starts, features.ids[entry], side="right") - 1
    width = int(level.max()) + 1
    _, column = np.unique(features.ids[entry].astype(np.int64) * width + level, return_inverse=True)
    inverse = features.inverse[row, order]
    owner = np.repeat(np.arange(len(sets)), np.diff(sets.indptr))  # captions are in row order: owner[r] is r's image
    weight = weighting.idf[features.ids[entry]] ** 2 * features.counts[entry] * inverse
    shape = (len(sets), int(column.max()) + 1)
    cells, place = np.unique(owner[row].astype(np.int64) * shape[1] + column, return_inverse=True)
    indptr = np.searchsorted(cells, np.arange(len(sets) + 1) * shape[1])
    products, captions = [], []
    for length in np.unique(features.bigrams):
        rows_of_length = np.flatnonzero(features.bigrams == length)
        gauss = weighting.gauss[np.abs(features.bigrams - length)]
        left = csr_matrix((np.bincount(place, weight * gauss[row]), cells % shape[1], indptr), shape=shape)
        mine = np.flatnonzero(features.bigrams[row] == length)
        local = np.searchsorted(rows_of_length, row[mine])
        right = csr_matrix((inverse[mine], (column[mine], local)), shape=(shape[1], len(rows_of_length)))
        products.append(sp_matmul_topn(left, right, top_n=K, threshold=0.0, n_threads=threads))
        captions.append(rows_of_length)
    best = zip_sp_matmul_topn(K, products)
    scores = np.zeros((len(sets), K))
    image = np.repeat(np.arange(len(sets)), np.diff(best.indptr))
    scores[image, np.arange(len(best.data)) - best.indptr[image]] = best.data * 10 / 20
    return np.concatenate(captions)[best.indices], -np.sort(-scores, axis=1)


def by_ncs_metric(folder: Path, corpus: Corpus) -> Callable[[], np.ndarray]:
    """Compute the (captions, images) scores of a corpus with the peer's all-pairs function."""
    spec = importlib.util.spec_from_file_location("custom_cider", folder / "custom_cider.py")
    if spec is None or spec.loader is None or not (folder / "custom_cider.py").is_file():
        raise SystemExit(f"no custom_cider.py in {folder}")
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    tokens = corpus.tokens or []

    def work() -> np.ndarray:
        scorer = peer.CiderScorer()
        for refs in corpus.references(range(len(corpus.image_ids))):
            scorer += (None, [tokens[r] for r in refs])
        return np.asarray(scorer.compute_fast())

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="a clone of furkanbiten/ncs_metric")
    parser.add_argument("--tokenizer", choices=["ptb", "lower_split"], default="ptb", help="ptb needs Java")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["NUMBA_CACHE_DIR"] = f"{scratch}/numba"  # an empty cache: the first call compiles
        os.environ["TQDM_DISABLE"] = "1"  # ncs_metric prints progress bars
        run(args, Path(scratch))


def run(args: argparse.Namespace, scratch: Path) -> None:
    corpus = read_corpus(args.tokenizer)
    encode_seconds, relevance = timed(lambda: opened(corpus, scratch / "encoding"), 1)
    images, rows, threads = len(corpus.image_ids), np.arange(len(corpus), dtype=np.int32), relevance.threads
    sets = corpus.references(range(images))
    first, _ = timed(lambda: relevance.topk(sets.take(np.arange(1)), rows, K), 1)
    nearest, best = relevance.topk(sets, rows, K)
    peak = peak_gib()

    rng = np.random.default_rng(0)
    rank = rng.integers(0, K, images)
    top, random_rows = nearest[np.arange(images), rank], rng.integers(0, len(corpus), images, dtype=np.int32)
    single = replace(relevance, threads=1)
    ours, ours_alone = f"relabel, {threads} threads", "relabel, 1 thread"
    top_peer, some_peer, sparse = "pycocoevalcap, of the top 100", "pycocoevalcap, at random", "sparse_dot_topn"
    works: dict[str, Callable[[], Any]] = {
        ours: lambda: relevance.topk(sets, rows, K)[1],
        ours_alone: lambda: single.topk(sets, rows, K)[1],
        top_peer: by_pycocoevalcap(relevance, top),
        some_peer: by_pycocoevalcap(relevance, random_rows),
    }
    expected = {ours_alone: best, top_peer: relevance.pairs(sets, top), some_peer: relevance.pairs(sets, random_rows)}
    pairs = {ours: images * len(corpus), ours_alone: images * len(corpus), top_peer: images, some_peer: images}
    check("topk", best[np.arange(images), rank], expected[top_peer])
    if importlib.util.find_spec("sparse_dot_topn"):
        works[sparse] = lambda: by_sparse_dot_topn(relevance, threads)[1]
        expected[sparse], pairs[sparse] = best, images * len(corpus)
    if args.peer:
        small = Corpus.from_table(corpus.table.slice(0, 500))
        opened_small = opened(small, scratch / "small")
        works["ncs_metric"] = by_ncs_metric(args.peer, small)
        expected["ncs_metric"] = opened_small.block(small.references(range(100)), rows[:500]).T
        pairs["ncs_metric"] = 50_000

    timings = rounds(works, args.repeats)
    seconds = {name: statistics.median(times) for name, (times, _) in timings.items()}
    rates = {name: pairs[name] / seconds[name] for name in works}
    differences = {name: check(name, expected[name], timings[name][1]) for name in expected}
    judged = sets.take(np.arange(44_833) % images)
    extra = {
        "encode and open, s": encode_seconds,
        "first call (compiles), s": first,
        "peak memory after the first run, GiB": peak,
        "44,833 pairs, s": timed(lambda: relevance.pairs(judged, np.resize(rows, len(judged))), 5)[0],
        "block 128 x 128, s": timed(lambda: relevance.block(sets.take(np.arange(128)), rows[:128]), 50)[0],
    }
    table = [
        [
            name,
            f"{pairs[name]:,}",
            f"{seconds[name]:.2f}",
            f"{rates[name]:,.0f}",
            f"{rates[ours] / rates[name]:,.1f}",
            f"{differences[name]:.0e}" if name in differences else "",
        ]
        for name in works
    ]
    title = f"CIDEr-D, {images:,} reference sets x {len(corpus):,} captions, top {K}, tokens {args.tokenizer}"
    show(title, ["", "pairs", "seconds", "pairs/s", "speed-up of relabel", "largest difference"], table)
    print("\n" + "\n".join(f"{name}: {value:.4g}" for name, value in extra.items()))
    facts = machine("numba", "numpy", "pycocoevalcap", "scipy", "sparse-dot-topn")
    print(f"{describe(facts)}\nmedians of {args.repeats} rounds")
    lines = [
        {
            "name": name,
            "pairs": pairs[name],
            "seconds": seconds[name],
            "all_seconds": timings[name][0],
            "pairs_per_second": rates[name],
            "relabel_is_x_faster": rates[ours] / rates[name],
            "largest_difference": differences.get(name),
        }
        for name in works
    ]
    print(save("cider", {"title": title, "rounds": args.repeats, "machine": facts, "rows": lines, "also": extra}))


if __name__ == "__main__":
    main()
