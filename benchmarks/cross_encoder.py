"""A cross-encoder on pairs of COCO's test captions, compared with sentence-transformers' `predict`.

    python benchmarks/cross_encoder.py --model FOLDER_OR_NAME [--images N] [--repeats R]

The work is that of a label: the relevance of every caption of N images to every other one, averaged over both orders.
The peer scores all ordered pairs of captions. relabel gets the same request and scores each distinct unordered pair of
texts once. Intermediate versions separate the effects: the peer on the distinct pairs, batches of equal length on the
model's own layers, and packed layers. The benchmark stops if a float32 score differs from the peer's by more than 1e-4.
Times are CPU seconds of one thread, which load from other processes does not change.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
import torch
from common import coco_test_captions, describe, machine, save, show
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from relabel.core.numeric.threads import inner_threads
from relabel.core.runtime import Runtime
from relabel.sources.bert_sts import scorer as module
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.sources.bert_sts.token_pairs import Texts
from relabel.sources.models.files import find_model

PEER = "predict, all ordered pairs"
Scores = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a cross-encoder with one label")
    parser.add_argument("--images", type=int, default=8, help="this many, five captions each, drawn with a seed")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    files = find_model(args.model)
    captions = coco_test_captions()
    images = list(dict.fromkeys(image for _, image, _ in captions))
    chosen = set(np.random.default_rng(0).permutation(images)[: args.images].tolist())
    texts = [text.strip() for _, image, text in captions if image in chosen]
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    which, distinct = np.array([number[t] for t in texts]), list(number)
    rows, columns = (a.reshape(-1) for a in np.mgrid[: len(texts), : len(texts)])
    rows, columns = rows[rows != columns], columns[rows != columns]
    keys = np.unique(np.sort(np.stack([which[rows], which[columns]]), axis=0), axis=1)
    keys = keys[:, keys[0] != keys[1]]
    first, second = np.concatenate([keys[0], keys[1]]), np.concatenate([keys[1], keys[0]])

    peer = CrossEncoder(str(files.folder), device="cpu")
    peer.float()
    runtime = Runtime(device="cpu", threads=1)
    ours = {d: PairScorer(files.folder, None, None, None, d, runtime) for d in ("float32", "bfloat16")}
    with mock.patch.object(module, "can_pack", return_value=False):
        plain = PairScorer(files.folder, None, None, None, "float32", runtime)

    def predicted(ones: NDArray[np.int64], twos: NDArray[np.int64], of: list[str]) -> Scores:
        pairs = [(of[a], of[b]) for a, b in zip(ones.tolist(), twos.tolist(), strict=True)]
        return np.asarray(peer.predict(pairs, show_progress_bar=False), np.float64)

    def scored(scorer: PairScorer) -> Scores:
        return scorer.score(Texts.of(scorer.tokenize(distinct)), first, second)

    works: dict[str, Callable[[], Scores]] = {
        PEER: lambda: predicted(rows, columns, texts),
        "predict, distinct pairs": lambda: predicted(first, second, distinct),
        "relabel, equal lengths only": lambda: scored(plain),
        "relabel, packed layers, float32": lambda: scored(ours["float32"]),
        "relabel, packed layers, bfloat16": lambda: scored(ours["bfloat16"]),
    }
    cpu_seconds: dict[str, list[float]] = {name: [] for name in works}
    scores_of: dict[str, Scores] = {}
    with inner_threads(1):
        predicted(first[:64], second[:64], distinct)
        for _ in range(args.repeats):
            for name, work in works.items():
                started = time.process_time()
                scores_of[name] = work()
                cpu_seconds[name].append(time.process_time() - started)
    expected = scores_of["predict, distinct pairs"]
    apart = {name: float(np.abs(scores - expected).max()) for name, scores in scores_of.items() if name != PEER}
    if not max(apart["relabel, equal lengths only"], apart["relabel, packed layers, float32"]) < 1e-4:
        raise SystemExit(f"float32 scores differ: {apart}")
    seconds = {name: statistics.median(times) for name, times in cpu_seconds.items()}
    table = []
    for name in works:
        rate, ratio = len(rows) / seconds[name], seconds[PEER] / seconds[name]
        difference = f"{apart[name]:.1e}" if name in apart else ""
        table.append([name, f"{seconds[name]:.2f}", f"{rate:,.0f}", f"{ratio:.2f}", difference])
    facts = machine("torch", "sentence-transformers", "transformers")
    print(describe(facts))
    title = f"{len(rows):,} ordered pairs of {len(texts)} captions, {len(first):,} of distinct texts; {files.name}"
    show(title, ["scorer", "CPU s, 1 thread", "ordered pairs/s", "ratio", "largest difference"], table)
    body = {
        "machine": facts,
        "model": files.record() | {"name": files.folder.name, "sha256": files.sha256()},  # no path of this machine
        "torch": torch.__version__,
        "captions": len(texts),
        "ordered pairs": len(rows),
        "ordered pairs of distinct texts": len(first),
        "CPU seconds": {name: [round(t, 3) for t in times] for name, times in cpu_seconds.items()},
        "times predict": {name: round(seconds[PEER] / s, 3) for name, s in seconds.items()},
        "largest difference": apart,
    }
    print(f"\nwritten to {save('cross_encoder', body)}")


if __name__ == "__main__":
    main()
