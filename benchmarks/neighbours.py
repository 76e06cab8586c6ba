"""The exact 100 nearest of every vector, compared with the exact searches of sentence-transformers and faiss.

    python benchmarks/neighbours.py [--rows N]

The vectors are 145,000 unit vectors of width 384, as many as Flickr30K has training captions, searched against
themselves. They are random directions, whose neighbours are harder to separate than those of captions. All contenders
get the same vectors and number of threads. The benchmark stops if a peer's score differs from relabel's by more than
1e-5. Each contender runs in a process of its own, since OpenBLAS, which faiss uses, reads OPENBLAS_CORETYPE once per
process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from harness import Program, Table, agree, clock, options

K, WIDTH = 100, 384


def by_relabel(vectors: np.ndarray, threads: int) -> np.ndarray:
    from relabel.core.runtime import SILENT, Runtime
    from relabel.corpus import References
    from relabel.sources.finder import Search
    from relabel.sources.vector_search import VectorFinder
    from relabel.store.workdir import Work, make_step

    rows = np.arange(len(vectors), dtype=np.int32)
    search = Search(References.single(rows), np.full(len(rows), -1, np.int32), rows, K)
    finder = VectorFinder(vectors, 0, search, "max", Runtime(threads=threads))
    with tempfile.TemporaryDirectory() as folder:
        work, step = Work(Path(folder)), (1 << 21) // K
        if built := finder.build(work):
            make_step(built, work, SILENT)
        parts = [range(a, min(a + step, len(rows))) for a in range(0, len(rows), step)]
        scores = [finder.find(work, part, lambda _: None)[1] for part in parts]
    return np.concatenate(scores).astype(np.float32)


def by_sentence_transformers(vectors: np.ndarray, threads: int) -> np.ndarray:
    import torch
    from sentence_transformers.util import semantic_search

    torch.set_num_threads(threads)
    hits = semantic_search(torch.from_numpy(vectors), torch.from_numpy(vectors), top_k=K)
    return np.array([[hit["score"] for hit in query_hits] for query_hits in hits], np.float32)


def by_faiss(vectors: np.ndarray, threads: int) -> np.ndarray:
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    scores: np.ndarray = index.search(vectors, K)[0]
    return scores


# The function of a contender, and its kernels of OpenBLAS.
CONTENDERS = {
    "relabel": (by_relabel, ""),
    "sentence-transformers": (by_sentence_transformers, ""),
    "faiss IndexFlatIP": (by_faiss, ""),
    "faiss, kernels of Haswell": (by_faiss, "Haswell"),
}


def child(name: str, vectors: np.ndarray, threads: int, out: Path) -> None:
    """Time a contender, after a small search that loads and compiles."""
    work = CONTENDERS[name][0]
    work(vectors[:4000], threads)
    cost = clock(lambda: work(vectors, threads))
    np.save(out, cost.result)
    print(cost.wall)


def main() -> None:
    args = options(__doc__, rows=145_000, child="", scratch=Path)
    if args.child:
        child(args.child, np.load(args.scratch / "vectors.npy"), args.threads, args.scratch / f"{args.child}.npy")
        return
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    table = Table(f"Exact top {K} of {args.rows:,} vectors among themselves, {args.threads} threads")
    with tempfile.TemporaryDirectory() as scratch:
        vectors = np.random.default_rng(0).standard_normal((args.rows, WIDTH), np.float32)
        np.save(f"{scratch}/vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        for _ in range(args.repeats):
            for name, (_, kernels) in CONTENDERS.items():
                environment = ["env", f"OPENBLAS_CORETYPE={kernels}"] if kernels else ["env", "-u", "OPENBLAS_CORETYPE"]
                command = [sys.executable, __file__, "--threads", str(args.threads), "--child", name]
                seconds[name].append(float(Program([*environment, *command, "--scratch", scratch]).output))
        scores = {name: np.load(f"{scratch}/{name}.npy") for name in CONTENDERS}
    ours = statistics.median(seconds.pop("relabel"))
    for name, times in seconds.items():
        apart = agree(name, scores["relabel"], scores[name], 1e-5)
        table.add("search", "s", ours, name, statistics.median(times), apart=apart)
    table.end("neighbours", args.save, "faiss-cpu", "numba", "numpy", "sentence-transformers", "torch")


if __name__ == "__main__":
    main()
