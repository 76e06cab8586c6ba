"""The exact 100 nearest of every vector, compared with the exact searches of sentence-transformers and faiss.

    python benchmarks/neighbours.py [--rows N] [--encoding FOLDER] [--repeats R]

The vectors are 145,000 unit vectors of width 384, as many as Flickr30K has training captions, searched against
themselves. They come from an encoding if a folder is given (`labels/coco/encodings/all/sbert`), otherwise they are
random directions. Scores of random directions are close together and far from 1, so their neighbours are harder to
separate than those of captions. All contenders get the same vectors and number of threads. The benchmark stops if a
peer's score differs from relabel's by more than 1e-5. faiss runs in separate processes, with and without
OPENBLAS_CORETYPE if that is set, because OpenBLAS reads it once per process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import describe, machine, peak_gib, save, show

K, WIDTH = 100, 384
TOLERANCE = 1e-5
PROBE = 4096


def vectors_of(folder: Path | None, rows: int) -> np.ndarray:
    if folder is None:
        directions = np.random.default_rng(0).standard_normal((rows, WIDTH), dtype=np.float32)
        return directions / np.linalg.norm(directions, axis=1, keepdims=True)
    from relabel.sources.cosine import read_vectors
    from relabel.store.manifest import read_manifest

    encoding = read_vectors(folder, read_manifest(folder, "encoding"))
    return encoding[np.sort(np.random.default_rng(0).permutation(len(encoding))[:rows])]


def relabel(vectors: np.ndarray, threads: int) -> np.ndarray:
    from relabel.core.runtime import Runtime
    from relabel.corpus import References
    from relabel.sources.finder import Search
    from relabel.sources.vector_search import VectorFinder
    from relabel.store.workdir import Work

    rows = np.arange(len(vectors), dtype=np.int32)
    search = Search(References.single(rows), np.full(len(rows), -1, np.int32), rows, K)
    finder = VectorFinder(vectors, 0, search, "max", Runtime(threads=threads))
    with tempfile.TemporaryDirectory() as folder:
        work, step = Work(Path(folder)), (1 << 21) // K
        group = finder.preliminary(work)
        for task in group.tasks if group else ():
            finder.prepare(work, task, lambda _: None)
        scores = [
            finder.find(work, range(a, min(a + step, len(rows))), lambda _: None)[1] for a in range(0, len(rows), step)
        ]
    return np.concatenate(scores).astype(np.float32)


def sentence_transformers(vectors: np.ndarray, threads: int) -> np.ndarray:
    import torch
    from sentence_transformers.util import semantic_search

    torch.set_num_threads(threads)
    hits = semantic_search(torch.from_numpy(vectors), torch.from_numpy(vectors), top_k=K)
    return np.array([[hit["score"] for hit in query_hits] for query_hits in hits], np.float32)


def faiss_flat(vectors: np.ndarray, threads: int) -> np.ndarray:
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    scores: np.ndarray = index.search(vectors, K)[0]
    return scores


def sgemm_numpy(vectors: np.ndarray, threads: int) -> np.ndarray:
    """Return the rate of the float32 product, in 1e9 operations per second."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads, "blas"):
        return rate(lambda: vectors[:PROBE] @ vectors[:PROBE].T, vectors)


def sgemm_torch(vectors: np.ndarray, threads: int) -> np.ndarray:
    import torch

    torch.set_num_threads(threads)
    probe = torch.from_numpy(vectors[:PROBE])
    return rate(lambda: torch.mm(probe, probe.T), vectors)


def rate(product: Callable[[], Any], vectors: np.ndarray) -> np.ndarray:
    seconds = []
    for _ in range(10):
        started = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - started)
    count = len(vectors[:PROBE])
    return np.array([2 * count * count * vectors.shape[1] / min(seconds) / 1e9])


CONTENDERS = {f.__name__: f for f in (relabel, sentence_transformers, faiss_flat, sgemm_numpy, sgemm_torch)}


def in_subprocess(name: str, vectors: Path, threads: int, coretype: str | None) -> tuple[dict[str, float], np.ndarray]:
    """Run a contender in a separate process; a small search first loads and compiles."""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    environment |= {} if coretype is None else {"OPENBLAS_CORETYPE": coretype}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npz"
        command = [sys.executable, __file__, "--child", name, str(vectors), str(threads), str(out)]
        subprocess.run(command, env=environment, check=True)
        with np.load(out) as archive:
            return {key: float(archive[key]) for key in ("seconds", "cpu", "peak")}, archive["result"]


def child(name: str, path: str, threads: str, out: str) -> None:
    vectors, work = np.load(path), CONTENDERS[name]
    work(vectors[:4000], int(threads))
    started, used = time.perf_counter(), time.process_time()
    result = work(vectors, int(threads))
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    np.savez(out, seconds=seconds, cpu=cpu, peak=peak_gib(), result=result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=145_000)
    parser.add_argument("--encoding", type=Path, help="folder of an encoding; random directions by default")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; a round runs every contender once")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(args, Path(scratch))


def run(args: argparse.Namespace, scratch: Path) -> None:
    vectors = vectors_of(args.encoding, args.rows)
    np.save(scratch / "vectors.npy", vectors)
    facts = machine("faiss-cpu", "numba", "numpy", "sentence-transformers", "torch")
    threads, coretype_set = facts["cores"], os.environ.get("OPENBLAS_CORETYPE")
    plans: dict[str, tuple[str, str | None]] = {"relabel": ("relabel", coretype_set)}
    plans["sentence-transformers"] = ("sentence_transformers", coretype_set)
    plans["faiss IndexFlatIP"] = ("faiss_flat", None)
    plans["sgemm, numpy"], plans["sgemm, torch"] = ("sgemm_numpy", None), ("sgemm_torch", None)
    if coretype_set is not None:
        plans[f"faiss, OPENBLAS_CORETYPE={coretype_set}"] = ("faiss_flat", coretype_set)
        plans[f"sgemm, numpy, OPENBLAS_CORETYPE={coretype_set}"] = ("sgemm_numpy", coretype_set)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in plans}
    results: dict[str, np.ndarray] = {}
    for _ in range(args.repeats):
        for name, (contender, coretype) in plans.items():
            times, results[name] = in_subprocess(contender, scratch / "vectors.npy", threads, coretype)
            runs[name].append(times)

    medians = {
        n: {key: statistics.median(r[key] for r in measured) for key in measured[0]} for n, measured in runs.items()
    }
    rates = {name: float(results.pop(name)[0]) for name in plans if name.startswith("sgemm")}
    for name, scores in results.items():
        worst = float(np.abs(scores - results["relabel"]).max())
        if not worst <= TOLERANCE:
            raise SystemExit(f"{name} and relabel differ by {worst:.3g}")
    ours, best = medians["relabel"]["seconds"], max(rates.values())
    halved = len(vectors) ** 2 * vectors.shape[1] / (best * 1e9)  # each product serves both vectors
    lines = [{"name": n, **medians[n], "relabel_is_x_faster": medians[n]["seconds"] / ours} for n in results]
    table = [
        [r["name"], *(f"{r[key]:.2f}" for key in ("seconds", "cpu", "peak")), f"{r['relabel_is_x_faster']:.2f}"]
        for r in lines
    ]
    kind = "random directions" if args.encoding is None else f"encoding {args.encoding.name}"
    title = f"Exact top {K} of {len(vectors):,} x {len(vectors):,} vectors, width {vectors.shape[1]}, {kind}"
    show(title, ["", "seconds", "CPU seconds", "peak GiB", "speed-up of relabel"], table)
    print("\n" + "\n".join(f"{name}: {value:,.0f} GFLOP/s" for name, value in rates.items()))
    print(f"half of all products at the fastest rate: {halved:.2f} s, {halved / ours:.0%} of relabel's seconds")
    print(f"{describe(facts)}\nmedians of {args.repeats} rounds")
    body = {"title": title, "rounds": args.repeats, "machine": facts, "rows": lines, "sgemm_gflops": rates}
    print(save("neighbours", {**body, "halved_products_seconds": halved, "share_of_sgemm": halved / ours}))


if __name__ == "__main__":
    main()
