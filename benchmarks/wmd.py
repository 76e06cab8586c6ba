"""Exact neighbours by word mover's distance, compared with POT's exact solver on every pair; and both solvers alone.

    python benchmarks/wmd.py --vectors glove.6B.300d.txt

The captions are COCO's 25,000 test captions (from pycocoevalcap and eccv_caption) in lower-case words without function
words. Both sides get the same bags and word vectors. The peer is `ot.emd2` on all words of a pair; its costs are read
from a matrix of distances between all words, whose computation is not counted. It answers a sample of the queries. Its
distances and k nearest must agree with relabel's within 1e-9. Times are CPU seconds of one thread, medians of three
rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ot
from common import coco_test_captions, describe, machine, peak_gib, save, show

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.corpus.tokenizers import lower_split
from relabel.sources.base import OpenEncoding
from relabel.sources.finder import Search
from relabel.sources.wmd import Wmd, WmdParams
from relabel.sources.wmd.distance import distances
from relabel.sources.wmd.relevance import WmdRelevance
from relabel.store.artefact import build
from relabel.store.manifest import ArtefactSpec
from relabel.store.tasks import make_all
from relabel.store.workdir import Work

T = TypeVar("T")
ROUNDS = 3
GLOVE = Path("vectors") / "glove.6B.100d.captions-vocabulary.txt.gz"


def opened(vectors: Path, count: int, folder: Path) -> WmdRelevance:
    """Encode the first `count` captions with one thread."""
    rows = sorted(coco_test_captions(), key=lambda c: (c[1], c[0]))[:count]
    corpus = Corpus.from_captions([Caption(f"coco:{i}", f"coco:{m}", "test", text) for i, m, text in rows])
    corpus = corpus.with_tokens([" ".join(lower_split(text.strip().rstrip(" ."))) for text in corpus.texts])
    source, runtime = Wmd(WmdParams(vectors=str(vectors))), Runtime(threads=1)
    every = range(len(corpus))

    def fill(work: Work) -> None:
        work.facts["rows"] = [0, len(corpus)]
        make_all(source.tasks(corpus, every, 50_000, runtime), work, runtime.progress)

    artefact = ArtefactSpec(
        "encoding", "wmd", source.fingerprint_params(corpus, every, runtime), {"corpus": corpus.digest}
    )
    manifest, _ = build(folder / "encoding", artefact, fill)
    return source.open(OpenEncoding(corpus, folder / "encoding", manifest, runtime))


def clocked(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def by_pot(relevance: WmdRelevance, between: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the distances of pairs, one `ot.emd2` call per pair."""
    bags, out = relevance.bags, np.empty(len(left))
    spans = [slice(a, b) for a, b in zip(bags.indptr[:-1].tolist(), bags.indptr[1:].tolist(), strict=True)]
    words = [bags.words[s] for s in spans]
    shares = [bags.counts[s] / max(1, int(bags.totals[i])) for i, s in enumerate(spans)]
    for p, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        if len(words[a]) == 0 or len(words[b]) == 0:
            out[p] = np.inf
        else:
            out[p] = ot.emd2(shares[a], shares[b], between[np.ix_(words[a], words[b])])
    return out


def neighbours(relevance: WmdRelevance, between: np.ndarray, args: argparse.Namespace, of: str) -> dict[str, Any]:
    """Time the search for captions, or for images under the set distance; compare a sample of it with POT."""
    rows = np.arange(len(relevance.rows), dtype=np.int32)
    rng = np.random.default_rng(0)
    if of == "captions":
        queries, exclude, pooling = References.single(rows), rows, "max"
    else:
        queries = relevance.corpus.references(range(len(relevance.corpus.image_ids)))
        exclude, pooling = np.full(len(queries), -1, np.int32), "refs"
    sample = np.sort(rng.choice(len(queries), min(args.queries, len(queries)), replace=False))
    search = Search(queries.take(sample), exclude[sample], rows, args.k)
    ours = []
    for _ in range(ROUNDS):
        finder = relevance.finder(search, pooling, Runtime(threads=1))
        table, _ = clocked(lambda f=finder: f._weights)  # type: ignore[misc]
        each, nearest_rows = clocked(lambda f=finder: f.find(None, range(len(sample)), lambda _: None))  # type: ignore[misc]
        share = table * len(sample) / len(queries)  # the table is made once for all queries
        ours.append((each + share) / len(sample))
    few = range(min(args.peer if of == "captions" else max(1, args.peer // 5), len(sample)))
    theirs = []
    for q in few:
        refs = search.queries[q]
        left, right = np.repeat(refs, len(rows)), np.tile(rows, len(refs))
        seconds, apart = clocked(lambda a=left, b=right: by_pot(relevance, between, a, b))  # type: ignore[misc]
        theirs.append(seconds)
        cells = apart.reshape(len(refs), -1)
        set_distances = cells[0] if pooling == "max" else cells.sum(axis=0) + cells.min(axis=0)
        if search.exclude[q] >= 0:
            set_distances[search.exclude[q]] = np.inf
        nearest = np.sort(set_distances)[: args.k]
        singles = References.single(nearest_rows[0][q])
        mine = relevance.distances(search.queries.take(np.full(args.k, q)), singles, pooling)
        if not np.allclose(mine, nearest, rtol=0, atol=1e-9):
            raise SystemExit(f"query {q}: the {args.k} nearest differ by {np.abs(mine - nearest).max()}")
    return {
        "of": of,
        "captions": len(rows),
        "relabel_ms": 1000 * statistics.median(ours),
        "pot_ms": 1000 * statistics.median(theirs),
        "ratio": statistics.median(theirs) / statistics.median(ours),
    }


def solver(relevance: WmdRelevance, between: np.ndarray, count: int) -> dict[str, Any]:
    """Time the solvers on random pairs."""
    left, right = np.random.default_rng(1).integers(0, len(relevance.rows), (2, count))
    pairs = References.single(left), References.single(right)
    distances(relevance.bags, relevance.wide, *pairs)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        seconds, mine = clocked(lambda: distances(relevance.bags, relevance.wide, *pairs))
        ours.append(seconds)
        seconds, other = clocked(lambda: by_pot(relevance, between, left, right))
        theirs.append(seconds)
    if not np.allclose(mine, other, rtol=0, atol=1e-9):
        raise SystemExit(f"the solvers differ by {np.abs(mine - other).max()}")
    microseconds = [1e6 * statistics.median(t) / count for t in (ours, theirs)]
    largest = float(np.abs(mine - other)[np.isfinite(mine)].max())
    return {
        "relabel_us": microseconds[0],
        "pot_us": microseconds[1],
        "ratio": microseconds[1] / microseconds[0],
        "largest_difference": largest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mirror = os.environ.get("RELABEL_MIRROR")
    parser.add_argument("--vectors", type=Path, default=Path(mirror) / GLOVE if mirror else None)
    parser.add_argument("--captions", type=int, default=25_000)
    parser.add_argument("--queries", type=int, default=1000, help="queries that relabel answers")
    parser.add_argument(
        "--peer", type=int, default=5, help="queries of captions that POT answers; a fifth as many of images"
    )
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("-k", type=int, default=100)
    args = parser.parse_args()
    if args.vectors is None:
        parser.error("give --vectors FILE, or set RELABEL_MIRROR")
    with tempfile.TemporaryDirectory() as scratch:
        relevance = opened(args.vectors, args.captions, Path(scratch))
    words = np.arange(len(relevance.vectors), dtype=np.int32)
    between = np.empty((len(words), len(words)))
    for word in range(len(words)):
        between[word] = np.sqrt(((relevance.wide - relevance.wide[word]) ** 2).sum(axis=1))
    one = Search(References.single(words[:1]), words[:1], words[:9], 2)
    relevance.finder(one, "max", Runtime(threads=1)).find(None, range(1), lambda _: None)  # compiles
    alone = solver(relevance, between, args.pairs)
    lines = [neighbours(relevance, between, args, of) for of in ("captions", "images")]
    facts = machine("numba", "numpy", "pot")
    title = f"Exact top {args.k} by word mover's distance: {args.captions:,} COCO test captions, {args.vectors.name}"
    head = ["queries", "relabel, CPU ms per query", "POT on every pair, CPU ms per query", "ratio"]
    rows = [[n["of"], f"{n['relabel_ms']:.2f}", f"{n['pot_ms']:,.0f}", f"{n['ratio']:,.0f}"] for n in lines]
    show(title, head, rows)
    head = ["relabel, CPU us per pair", "POT", "ratio", "largest difference"]
    show(
        "Solvers alone, random pairs",
        head,
        [
            [
                f"{alone['relabel_us']:.2f}",
                f"{alone['pot_us']:.1f}",
                f"{alone['ratio']:.0f}",
                f"{alone['largest_difference']:.0e}",
            ]
        ],
    )
    print(describe(facts), f"{peak_gib():.1f} GiB")
    print(save("wmd", {"title": title, "machine": facts, "neighbours": lines, "solver": alone}))


if __name__ == "__main__":
    main()
