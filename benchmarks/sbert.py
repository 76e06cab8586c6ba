"""Sentence embeddings of COCO's 25,000 test captions, compared with sentence-transformers' `encode`.

    python benchmarks/sbert.py [--captions N] [--repeats R] [--model NAME]

Both sides get the same captions, model and number of threads, and return unit vectors. Loading is not timed. The
benchmark stops if the cosine of a float32 vector and its counterpart is below 0.99999. `--one-thread` measures CPU
seconds of one thread, which load from other processes does not change.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import coco_test_captions, describe, machine, rounds, save, show
from sentence_transformers import SentenceTransformer

from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Runtime
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.models.files import DEFAULT_MODEL, find_model

PEER = "sentence-transformers"


def one_thread_seconds(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of the process with one torch thread."""
    with inner_threads(1):
        started = time.process_time()
        work()
        return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=25_000, help="this many, drawn at random with a seed")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; a round runs every contender once")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--one-thread", type=int, default=2000, metavar="N", help="captions for CPU seconds; 0: none")
    args = parser.parse_args()

    texts = [text for _, _, text in coco_test_captions()]
    texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[: args.captions]]
    files, runtime = find_model(args.model), Runtime(device="cpu")
    peer = SentenceTransformer(str(files.folder), device="cpu")
    names = {"relabel, float32": "float32", "relabel, bfloat16": "bfloat16"}
    ours = {n: SentenceEncoder(files.folder, None, None, d, runtime) for n, d in names.items()}  # type: ignore[arg-type]

    works: dict[str, Callable[[], Any]] = {PEER: lambda: peer.encode(texts, normalize_embeddings=True)}
    works |= {name: lambda encoder=encoder: encoder.encode(texts).vectors for name, encoder in ours.items()}
    torch.set_num_threads(runtime.threads)
    for work in (lambda: peer.encode(texts[:200]), *(lambda e=e: e.encode(texts[:200]) for e in ours.values())):
        work()
    timings = rounds(works, args.repeats)
    seconds = {name: statistics.median(round_seconds) for name, (round_seconds, _) in timings.items()}
    expected = timings[PEER][1]
    cosines = {n: np.einsum("nd,nd->n", timings[n][1], expected, dtype=np.float64) for n in ours}
    if not cosines["relabel, float32"].min() > 0.99999:
        raise SystemExit(f"float32 vectors differ: least cosine {cosines['relabel, float32'].min():.7f}")

    cpu: dict[str, float] = {}
    if args.one_thread:
        subset = texts[: args.one_thread]
        alone = {PEER: lambda: peer.encode(subset, normalize_embeddings=True)}
        for name, dtype in names.items():
            encoder = SentenceEncoder(files.folder, None, None, dtype, Runtime(device="cpu", threads=1))  # type: ignore[arg-type]
            alone[name] = lambda encoder=encoder: encoder.encode(subset)  # type: ignore[misc]
        round_seconds = {name: [one_thread_seconds(alone[name]) for _ in range(args.repeats)] for name in alone}
        cpu = {name: statistics.median(times) / len(subset) * 1000 for name, times in round_seconds.items()}

    table = []
    for name in works:
        cosine = cosines.get(name)
        table.append(
            [
                name,
                f"{seconds[name]:.1f}",
                f"{len(texts) / seconds[name]:,.0f}",
                f"{seconds[PEER] / seconds[name]:.2f}",
                f"{cpu[name]:.2f}" if cpu else "",
                f"{cpu[PEER] / cpu[name]:.2f}" if cpu else "",
                "" if cosine is None else f"{cosine.min():.7f}",
                "" if cosine is None else f"{cosine.mean():.7f}",
            ]
        )
    facts = machine("torch", "sentence-transformers", "transformers")
    print(describe(facts))
    head = ["encoder", "seconds", "captions/s", "ratio", "CPU s/1000, 1 thread", "ratio", "least cosine", "mean cosine"]
    show(f"{len(texts):,} captions, {files.name}, {runtime.threads} threads, {args.repeats} rounds", head, table)
    where = save(
        "sbert",
        {
            "machine": facts,
            "model": files.record() | {"sha256": files.sha256()},
            "captions": len(texts),
            "threads": runtime.threads,
            "repeats": args.repeats,
            "backends": {name: encoder.backend for name, encoder in ours.items()},
            "seconds": {name: [round(t, 3) for t in round_seconds] for name, (round_seconds, _) in timings.items()},
            "median seconds": {name: round(t, 3) for name, t in seconds.items()},
            "times sentence-transformers": {n: round(seconds[PEER] / seconds[n], 3) for n in ours},
            "CPU seconds per 1,000 captions, one thread": {name: round(t, 3) for name, t in cpu.items()},
            "cosine": {n: {"least": float(c.min()), "mean": float(c.mean())} for n, c in cosines.items()},
        },
    )
    print(f"\nwritten to {where}")


if __name__ == "__main__":
    main()
