"""Exact neighbours by word mover's distance, compared with POT's exact solver on every pair.

    python benchmarks/wmd.py --captions 2000 [--vectors FILE]

The captions are COCO's test captions in lower-case words without function words. Both sides get the same bags and
word vectors (GloVe in the folder of $RELABEL_MIRROR by default). The peer is `ot.emd2` on all words of a pair; its
costs are read from a matrix of distances between all words, whose computation is not counted. It answers a sample of
the queries. Its distances and k nearest must agree with relabel's within 1e-9. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ot
from harness import MIRROR, Table, agree, clock, coco_captions, encoded, options

from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.sources.finder import Search
from relabel.sources.wmd.relevance import WmdRelevance

GLOVE = MIRROR / "vectors" / "glove.6B.100d.captions-vocabulary.txt.gz"


def by_pot(relevance: WmdRelevance, between: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the distances of pairs, one `ot.emd2` call per pair."""
    bags, out = relevance.bags, np.full(len(left), np.inf)
    spans = [slice(a, b) for a, b in zip(bags.indptr[:-1].tolist(), bags.indptr[1:].tolist(), strict=True)]
    words = [bags.words[s] for s in spans]
    shares = [bags.counts[s] / max(1, int(bags.totals[i])) for i, s in enumerate(spans)]
    for p, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        if len(words[a]) and len(words[b]):
            out[p] = ot.emd2(shares[a], shares[b], between[np.ix_(words[a], words[b])])
    return out


def neighbours(table: Table, relevance: WmdRelevance, between: np.ndarray, args: Any, of: str) -> None:
    """Time the search for captions, or for images under the set distance; compare a sample of it with POT."""
    rows = np.arange(len(relevance.rows), dtype=np.int32)
    if of == "captions":
        queries, exclude, pooling = References.single(rows), rows, "max"
    else:
        queries = relevance.corpus.references(range(len(relevance.corpus.image_ids)))
        exclude, pooling = np.full(len(queries), -1, np.int32), "set"
    sample = np.random.default_rng(0).choice(len(queries), min(args.queries, len(queries)), replace=False)
    search = Search(queries.take(sample), exclude[sample], rows, args.k)
    ours = []
    for _ in range(args.repeats):
        finder: Any = relevance.finder(search, pooling, Runtime(threads=1))  # type: ignore[arg-type]
        shared = clock(lambda f=finder: f._weights)  # type: ignore[misc]  # made once for all queries
        each = clock(lambda f=finder: f.find(None, range(len(sample)), lambda _: None))  # type: ignore[misc]
        ours.append(each.cpu / len(sample) + shared.cpu / len(queries))
    theirs, worst = [], 0.0
    for q in range(min(args.few if of == "captions" else max(1, args.few // 5), len(sample))):
        refs = search.queries[q]
        left, right = np.repeat(refs, len(rows)), np.tile(rows, len(refs))
        peer = clock(lambda a=left, b=right: by_pot(relevance, between, a, b))  # type: ignore[misc]
        theirs.append(peer.cpu)
        cells = peer.result.reshape(len(refs), -1)
        apart = cells[0] if pooling == "max" else cells.sum(axis=0) + cells.min(axis=0)
        if search.exclude[q] >= 0:
            apart[search.exclude[q]] = np.inf
        singles = References.single(each.result[0][q])
        mine = relevance.distances(search.queries.take(np.full(args.k, q)), singles, pooling)  # type: ignore[arg-type]
        worst = max(worst, agree(f"query {q}", mine, np.sort(apart)[: args.k], 1e-9))
    milliseconds = [1000 * statistics.median(times) for times in (ours, theirs)]
    table.add(f"{of}, a query", "ms", milliseconds[0], "POT on every pair", milliseconds[1], apart=worst)


def main() -> None:
    args = options(__doc__, vectors=GLOVE, captions=25_000, queries=1000, few=5, k=100)
    with tempfile.TemporaryDirectory() as folder:
        captions = coco_captions(args.captions)
        relevance: Any = encoded(Path(folder), captions, "wmd", "lower_split", 1, vectors=str(args.vectors))
    words = np.arange(len(relevance.vectors), dtype=np.int32)
    between = np.stack([np.sqrt(((relevance.wide - word) ** 2).sum(axis=1)) for word in relevance.wide])
    one = Search(References.single(words[:1]), words[:1], words[:9], 2)
    relevance.finder(one, "max", Runtime(threads=1)).find(None, range(1), lambda _: None)  # compiles
    table = Table(f"Word mover's distance of {args.captions:,} captions, CPU time of one thread")
    for of in ("captions", "images"):
        neighbours(table, relevance, between, args, of)
    table.end("wmd", args.save, "numba", "numpy", "pot")


if __name__ == "__main__":
    main()
